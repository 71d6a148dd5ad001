"""The table of expected execution times."""

from __future__ import annotations

import math

import pytest

from builders import a_resource
from hetsched.estimates.point import Figures, own_type
from hetsched.estimates.table import GUESS_S, POINTS_OF_APP, EstimateTable, application
from hetsched.system import Resource, System
from hetsched.tasks import Row
from libtask.errors import InputError

CPU, GPU = a_resource("cpu"), a_resource("gpu")
ROW = Row("heat/4096", frozenset({"cpu", "gpu", "fpga"}), frozenset(), 16.0)


def a_row(task_type: str = "heat/64", work: float = 1.0) -> Row:
    return Row(task_type, frozenset({"cpu", "gpu"}), frozenset(), work)


def a_table(*entries: tuple[str, Resource, float, float]) -> EstimateTable:
    table = EstimateTable()
    for task_type, resource, seconds, work in entries:
        table.learn(task_type, resource.name, seconds, work)
    return table


def test_an_unmeasured_task_gets_the_guess() -> None:
    assert a_table().seconds(a_row(), CPU) == GUESS_S
    assert a_table().figures() == []


def test_a_measured_time_is_the_expected_time() -> None:
    table = a_table(("heat/64", CPU, 3.0, 1.0), ("heat/64", GPU, 0.5, 1.0))

    assert table.seconds(a_row(), CPU) == 3.0
    assert table.seconds(a_row(), GPU) == 0.5
    assert [known.count for known in table.figures()] == [1, 1]


def test_a_later_measurement_replaces_an_earlier_one() -> None:
    table = a_table(("heat/64", CPU, 3.0, 1.0))
    before = (table.seconds(a_row(), CPU), table.version)

    table.learn("heat/64", "cpu", 4.0, 1.0)

    assert before[0] == 3.0
    assert table.seconds(a_row(), CPU) == 4.0
    assert table.version != before[1]


def test_the_time_of_a_type_is_proportional_to_its_work() -> None:
    table = a_table(("heat/64", CPU, 3.0, 10.0))

    assert table.seconds(a_row(work=20.0), CPU) == pytest.approx(6.0)


def test_any_amount_of_work_has_a_finite_expected_time() -> None:
    table = a_table(("heat/64", CPU, 1e9, 1e-300))

    assert table.seconds(a_row("heat/65", work=1e18), CPU) < math.inf


def test_an_unmeasured_size_lies_between_those_measured() -> None:
    table = a_table(
        ("heat/64", CPU, 1.0, 64.0),
        ("heat/512", CPU, 12.0, 512.0),
        ("blur/256", CPU, 99.0, 256.0),
    )

    # A line through both in log-log gives 5.2; in proportion to 512 it would be 6.
    assert table.seconds(a_row("heat/256", work=256.0), CPU) == pytest.approx(5.3, 0.05)
    assert table.seconds(a_row("heat/64", work=64.0), CPU) == 1.0


def test_an_unmeasured_resource_is_expected_to_be_as_quick_as_the_others() -> None:
    table = a_table(("heat/64", CPU, 8.0, 64.0))

    assert table.seconds(a_row("heat/32", work=32.0), GPU) == pytest.approx(4.0)
    assert table.confidence(a_row("heat/32", work=32.0), GPU) < 0.2
    assert not table.knows_app(a_row("heat/32"), GPU)


def test_with_probing_what_was_never_measured_is_untried_where_others_were() -> None:
    table = EstimateTable(0.4)
    assert not table.is_untried(ROW, GPU)  # nothing is known anywhere

    table.learn("heat/4096", "cpu", 60.0, ROW.work)

    assert table.is_untried(ROW, GPU)
    assert not table.is_untried(ROW, CPU)
    table.learn("heat/1024", "gpu0", 20.0, ROW.work / 16)  # another size is a guide
    assert not table.is_untried(ROW, GPU)


def test_what_its_user_expects_is_no_guess_to_be_tried() -> None:
    table = EstimateTable(0.4)
    table.learn("heat/4096", "cpu", 60.0, ROW.work)
    stated = Row(ROW.type, ROW.kinds, ROW.resources, ROW.work, {"gpu": 30.0})

    assert not table.is_untried(stated, GPU)


def test_without_probing_nothing_is_untried() -> None:
    table = EstimateTable()
    table.learn("heat/4096", "cpu", 60.0, ROW.work)

    assert not table.is_untried(ROW, GPU)


def test_a_trial_as_quick_as_guessed_changes_what_is_guessed_of_others() -> None:
    table = EstimateTable(0.4)
    fpga = Resource("fpga0", "fpga")
    table.learn("heat/4096", "cpu", 60.0, ROW.work)
    assert table.seconds(ROW, fpga) == pytest.approx(24.0)
    before = table.version

    table.observe(ROW, GPU, 24.0)

    # 0.4 times the median of 60 and 24 s
    assert table.version > before
    assert table.seconds(ROW, fpga) == pytest.approx(16.8)


