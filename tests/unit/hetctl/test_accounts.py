"""`hetctl history` and `hetctl report`: sums over records, and unknown values."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from hetctl.__main__ import main
from hetctl.units import moment
from hetctl.views.accounting import Split, account
from libtask.messages import ListTasks, Segment
from unit.fake_daemon import FakeDaemon, a_node, a_task
from unit.hetctl.typed_commands import document, text

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def a_moved_task() -> Any:
    """1 s in the queue, 2 s on the CPU, 0.5 s to move, 4 s on the GPU."""
    on_gpu = Segment(
        "gpu0",
        1003.5,
        1007.5,
        seconds=3.0,
        transfer_in=0.25,
        transfer_out=0.125,
        set_up=0.5,
        joules=40.0,
        measured=True,
    )
    on_cpu = Segment(
        "cpu", 1001.0, 1003.0, seconds=1.75, stop_ordered=1002.5, joules=10.0
    )
    return a_task(
        7,
        state="completed",
        resource="gpu0",
        submitted=1000.0,
        started=1001.0,
        finished=1007.5,
        migrations=1,
        segments=[on_cpu, on_gpu],
    )


def a_short_task(number: int = 8, **fields: Any) -> Any:
    known: dict[str, Any] = {
        "app": "markov",
        "type": "markov/9",
        "state": "failed",
        "resource": "cpu",
        "submitted": 1002.0,
        "started": 1002.0,
        "finished": 1010.0,
        "segments": [Segment("cpu", 1002.0, 1010.0)],
    }
    return a_task(number, **(known | fields))


# ---------------------------------------------------------------- the sums


def test_each_second_of_a_slot_is_counted_once() -> None:
    found = account([a_moved_task(), a_short_task()], a_node(), now=9999.0)

    cpu, gpu = found.resources
    assert (found.makespan, found.begin, found.end) == (10.0, 1000.0, 1010.0)
    # two slots for 10 s; the failed task's worker reported nothing of its 8 s
    assert cpu.split == Split(1.75, 0.0, 0.0, 0.25 + 8.0, 10.0, 0.5)
    assert gpu.split == Split(3.0, 0.375, 0.5, 0.125, 6.0)
    assert (cpu.busy, gpu.busy) == (0.5, 0.4)


def test_tasks_wait_where_they_are_on_no_resource() -> None:
    found = account([a_moved_task(), a_short_task()], a_node(), now=9999.0)

    assert [(each.waited, each.ran) for each in found.tasks] == [(1.5, 6.0), (0.0, 8.0)]
    assert [each.places for each in found.tasks] == [
        [("cpu", False), ("gpu0", False)],
        [("cpu", False)],
    ]


def test_energy_is_modelled_when_any_part_is() -> None:
    found = account([a_moved_task(), a_short_task()], a_node(), now=9999.0)

    cpu, gpu = (each.energy for each in found.resources)
    assert (cpu.joules, cpu.source, cpu.missing) == (10.0, "modelled", 1)
    assert (gpu.joules, gpu.source, gpu.missing) == (40.0, "measured", 0)
    assert (found.energy.joules, found.energy.source) == (50.0, "modelled")
    of_failed = found.tasks[1].energy
    assert (of_failed.joules, of_failed.source, of_failed.missing) == (None, None, 1)


def test_an_overlap_in_a_hand_over_takes_no_idle_time() -> None:
    segments = [Segment("gpu0", 0.0, 4.0), Segment("gpu0", 3.0, 6.0)]
    tasks = [
        a_task(number, state="completed", finished=finished, segments=[segment])
        for number, finished, segment in zip((1, 2), (4.0, 10.0), segments, strict=True)
    ]

    gpu = account(tasks, a_node(), now=9999.0).resources[1]

    assert (gpu.split.idle, gpu.busy) == (4.0, 0.6)


def test_a_failed_attempt_is_neither_busy_nor_idle_nor_energy() -> None:
    failed = Segment("gpu0", 1000.0, 1002.0, error="does not compile", joules=99.0)
    done = Segment("cpu", 1002.0, 1008.0, seconds=6.0, strips=3, joules=12.0)
    task = a_task(
        1,
        state="completed",
        submitted=1000.0,
        finished=1010.0,
        segments=[failed, done],
    )

    found = account([task], a_node(), now=9999.0)

    gpu = found.resources[1]
    assert gpu.split == Split(0.0, 0.0, 0.0, 0.0, idle=8.0, failed=2.0)
    assert (gpu.busy, gpu.energy.joules, gpu.energy.missing) == (0.0, None, 0)
    (one,) = found.tasks
    assert (one.ran, one.failed, one.waited) == (6.0, 2.0, 2.0)
    assert (one.energy.joules, found.energy.joules) == (12.0, 12.0)
    assert one.places == [("gpu0", True), ("cpu", False)]


def test_a_segment_that_computed_before_it_failed_counts() -> None:
    lost = Segment("gpu0", 0.0, 4.0, seconds=3.0, strips=7, error="killed")
    task = a_task(1, state="failed", finished=4.0, segments=[lost])

    gpu = account([task], a_node(), now=9999.0).resources[1]

    assert (gpu.split.computing, gpu.split.failed, gpu.busy) == (3.0, 0.0, 1.0)


def test_running_tasks_are_counted_until_now() -> None:
    running = a_task(
        1,
        state="running",
        submitted=100.0,
        started=104.0,
        segments=[Segment("gpu0", 104.0)],
    )

    found = account([running, a_task(2, submitted=101.0)], a_node(), now=110.0)

    assert (found.makespan, found.end) == (None, 110.0)
    assert [(each.waited, each.ran) for each in found.tasks] == [(4.0, 6.0), (9.0, 0.0)]
    assert found.resources[1].split == Split(0.0, 0.0, 0.0, 6.0, 4.0)


def test_set_up_begins_with_the_segment() -> None:
    segment = Segment(
        "gpu0", 10.0, 16.0, seconds=3.0, computing=12.0, transfer_in=0.5, set_up=0.25
    )
    task = a_task(
        1, state="completed", submitted=10.0, finished=16.0, segments=[segment]
    )

    gpu = account([task], a_node(), now=9999.0).resources[1]

    assert gpu.split == Split(3.0, 0.5, 1.5, 1.0, 0.0)


def test_nothing_is_idle_on_a_resource_that_is_gone() -> None:
    found = account([a_moved_task()], a_node()[:1], now=9999.0)

    gone = found.resources[1]
    assert (gone.name, gone.slots, gone.busy) == ("gpu0", None, None)
    assert gone.split.idle is None
    assert gone.split.computing == 3.0


# ---------------------------------------------------------------- report


def test_report_mine_prints_the_users_storage_and_limits(
    daemon: FakeDaemon,
) -> None:
    daemon.tasks = {7: a_moved_task()}

    printed = text("report", "--mine", "--no-bound")
    found = document("report", "--mine", "--no-bound")

    assert all(each.mine for each in daemon.requests(ListTasks))
    rows = [" ".join(line.split()) for line in printed.splitlines()]
    assert "records of unfinished tasks 2.9 KiB 256.0 MiB" in rows
    assert "all stored data 4.4 KiB 2.0 GiB" in rows
    assert "±1000" in printed
    assert found["usage"]["unended_bytes"] == 3000
    assert found["usage"]["unended_tasks_limit"] is None


def test_report_as_json(daemon: FakeDaemon) -> None:
    daemon.tasks = {7: a_moved_task(), 8: a_short_task()}

    found = document("report")

    assert (found["format"], found["makespan_s"]) == ("hetctl/report-1", 10.0)
    assert (found["begin"], found["end"]) == (
        "1970-01-01T00:16:40.000Z",
        "1970-01-01T00:16:50.000Z",
    )
    assert (found["joules"], found["energy_source"]) == (50.0, "modelled")
    assert found["resources"][1] == {
        "name": "gpu0",
        "emulated": True,
        "slots": 1,
        "computing_s": 3.0,
        "wasted_s": 0.0,
        "transferring_s": 0.375,
        "set_up_s": 0.5,
        "checkpoint_wait_s": 0.0,
        "other_s": 0.125,
        "failed_s": 0.0,
        "idle_s": 6.0,
        "busy": 0.4,
        "joules": 40.0,
        "energy_source": "measured",
        "energy_missing": 0,
    }
    assert [(each["id"], each["waited_s"]) for each in found["tasks"]] == [
        (7, 1.5),
        (8, 0.0),
    ]


def test_report_as_tables(daemon: FakeDaemon) -> None:
    daemon.tasks = {7: a_moved_task(), 8: a_short_task()}

    summary, _, heading, cpu, gpu, *_, seventh, eighth = text("report").splitlines()

    assert summary == (
        "2 tasks, 1 completed, 1 failed, makespan 10.0 s, 1 migration, "
        "energy at least 50 J (modelled)"
    )
    assert heading.split()[:4] == ["RESOURCE", "SLOTS", "COMPUTING", "WASTED"]
    assert cpu.endswith("10.0 s  50 %  at least 10 J (modelled)")
    assert gpu.startswith("gpu0 (emulated)  1")
    assert seventh.split()[:3] == ["7", "heat/64", "completed"]
    assert eighth.endswith("-")


def test_report_of_some(daemon: FakeDaemon) -> None:
    daemon.tasks = {7: a_moved_task(), 8: a_short_task()}

    assert document("report", "7")["makespan_s"] == 7.5


def test_report_of_nothing(daemon: FakeDaemon) -> None:
    assert text("report", status=4) == ""


# ---------------------------------------------------------------- history


def test_history_as_json(daemon: FakeDaemon) -> None:
    daemon.tasks = {7: a_moved_task(), 9: a_task(9, state="running")}

    found = document("history")

    assert found["format"] == "hetctl/history-1"
    (only,) = found["tasks"]
    assert (only["id"], only["app"], only["state"]) == (7, "heat", "completed")
    assert only["resources"] == [
        {"resource": "cpu", "emulated": False, "failed": False},
        {"resource": "gpu0", "emulated": True, "failed": False},
    ]
    assert (only["waited_s"], only["ran_s"], only["migrations"]) == (1.5, 6.0, 1)
    assert (only["joules"], only["energy_source"]) == (50.0, "modelled")
    assert only["started"] == "1970-01-01T00:16:41.000Z"


@pytest.mark.usefixtures("in_utc")
def test_history_as_a_table(daemon: FakeDaemon) -> None:
    never = a_task(9, state="cancelled", submitted=990.0, finished=991.0)
    daemon.tasks = {7: a_moved_task(), 9: never}

    heading, first, second = text("history").splitlines()

    assert heading.split()[:5] == ["ID", "NAME", "APP", "TYPE", "STATE"]
    assert "cpu → gpu0 (emulated)  1970-01-01 00:16:41  1.5 s" in first
    assert first.endswith("50 J (modelled)")
    cells = " ".join(second.split())
    assert cells == "9 - heat heat/64 cancelled - - 1.0 s 0 ms 0 -"


def test_history_lists_the_newest_ended_tasks(daemon: FakeDaemon) -> None:
    daemon.tasks = {
        1: a_short_task(1, finished=1050.0),
        2: a_short_task(2, finished=1020.0),
        3: a_short_task(3, finished=1030.0),
    }

    found = document("history", "--limit", "2")["tasks"]

    assert [each["id"] for each in found] == [1, 3]
    detailed = [each.ids for each in daemon.requests(ListTasks) if each.detail]
    assert detailed == [[3, 1]]


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--app", "markov"], [8]),
        (["--state", "completed"], [7]),
        (["--state", "completed", "--state", "failed"], [8, 7]),
        (["--since", "1970-01-01T00:16:48Z"], [8]),
        (["--since", "1h"], []),
        (["7"], [7]),
    ],
)
def test_history_of_some(daemon: FakeDaemon, words: list[str], ids: list[int]) -> None:
    daemon.tasks = {7: a_moved_task(), 8: a_short_task()}

    found = document("history", *words)["tasks"]

    assert [each["id"] for each in found] == ids


@pytest.mark.usefixtures("in_utc")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("90s", 172710.0),
        ("2h", 165600.0),
        ("1970-01-02", 86400.0),
        ("1970-01-02T03:04", 97440.0),
        ("1970-01-02T03:04+01:00", 93840.0),
        ("03:04", 183840.0),
        ("3:04:05", 183845.0),
    ],
)
def test_moments(words: str, expected: float) -> None:
    assert moment(words, 172800.0) == expected


def test_a_moment_that_is_none(daemon: FakeDaemon) -> None:
    result = CliRunner().invoke(main, ["history", "--since", "soon"])

    assert result.exit_code == 2
    assert "expected a time such as 2026-01-02T03:04" in result.stderr


def test_history_of_a_user_and_of_a_resource(daemon: FakeDaemon) -> None:
    daemon.tasks = {
        7: a_moved_task(),
        8: a_short_task(owner="uid:77"),
        9: a_short_task(9),
    }

    def found(*words: str) -> list[int]:
        return [task["id"] for task in document("history", *words)["tasks"]]

    assert found("--user", "77") == [8]
    assert found("--user", "root", "--user", "77") == [9, 8, 7]
    assert found("--on", "gpu0") == [7]
    assert found("--on", "cpu", "--user", "0") == [9, 7]
    assert CliRunner().invoke(main, ["history", "--on", "gpu1"]).exit_code == 4
    assert CliRunner().invoke(main, ["history", "--user", "no one"]).exit_code == 2


@pytest.mark.parametrize(("least", "told"), [(5.0, 5.0), (7.5, 7.5), (7.6, None)])
def test_a_bound_that_was_beaten_is_left_out(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, least: float, told: float
) -> None:
    daemon.tasks[7] = a_moved_task()
    monkeypatch.setattr("hetctl.commands.history.lower_bound", lambda *_: least)

    report = document("report")

    assert (report["makespan_s"], report["lower_bound_s"]) == (7.5, told)
