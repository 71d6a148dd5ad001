"""What `hetctl` makes of the records of tasks: events, logs, pictures, scenarios, traces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hetctl.lanes import laid_out
from hetctl.moves import moves
from libtask.messages import Segment
from unit.fake_daemon import FakeDaemon, a_node, a_task
from unit.hetctl.recorded_tasks import a_moved_task
from unit.hetctl.typed_commands import document, text

if TYPE_CHECKING:
    from pathlib import Path


def test_events_from_the_record(daemon: FakeDaemon) -> None:
    daemon.tasks[7] = a_moved_task()

    lines = [json.loads(line) for line in text("events", "--json").splitlines()]

    assert [(line["what"], line["resource"]) for line in lines] == [
        ("submitted", None),
        ("started", "cpu"),
        ("yielded", "cpu"),
        ("continued", "gpu0"),
        ("ended", "gpu0"),
    ]


def test_logs_of_a_task_that_moved(daemon: FakeDaemon, tmp_path: Path) -> None:
    first, second = tmp_path / "1.log", tmp_path / "2.log"
    first.write_text("not ours\nhello\nnot ours either\n")
    second.write_text("world\n")
    segments = [
        Segment("cpu", 1.0, 2.0, log=str(first), log_start=9, log_end=15),
        Segment("gpu0", 2.0, 3.0, log=str(second), log_start=0, log_end=6),
    ]
    daemon.tasks[1] = a_task(1, state="completed", segments=segments)

    assert text("logs", "1") == "hello\nworld\n"
    assert text("logs", "-f", "last") == "hello\nworld\n"
    second.unlink()
    assert text("logs", "1", status=2) == "hello\n"


def test_lanes_hold_no_two_at_once() -> None:
    tasks = [
        a_task(number, segments=[Segment("cpu", start, start + 2.0)])
        for number, start in enumerate((0.0, 1.0, 2.0, 2.5), 1)
    ]

    lanes, stretches = laid_out(tasks, a_node(), now=9.0)

    assert [lane.label for lane in lanes] == [
        "cpu #1",
        "cpu #2",
        "cpu #3",
        "gpu0\n(emulated)",
    ]
    assert [each.lane for each in stretches] == [0, 1, 0, 2]


def test_moves_are_changes_of_resource() -> None:
    segments = [
        Segment("cpu", 0.0, 1.0),
        Segment("cpu", 2.0, 3.0),
        Segment("gpu0", 4.0, None),
    ]

    _, stretches = laid_out([a_task(1, segments=segments)], a_node(), now=9.0)

    ((before, after),) = moves(stretches)
    assert (before.segment, after.segment) == (segments[1], segments[2])
    assert after.finish == 9.0


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_gantt(daemon: FakeDaemon, tmp_path: Path, suffix: str, magic: bytes) -> None:
    daemon.tasks = {7: a_moved_task(), 8: a_task(8)}
    path = tmp_path / f"g.{suffix}"

    assert document("gantt", "-o", str(path))["tasks"] == [7]
    assert path.read_bytes().startswith(magic)
    if suffix == "svg":
        drawn = path.read_text()
        assert "(emulated)" in drawn
        assert "1 task, 1 migration, 3.5 s" in drawn


def test_scenario_of_what_ran(daemon: FakeDaemon, tmp_path: Path) -> None:
    from hetsim.scenario import read_scenario

    whole = [Segment("gpu0", 1005.0, 1007.0, strips=5)]
    daemon.tasks = {
        7: a_moved_task(),
        8: a_task(
            8,
            state="completed",
            kinds=["gpu"],
            submitted=1001.0,
            segments=whole,
            after=[7],
        ),
        9: a_task(9, type="odd/1", kinds=["cpu"], state="cancelled"),
    }
    path = tmp_path / "scenario.json"

    text("trace", "-o", str(path))

    scenario = read_scenario(path)
    (kind,) = scenario.types
    assert kind.seconds == {"cpu": 1.5, "gpu0": 2.0}
    assert (kind.strips, kind.migration_s) == (40, 0.25)
    moved, unmoved = scenario.tasks
    assert (moved.id, moved.arrival) == ("7", 0.0)
    # it took 1.5 s of 1.5 expected there, then 1.75 s of 2: 1.875 times as long
    assert moved.actual_seconds == {"cpu": 1.5 * 1.875, "gpu0": 2.0 * 1.875}
    assert (unmoved.arrival, unmoved.after, unmoved.actual_seconds) == (
        1.0,
        ["7"],
        {"gpu0": 2.0},
    )
    assert scenario.measured_makespan == 7.0
    assert scenario.policy == "migration"


def test_scenario_tells_apart_what_takes_different_times(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    from hetsim.scenario import read_scenario

    times = [{"cpu": 3.0, "gpu0": 1.0}, {"cpu": 30.0, "gpu0": 10.0}, {"gpu0": 1.0}]
    daemon.tasks = {
        number: a_task(number, submitted=1000.0, kinds=["cpu", "gpu"], expected=each)
        for number, each in enumerate([*times, times[0]])
    }
    path = tmp_path / "scenario.json"

    text("trace", "-o", str(path))

    scenario = read_scenario(path)
    assert [task.type for task in scenario.tasks] == [
        "heat/64",
        "heat/64 #2",
        "heat/64 #3",
        "heat/64",
    ]
    assert [kind.seconds for kind in scenario.types] == [
        *times[:2],
        {"cpu": None, "gpu0": 1.0},
    ]
    assert scenario.measured_makespan is None


def test_chrome_trace(daemon: FakeDaemon) -> None:
    daemon.tasks[7] = a_moved_task()

    events = document("trace", "--format", "chrome")["traceEvents"]

    bars = [(each["ts"], each["dur"]) for each in events if each["ph"] == "X"]
    assert bars == [(500_000.0, 1_500_000.0), (2_250_000.0, 1_750_000.0)]
    arrow = [
        (each["ph"], round(each["ts"]))
        for each in events
        if each["name"] == "migration"
    ]
    assert arrow == [("s", 1_999_999), ("f", 2_250_000)]
    waiting = [e for e in events if e["name"] == "waiting for gpu0"]
    assert [(e["ts"], e["args"]["tasks"]) for e in waiting] == [
        (2_000_000.0, 1),
        (2_250_000.0, 0),
    ]