def test_what_a_user_expects_counts_until_it_was_measured() -> None:
    table = a_table(("heat/64", CPU, 8.0, 64.0))
    row = Row("heat/256", frozenset({"cpu", "gpu"}), frozenset(), 256.0, {"gpu": 3.0})

    assert table.seconds(row, GPU) == 3.0
    assert 0.5 < table.confidence(row, GPU) < 1.0
    assert table.knows(row, GPU)
    # nothing was said of the CPU: other sizes tell
    assert table.seconds(row, CPU) == pytest.approx(32.0)

    news = table.observe(row, GPU, computing=1.0)

    assert news.keep is not None
    assert table.seconds(row, GPU) == 1.0


def test_what_is_expected_of_a_resource_comes_before_what_is_of_its_kind() -> None:
    kinds = frozenset({"gpu"})
    row = Row("heat/64", kinds, frozenset(), 1.0, {"gpu": 3.0, GPU.name: 2.0})

    assert a_table().seconds(row, GPU) == 2.0
    nothing = Row("heat/64", kinds, frozenset(), 1.0, {GPU.name: 0.0})
    assert 0.0 < a_table().seconds(nothing, GPU) < 1e-6


def test_confidence_falls_with_the_distance_from_measured_sizes() -> None:
    table = a_table(("heat/64", CPU, 8.0, 64.0), ("heat/128", CPU, 16.0, 128.0))
    confidences = [
        table.confidence(a_row(f"heat/{work}", work=work), CPU)
        for work in (64.0, 256.0, 4096.0, 1e6)
    ]

    assert confidences == sorted(confidences, reverse=True)
    assert confidences[0] > 0.75
    assert confidences[-1] < 0.4


def test_set_up_does_not_grow_with_work() -> None:
    table = EstimateTable()
    table.enter(Figures("heat/64", "cpu", 3.0, 100.0, setup=1.0))

    assert table.seconds(a_row(work=105.0), CPU) == pytest.approx(3.1)
    # ten times the work: ten times the strips, a little more set-up
    assert 21.0 < table.seconds(a_row(work=1000.0), CPU) < 24.0


def test_the_application_of_a_type_is_the_type_without_its_size() -> None:
    table = a_table(("/home/me/wave.py:Wave/64", CPU, 1.0, 1.0))

    wider = a_row("/home/me/wave.py:Wave/128", 2.0)
    assert table.seconds(wider, CPU) == pytest.approx(2.0)
    assert table.seconds(a_row("/home/me/wave.py:Other/128", 2.0), CPU) == GUESS_S
    assert application("markov/csr/4096") == "markov"
    assert application("heat") == "heat"


def test_a_first_live_measurement_is_believed() -> None:
    table = a_table()

    news = table.observe(a_row(), CPU, 7.0, 0.5)

    assert table.seconds(a_row(), CPU) == 7.5
    assert news.keep == Figures("heat/64", "cpu", 7.5, 1.0, setup=0.5)


def test_live_measurements_move_an_answer_when_it_is_off() -> None:
    table = a_table(("heat/64", CPU, 10.0, 1.0))

    for _ in range(5):
        table.observe(a_row(), CPU, 15.0)

    assert table.seconds(a_row(), CPU) == pytest.approx(15.0)


def test_a_correct_estimate_is_not_published_again() -> None:
    table = a_table(("heat/64", CPU, 10.0, 1.0))
    version = table.version

    news = [table.observe(a_row(), CPU, 10.0 + 0.01 * n) for n in range(40)]

    assert table.version == version
    assert table.seconds(a_row(), CPU) == 10.0
    # counts are stored as they double: 2, 4, 8, 16 and 32
    assert sum(each.keep is not None for each in news) == 5


def test_noise_of_very_short_tasks_is_not_published() -> None:
    table = a_table(("no-op", CPU, 1e-4, 1.0))
    version = table.version

    for n in range(100):
        table.observe(a_row("no-op"), CPU, 1e-4 * (1 + n % 3))

    assert table.version == version


@pytest.mark.parametrize("live", [1e9, 1e-9])
def test_one_live_measurement_cannot_poison_an_entry(live: float) -> None:
    table = a_table(("heat/64", CPU, 10.0, 1.0))
    for seconds in (9.9, 10.0, 10.1):
        table.observe(a_row(), CPU, seconds)

    table.observe(a_row(), CPU, live)

    assert table.seconds(a_row(), CPU) == pytest.approx(10.0, 0.02)


def test_a_first_compilation_does_not_last() -> None:
    table = a_table()

    table.observe(a_row(), CPU, 30.0)
    table.observe(a_row(), CPU, 1.0)

    assert table.seconds(a_row(), CPU) == 1.0


@pytest.mark.parametrize("live", [math.nan, math.inf, -1.0, 0.0])
def test_an_invalid_live_measurement_changes_nothing(live: float) -> None:
    known, unknown = a_table(("heat/64", CPU, 10.0, 1.0)), a_table()

    known.observe(a_row(), CPU, live)
    unknown.observe(a_row(), CPU, live)

    assert known.figures() == [Figures("heat/64", "cpu", 10.0, 1.0)]
    assert unknown.figures() == []


