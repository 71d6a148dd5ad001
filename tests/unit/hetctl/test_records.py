"""Output from records of tasks: events, logs, charts, scenarios, traces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hetctl.export.chart import INK
from hetctl.export.contention import NodeContention
from hetctl.export.lanes import laid_out, moves
from libtask.messages import LastOutput, ResultInput, Segment
from unit.fake_daemon import FakeDaemon, a_node, a_task
from unit.hetctl.recorded_tasks import a_moved_task
from unit.hetctl.typed_commands import complaint, document, text

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
    assert text("logs", "1", status=4) == "hello\n"


def test_lanes_hold_no_two_at_once() -> None:
    tasks = [
        a_task(number, segments=[Segment("cpu", start, start + 2.0)])
        for number, start in enumerate((0.0, 1.0, 2.0, 2.5), 1)
    ]

    lanes, bars = laid_out(tasks, a_node(), now=9.0)

    assert [lane.label for lane in lanes] == [
        "cpu #1",
        "cpu #2",
        "cpu #3",
        "gpu0\n(emulated)",
    ]
    assert [each.lane for each in bars] == [0, 1, 0, 2]


def test_moves_are_changes_of_resource() -> None:
    segments = [
        Segment("cpu", 0.0, 1.0),
        Segment("cpu", 2.0, 3.0),
        Segment("gpu0", 4.0, None, strips=1),
    ]

    _, bars = laid_out([a_task(1, segments=segments)], a_node(), now=9.0)

    ((before, after),) = moves(bars)
    assert (before.segment, after.segment) == (segments[1], segments[2])
    assert after.finish == 9.0


def a_task_that_failed_elsewhere() -> Any:
    """Two failed attempts and one segment that did not fail."""
    failed = [
        Segment("gpu0", at, at + 0.5, error="gpu0: a.cl does not compile")
        for at in (1000.5, 1001.5)
    ]
    done = Segment("cpu", 1002.0, 1004.0, seconds=1.9, strips=4)
    return a_task(
        7,
        state="completed",
        resource="cpu",
        kinds=["cpu", "gpu"],
        submitted=1000.0,
        started=1000.5,
        finished=1004.0,
        segments=[*failed, done],
    )


def test_failed_attempts_are_no_moves_and_have_a_mark(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    daemon.tasks = {7: a_task_that_failed_elsewhere()}
    path = tmp_path / "g.svg"

    document("gantt", "-o", str(path))

    drawn = path.read_text()
    assert "1 task, 0 migrations, 3.5 s" in drawn
    assert ">failed attempt<" in drawn
    daemon.tasks = {7: a_moved_task()}
    document("gantt", "-o", str(path))
    assert "failed attempt" not in path.read_text()


def test_failed_attempts_appear_in_events_history_show_and_trace(
    daemon: FakeDaemon,
) -> None:
    daemon.tasks = {7: a_task_that_failed_elsewhere()}

    lines = [json.loads(line) for line in text("events", "--json").splitlines()]
    assert [(line["what"], line["reason"]) for line in lines[1:3]] == [
        ("started", None),
        ("retried", "gpu0: a.cl does not compile"),
    ]
    assert "gpu0 (emulated) (failed) → cpu" in text("history")
    assert "failed attempt: gpu0: a.cl does not compile" in text("show", "7")
    events = document("trace", "--format", "chrome")["traceEvents"]
    names = [each["name"] for each in events if each["ph"] == "X"]
    assert sum("failed attempt" in name for name in names) == 2
    assert not [each for each in events if each["ph"] == "s"]
    assert not [each for each in events if each["name"] == "running on gpu0"]


def test_failed_attempts_are_no_part_of_a_scenario(daemon: FakeDaemon) -> None:
    daemon.tasks = {7: a_task_that_failed_elsewhere()}

    (task,) = document("trace")["tasks"]

    assert task["actual_seconds"] == {"cpu": 2.0}


def test_the_last_output_is_shown(daemon: FakeDaemon, tmp_path: Path) -> None:
    log = tmp_path / "w.log"
    log.write_text("of another\nno driver\n")
    last = LastOutput(
        1,
        1,
        "killed by signal 6 (SIGABRT) in `load()`: no driver",
        "in `load()`",
        ["\x1b[2J no driver"],
        log=str(log),
        log_start=11,
        log_end=21,
    )
    daemon.tasks = {7: a_task(7, state="failed", last_output=last)}

    shown = text("show", "7")

    assert "last output in `load()`:\n              \\x1b[2J no driver\n" in shown
    # it failed before it ran anywhere: no segment has its log
    assert text("logs", "7") == "no driver\n"
    assert document("show", "7")["last_output"]["lines"] == ["\x1b[2J no driver"]


def test_a_worker_that_printed_nothing_has_no_last_output(daemon: FakeDaemon) -> None:
    last = LastOutput(1, 1, "killed by signal 9 (SIGKILL)", "in its first strip", [])
    daemon.tasks = {7: a_task(7, state="completed", last_output=last)}

    assert "last output" not in text("show", "7")


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
        # what is drawn later covers what was drawn before: labels cover arrows
        arrow, label = drawn.index(f"stroke: {INK}"), drawn.rindex(">7</text>")
        assert arrow < label


def test_scenario_of_past_tasks(daemon: FakeDaemon, tmp_path: Path) -> None:
    from hetsim.scenario import read_scenario

    whole = [Segment("gpu0", 1005.0, 1007.0, strips=5, computing=1005.5)]
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

    assert text("trace", "-o", str(path)) == f"{path}: 2 of 3 tasks written\n"

    scenario = read_scenario(path)
    (kind,) = scenario.types
    assert kind.seconds == {"cpu": 1.5, "gpu0": 2.0}
    assert (kind.strips, kind.migration_s) == (40, 0.25)
    moved, unmoved = scenario.tasks
    assert (moved.id, moved.arrival) == ("7", 0.0)
    # it took 1.5 s of 1.5 expected there, then 1.65 s after its copy of 2
    assert moved.actual_seconds == pytest.approx({"cpu": 2.7375, "gpu0": 3.65})
    assert (unmoved.arrival, unmoved.after, unmoved.actual_seconds) == (
        1.0,
        ["7"],
        {"gpu0": 1.5},
    )
    assert (moved.set_up_s, unmoved.set_up_s) == (0.0, 0.5)
    assert scenario.measured_makespan == 7.0
    assert scenario.policy == "migration"


def test_scenario_separates_tasks_with_different_times(
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


def test_scenario_with_what_the_node_shares(daemon: FakeDaemon, tmp_path: Path) -> None:
    """Two tasks that ran one after the other would slow each other down side by side."""
    from hetsim.scenario import read_scenario
    from hetsim.simulate import simulate

    times = [{"cpu": 4.0}, {"cpu": 2.0}]
    fields: dict[str, Any] = {"submitted": 1000.0, "kinds": ["cpu"]}
    daemon.tasks = {
        number: a_task(number, expected=times[number % 2], **fields)
        for number in (2, 4)
    }
    reads = [ResultInput(2, 1000)]
    daemon.tasks[5] = a_task(5, expected=times[1], after=[2, 4], inputs=reads, **fields)
    daemon.tasks[6] = a_task(6, expected=times[0], job="two steps", **fields)
    path = tmp_path / "scenario.json"

    text("trace", "--contention", "-o", str(path))

    scenario = read_scenario(path)
    assert scenario.shared[0].name == "cores"
    assert scenario.resources[0].uses == {"cores": "cores"}
    first, second = scenario.types
    assert (second.name, second.load) == ("heat/64 #2", {"cpu": {"cores": 0.8}})
    assert (first.output_bytes, second.output_bytes) == (1000, 0)
    two, four, five, six = scenario.tasks
    assert (two.actual_seconds, two.job, four.job) == (None, "job of 2", "job of 2")
    assert [(each.source, each.bytes) for each in five.inputs or []] == [("2", 1000)]
    assert (five.job, six.job) == ("job of 2", "two steps")
    # four seconds alone, with a load of 0.8 each on the cores
    ran = simulate(scenario, "affinity").tasks
    assert ran[0].finish == pytest.approx(4.0 * 1.6)


def test_contention_is_for_scenarios_of_nodes_that_declare_it(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = complaint("trace", "--format", "chrome", "--contention")
    assert "not for --format chrome" in told

    monkeypatch.setattr(
        "hetctl.export.contention.contention_of", lambda *_: NodeContention([], [])
    )
    assert "nothing is declared to be shared" in complaint("trace", "--contention")


def test_chrome_trace(daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.tasks[7] = a_moved_task()
    path = tmp_path / "trace.json"

    assert text("trace", "--format", "chrome", "-o", str(path)) == (
        f"{path}: 1 task written\n"
    )
    assert text("trace", "-o", str(path), "--json") == ""

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
