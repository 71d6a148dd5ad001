"""The table of expected execution times."""

from __future__ import annotations

import math

import pytest

from builders import a_resource
from hetd.core.system import Resource, System
from hetd.core.tasks import Row
from hetd.estimates.table import GUESS_S, Entry, EstimateTable, application
from libtask.errors import InputError

CPU, GPU = a_resource("cpu"), a_resource("gpu")


def a_row(task_type: str = "heat/64", work: float = 1.0) -> Row:
    return Row(task_type, frozenset({"cpu", "gpu"}), frozenset(), work)


def a_table(*entries: tuple[str, Resource, float, float]) -> EstimateTable:
    table = EstimateTable()
    for task_type, resource, seconds, work in entries:
        table.learn(task_type, resource.name, seconds, work)
    return table


def test_what_nobody_measured_is_guessed() -> None:
    assert a_table().seconds(a_row(), CPU) == GUESS_S
    assert not a_table().knows(a_row(), CPU)


def test_what_was_measured_is_expected_again() -> None:
    table = a_table(("heat/64", CPU, 3.0, 1.0), ("heat/64", GPU, 0.5, 1.0))

    assert table.seconds(a_row(), CPU) == 3.0
    assert table.seconds(a_row(), GPU) == 0.5
    assert table.knows(a_row(), GPU)


def test_a_later_measurement_replaces_an_earlier_one() -> None:
    table = a_table(("heat/64", CPU, 3.0, 1.0))
    before = (table.seconds(a_row(), CPU), table.version)

    table.learn("heat/64", "cpu", 4.0, 1.0)

    assert before[0] == 3.0
    assert table.seconds(a_row(), CPU) == 4.0
    assert table.version != before[1]


def test_the_time_of_a_type_goes_with_its_work() -> None:
    table = a_table(("heat/64", CPU, 3.0, 10.0))

    assert table.seconds(a_row(work=20.0), CPU) == 6.0


def test_an_unmeasured_size_is_scaled_from_the_nearest_of_its_app() -> None:
    table = a_table(
        ("heat/64", CPU, 1.0, 64.0),
        ("heat/512", CPU, 12.0, 512.0),
        ("blur/256", CPU, 99.0, 256.0),
    )

    # 256 is a factor 2 from 512, and a factor 4 from 64.
    assert table.seconds(a_row("heat/256", work=256.0), CPU) == 6.0
    assert table.seconds(a_row("heat/32", work=32.0), CPU) == 0.5
    assert table.seconds(a_row("heat/32", work=32.0), GPU) == GUESS_S


def test_the_app_of_a_type_is_all_but_its_size() -> None:
    table = a_table(("/home/me/wave.py:Wave/64", CPU, 1.0, 1.0))

    assert table.seconds(a_row("/home/me/wave.py:Wave/128", 2.0), CPU) == 2.0
    assert table.seconds(a_row("/home/me/wave.py:Other/128", 2.0), CPU) == GUESS_S
    assert application("markov/csr/4096") == "markov"
    assert application("heat") == "heat"


def test_a_first_live_measurement_is_believed() -> None:
    table = a_table()

    assert table.correct(a_row(), CPU, 7.0) == 7.0
    assert table.seconds(a_row(), CPU) == 7.0


def test_live_measurements_move_an_entry_step_by_step() -> None:
    table = a_table(("heat/64", CPU, 10.0, 1.0))

    assert table.correct(a_row(), CPU, 15.0) == pytest.approx(11.0)
    assert table.seconds(a_row(), CPU) == pytest.approx(11.0)


@pytest.mark.parametrize(("live", "expected"), [(1e9, 12.0), (1e-9, 9.0)])
def test_one_live_measurement_cannot_poison_an_entry(
    live: float, expected: float
) -> None:
    table = a_table(("heat/64", CPU, 10.0, 1.0))

    # Cut to twice and to half of what is known, and weighed with 0.2.
    assert table.correct(a_row(), CPU, live) == pytest.approx(expected)


@pytest.mark.parametrize("live", [math.nan, math.inf, -1.0, 0.0])
def test_a_live_measurement_that_is_no_time_changes_nothing(live: float) -> None:
    known = a_table(("heat/64", CPU, 10.0, 1.0))

    assert known.correct(a_row(), CPU, live) == 10.0
    assert a_table().correct(a_row(), CPU, live) == GUESS_S
    assert known.entries() == {("heat/64", "cpu"): Entry(10.0, 1.0)}


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 0.0])
def test_a_sample_that_is_no_time_is_refused(seconds: float) -> None:
    table = a_table()

    with pytest.raises(
        InputError, match="heat/64 on cpu: a time must be positive and finite, got"
    ):
        table.learn("heat/64", "cpu", seconds, 1.0)
    assert table.entries() == {}


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


def test_the_size_closest_in_work_serves() -> None:
    table = a_table(("heat/64", CPU, 0.001, 1.0), ("heat/4096", CPU, 100.0, 1000.0))

    assert table.seconds(a_row("heat/2048", 400.0), CPU) == pytest.approx(40.0)


def test_other_applications_and_resources_say_nothing() -> None:
    table = a_table(("heat/64", GPU, 0.001, 1.0), ("heater/64", CPU, 0.001, 1.0))

    assert table.seconds(a_row("heat/64", 1.0), CPU) == GUESS_S