def test_a_point_is_restored_from_its_figures() -> None:
    table = a_table()
    for seconds in (9.0, 9.5, 10.0, 10.4, 11.0, 10.1, 9.9):
        table.observe(a_row(), CPU, seconds, 0.25)
    copy = EstimateTable()

    for known in table.figures():
        copy.enter(known)

    (before,), (after,) = table.figures(), copy.figures()
    assert after.seconds == pytest.approx(before.seconds)
    assert after.spread == pytest.approx(before.spread, rel=0.3)
    assert (after.count, after.setup) == (before.count, before.setup)


def test_a_forgotten_measurement_gives_way_to_the_guess() -> None:
    table = a_table(("heat/64", CPU, 10.0, 1.0), ("blur/64", CPU, 3.0, 1.0))
    assert table.seconds(a_row(), CPU) == 10.0

    heat = [key for key in table.keys_after(None, 9) if key[0] == "heat/64"]
    table.forget(heat)

    assert table.dropped() == heat
    assert table.dropped() == []
    assert table.seconds(a_row(), CPU) == GUESS_S
    assert len(table.figures()) == 1


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 0.0])
def test_an_invalid_sample_time_is_refused(seconds: float) -> None:
    table = a_table()

    with pytest.raises(
        InputError, match="heat/64 on cpu: a time must be positive and finite, got"
    ):
        table.learn("heat/64", "cpu", seconds, 1.0)
    assert table.figures() == []


def test_affinities_follow_the_estimates() -> None:
    table = a_table(("heat/64", CPU, 4.0, 1.0), ("heat/64", GPU, 1.0, 1.0))
    system = System([CPU, GPU], table)
    row = a_row()
    before = dict(system.affinities(row))

    table.learn("heat/64", "gpu0", 16.0, 1.0)

    assert before == {"cpu": 0.25, "gpu0": 1.0}
    assert system.affinities(row) == {"cpu": 1.0, "gpu0": 0.25}
    assert system.best(row) == "cpu"
    assert system.affinity(row, "fpga0") == 0.0


def test_rows_that_are_forgotten_do_not_fill_memory() -> None:
    table = a_table()

    for work in range(50_000):
        table.seconds(a_row(work=float(work)), CPU)

    assert len(table._cache) < 25_000


@pytest.mark.parametrize(
    ("measured", "asked"),
    [
        ("heat/1024", "heat/2048"),
        ("markov/1024/float32", "markov/2048/float32"),
        ("file:Mine/8x8/float32", "file:Mine/16x2/float64"),
    ],
)
def test_another_size_of_the_application_is_scaled_by_work(
    measured: str, asked: str
) -> None:
    table = a_table((measured, CPU, 2.0, 100.0))

    assert table.seconds(a_row(asked, 150.0), CPU) == pytest.approx(3.0)


def test_the_size_closest_in_work_is_used() -> None:
    table = a_table(("heat/64", CPU, 0.001, 1.0), ("heat/4096", CPU, 100.0, 1000.0))

    # near the larger, on a slope between proportion and what both sizes say
    assert 20.0 < table.seconds(a_row("heat/2048", 400.0), CPU) < 40.0


def test_other_applications_do_not_affect_the_estimate() -> None:
    table = a_table(("heater/64", CPU, 0.001, 1.0), ("blur", GPU, 0.001, 1.0))

    assert table.seconds(a_row("heat/64", 1.0), CPU) == GUESS_S


def test_each_application_keeps_a_bounded_number_of_recently_updated_sizes() -> None:
    table = EstimateTable()
    for number in range(POINTS_OF_APP):
        table.learn(f"heat/{number}", "cpu", 1.0, 1.0)
    row = a_row("heat/0", 1.0)
    for _ in range(20):
        table.observe(row, CPU, 9.0)  # it has news

    table.learn("heat/new", "cpu", 1.0, 1.0)
    table.learn("blur/new", "cpu", 1.0, 1.0)

    assert [key[0] for key in table.dropped()] == ["heat/1"]
    updated = {known.type: known.count for known in table.figures()}
    assert updated["heat/0"] > 1


def test_a_user_with_many_types_makes_only_their_own_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hetsched.estimates.table.POINTS", 6)
    table = EstimateTable()
    table.learn("heat/64", "cpu", 3.0, 1.0)
    mine = a_row(own_type(2000, "mine/1"))
    table.observe(mine, CPU, 5.0)

    for number in range(20):
        table.observe(a_row(own_type(1000, f"a{number}")), CPU, 1.0)

    assert table.seconds(a_row("heat/64"), CPU) == 3.0
    assert table.seconds(mine, CPU) == 5.0
    assert {key[0] for key in table.dropped()} == {
        own_type(1000, f"a{number}") for number in range(16)
    }


def test_counts_that_users_enter_leave_room_for_more_measurements() -> None:
    table = EstimateTable()
    most = (1 << 63) - 1
    table.enter(Figures("heat/64", "cpu", 1.0, 1.0, count=most))

    for _ in range(3):
        table.observe(a_row(), CPU, 1.0)

    assert all(each.count <= most for each in table.figures())
