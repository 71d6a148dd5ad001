"""What `hetctl` prints: the fixed JSON forms, tables, exit statuses of waits."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from hetctl.__main__ import main
from hetctl.lanes import laid_out
from hetctl.moves import moves
from hetctl.output import iso
from libtask.messages import Control, ListTasks, Segment, Submit, Submitted
from unit.fake_daemon import FakeDaemon, a_change, a_node, a_task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from libtask.messages import Message

SYNTHETIC = ("submit", "synthetic", "--seconds", '{"cpu": 1}')


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "s")
    monkeypatch.setenv("HETD_SOCKET", str(fake.path))
    yield fake
    fake.close()


def text(*words: str, status: int = 0) -> str:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == status, result.output
    return result.stdout


def document(*words: str, status: int = 0) -> Any:
    return json.loads(text(*words, "--json", status=status))


def a_moved_task() -> Any:
    return a_task(
        7,
        state="completed",
        resource="gpu0",
        progress=1.0,
        submitted=1000.0,
        started=1000.5,
        finished=1004.0,
        migrations=1,
        checkpoint_at=1003.9,
        kinds=["cpu", "gpu"],
        result={"mean": 0.5},
        segments=[
            Segment("cpu", 1000.5, 1002.0, seconds=1.4, strips=10),
            Segment("gpu0", 1002.25, 1004.0, seconds=1.6, strips=30, transfer_in=0.1),
        ],
    )


# ---------------------------------------------------------------- tasks


def test_times_are_utc_with_milliseconds() -> None:
    assert iso(1767323045.678) == "2026-01-02T03:04:05.678Z"
    assert iso(None) is None


def test_task_as_json(daemon: FakeDaemon) -> None:
    daemon.tasks[7] = a_moved_task()

    shown = document("show", "7")

    assert shown["format"] == "hetctl/task-1"
    assert (shown["id"], shown["app"], shown["type"]) == (7, "heat", "heat/64")
    assert (shown["state"], shown["owner"], shown["resource"]) == (
        "completed",
        "uid:0",
        "gpu0",
    )
    assert shown["submitted"] == "1970-01-01T00:16:40.000Z"
    assert (shown["migrations"], shown["emulated"]) == (1, True)
    assert shown["result"] == {"mean": 0.5}
    assert [(s["resource"], s["strips"]) for s in shown["segments"]] == [
        ("cpu", 10),
        ("gpu0", 30),
    ]


def test_list_as_table_and_json(daemon: FakeDaemon) -> None:
    daemon.tasks = {
        3: a_task(3, state="running", resource="gpu0", progress=0.42),
        7: a_moved_task(),
    }

    heading, first, second = text("list").splitlines()

    assert heading.split()[:4] == ["ID", "TYPE", "STATE", "WHERE"]
    assert first.split()[:7] == [
        "3",
        "heat/64",
        "running",
        "gpu0",
        "(emulated)",
        "42",
        "%",
    ]
    assert second.startswith("7 ")
    assert [task["id"] for task in document("ls")["tasks"]] == [3, 7]
    assert [task["id"] for task in document("ps", "--state", "running")["tasks"]] == [3]


def test_not_a_number_becomes_null(daemon: FakeDaemon) -> None:
    daemon.tasks[1] = a_task(
        1, state="completed", result={"mean": float("nan"), "raw": b"ab"}
    )

    assert document("show", "1")["result"] == {"mean": None, "raw": "YWI="}


def test_selectors_reach_the_daemon(daemon: FakeDaemon) -> None:
    daemon.tasks = {number: a_task(number) for number in range(1, 7)}
    daemon.tasks[2] = a_task(2, state="completed")

    assert document("cancel", "all")["ids"] == [1, 3, 4, 5, 6]
    assert document("hold", "5-99,1")["ids"] == [5, 6, 1]
    assert document("release", "last")["ids"] == [6]
    assert [each.verb for each in daemon.requests(Control)] == [
        "cancel",
        "hold",
        "release",
    ]


def test_progress_lists_what_runs(daemon: FakeDaemon) -> None:
    daemon.tasks = {
        1: a_task(1),
        2: a_task(2, state="running", progress=0.5, started=1.0),
    }

    (only,) = document("progress")["tasks"]

    assert (only["id"], only["progress"]) == (2, 0.5)
    assert only["left_s"] == pytest.approx(only["elapsed_s"])
    assert "50 %" in text("progress")


# ---------------------------------------------------------------- submit and wait


def test_submit_sends_options(daemon: FakeDaemon) -> None:
    daemon.tasks[4] = a_task(4)
    words = ("--priority", "3", "--on", "cpu,gpu0", "--on", "fpga0", "--strip", "8")

    ids = document(
        *SYNTHETIC, *words, "--after", "last", "--hold", "--name", "x", "--count", "2"
    )

    spec = daemon.requests(Submit)[0].tasks[1]
    assert ids == {"format": "hetctl/submitted-1", "ids": [5, 6], "name": None}
    assert (spec.app, spec.params["seconds"]) == ("synthetic", {"cpu": 1.0})
    assert (spec.priority, spec.resources, spec.strip) == (
        3,
        ["cpu", "gpu0", "fpga0"],
        8,
    )
    assert (spec.after, spec.hold, spec.name) == ([4], True, "x")


@pytest.mark.parametrize(
    ("states", "status"),
    [
        (["completed", "completed"], 0),
        (["completed", "failed"], 10),
        (["cancelled", "completed"], 11),
        (["dropped", "completed"], 11),
        (["cancelled", "failed"], 10),
        (["completed", "running"], 124),
    ],
)
def test_status_of_a_wait(daemon: FakeDaemon, states: list[str], status: int) -> None:
    daemon.tasks = {
        number: a_task(number, state=each) for number, each in enumerate(states, 1)
    }

    found = document("wait", "1-2", "--timeout", "200ms", status=status)

    assert [task["state"] for task in found["tasks"]] == states


def test_submit_and_wait(daemon: FakeDaemon) -> None:
    def fail(message: Submit) -> list[Message]:
        change = a_change(1, "failed", reason="on fire", resource="cpu")
        return [Submitted(message.request, [1]), change]

    daemon.answers[Submit] = fail

    assert text(*SYNTHETIC, "--wait", status=10).splitlines() == [
        "task 1 submitted",
        "task 1 failed on cpu: on fire",
    ]


def test_batch_refers_to_earlier_tasks(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    path.write_text("""
        [[task]]
        app = "synthetic"
        name = "first"
        params = { seconds = { cpu = 1.0 } }
        count = 2
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1.0 } }
        after = ["first", 99]
        priority = 4
    """)

    assert document("batch", str(path))["ids"] == [1, 2, 3]
    sent = daemon.requests(Submit)[0].tasks
    assert [task.after for task in sent] == [[], [], [-2, -1, 99]]
    assert sent[2].priority == 4
    assert "3 tasks, no mistakes" in text("batch", str(path), "--check")


def test_a_batch_gives_its_tasks_deadlines(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    path.write_text("""
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1.0 } }
        deadline = "1.5min"
        overrun = "stop"
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1.0 } }
        deadline = 0.25
        count = 2
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1.0 } }
    """)

    assert document("batch", str(path))["ids"] == [1, 2, 3, 4]

    sent = daemon.requests(Submit)[0].tasks
    assert [(task.deadline_s, task.overrun) for task in sent] == [
        (90.0, "stop"),
        (0.25, "continue"),
        (0.25, "continue"),
        (None, "continue"),
    ]


# ---------------------------------------------------------------- the node


def test_devices(daemon: FakeDaemon, tmp_path: Path) -> None:
    from tomllib import loads

    path = tmp_path / "hetd.toml"

    found = document("devices", "--write-config", str(path))

    assert [(each["name"], each["emulated"]) for each in found["devices"]] == [
        ("cpu", False),
        ("gpu0", True),
    ]
    assert "gpu0 (emulated)" in text("devices")
    written = loads(path.read_text())["resource"]
    assert written[1]["platform"] == "Portable"
    assert "state" not in written[1]


def test_policy(daemon: FakeDaemon) -> None:
    assert document("policy", "show")["name"] == "migration"
    assert document("policy", "set", "affinity")["name"] == "affinity"
    assert document("policy", "list")["current"] == "migration"
    assert "runs each on its best" in text("policy", "list")


def test_daemon_status(daemon: FakeDaemon) -> None:
    found = document("daemon", "status")

    assert (found["running"], found["pid"], found["version"]) == (True, 42, "9.9")
    assert "gpu0 (emulated)" in text("daemon", "status")


# ---------------------------------------------------------------- what happened


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


def test_completion() -> None:
    assert "_HETCTL_COMPLETE" in text("completion", "bash")


def test_a_status_command_loads_little() -> None:
    script = (
        "import sys; from hetctl.__main__ import main\n"
        "import hetctl.commands.list, hetctl.options, libtask.client.client\n"
        "heavy = {'numpy', 'numba', 'rich', 'matplotlib', 'pyopencl', 'asyncio', 'hetd'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"


def test_listing_asks_once(daemon: FakeDaemon) -> None:
    text("list")

    assert len(daemon.requests(ListTasks)) == 1


def test_a_state_is_found_behind_newer_tasks(daemon: FakeDaemon) -> None:
    daemon.tasks[1] = a_task(1, state="running", resource="cpu")
    daemon.tasks[2] = a_task(2, state="queued")
    daemon.tasks[3] = a_task(3, state="queued")

    found = document("list", "--state", "running", "--limit", "1")

    assert [task["id"] for task in found["tasks"]] == [1]
