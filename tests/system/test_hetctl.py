"""`hetctl` against the real daemon, as processes: what a user types and sees."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from typing import IO, TYPE_CHECKING

import pytest

from hetapps.synthetic import Synthetic
from system.private_daemon import PATIENCE, PrivateDaemon, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from system.terminal import Terminal


def test_a_task_from_submit_to_its_logs(
    hetctl: Terminal, daemon: PrivateDaemon, printer: tuple[str, ...], tmp_path: Path
) -> None:
    (task,) = hetctl.json(*printer, "--word", "good day", "--on", "cpu,gpu0")["ids"]
    start = daemon.await_state(task, "running").resource
    other = "gpu0" if start == "cpu" else "cpu"

    hetctl("migrate", str(task), "--to", other)
    eventually(lambda: daemon.info(task).resource == other, "the move")
    daemon.await_state(task, "running")
    assert hetctl("wait", "last", "--timeout", "10ms", status=124) == ""
    (tmp_path / "gate").touch()
    said = hetctl("wait", str(task))
    assert said.startswith(f'task {task} completed on {other}: {{"strips":')

    shown = hetctl.json("show", "last")
    assert (shown["id"], shown["state"], shown["migrations"]) == (task, "completed", 1)
    assert shown["result"]["strips"] > 0
    assert [each["resource"] for each in shown["segments"]] == [start, other]
    assert hetctl("logs", str(task)) == f"good day on {start}\ngood day on {other}\n"


def test_logs_follow_a_task_while_it_runs(
    hetctl: Terminal, printer: tuple[str, ...], tmp_path: Path
) -> None:
    (task,) = hetctl.json(*printer, "--on", "cpu")["ids"]

    with hetctl.opened("logs", "--follow", str(task)) as follower:
        assert follower.stdout is not None
        readable, _, _ = select.select([follower.stdout], [], [], PATIENCE)
        assert readable, "nothing came while the task ran"
        assert follower.stdout.readline() == "hello on cpu\n"
        (tmp_path / "gate").touch()
        assert follower.stdout.read() == ""
    assert follower.returncode == 0


def test_picture_scenario_and_trace_of_a_move(
    hetctl: Terminal, daemon: PrivateDaemon, printer: tuple[str, ...], tmp_path: Path
) -> None:
    (task,) = hetctl.json(*printer, "--on", "cpu,gpu0")["ids"]
    daemon.await_state(task, "running")
    other = "gpu0" if daemon.info(task).resource == "cpu" else "cpu"
    daemon.client.migrate(task, other)
    eventually(lambda: daemon.info(task).migrations == 1, "the move")
    (tmp_path / "gate").touch()
    hetctl("wait", str(task))
    picture = tmp_path / "g.svg"

    hetctl("gantt", str(task), "-o", str(picture))

    assert "1 task, 1 migration" in picture.read_text()
    trace = hetctl.json("trace", str(task), "--format", "chrome")
    assert [each.get("cat") for each in trace["traceEvents"]].count("task") == 2


def test_unmoved_tasks_replay_in_the_simulator(
    hetctl: Terminal, tmp_path: Path
) -> None:
    scenario = tmp_path / "scenario.json"
    words = (
        "submit",
        "synthetic",
        "--seconds",
        '{"cpu": 0.05}',
        "--count",
        "3",
        "--wait",
    )
    hetctl(*words)

    hetctl("trace", "last", "-o", str(scenario))

    command = [
        sys.executable,
        "-m",
        "hetsim",
        "run",
        str(scenario),
        "--policy",
        "affinity",
    ]
    done = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["counts"]["completed"] == 1


def test_the_daemons_refusals_of_a_batch_have_their_places(
    hetctl: Terminal, daemon: PrivateDaemon, tmp_path: Path
) -> None:
    path = tmp_path / "b.toml"
    path.write_text(TOO_LARGE)
    before = len(daemon.client.tasks())

    for further in ((), ("--check",)):
        refused = hetctl.completed("batch", str(path), *further)
        lines = refused.stderr.splitlines()
        cores, memory, more = (line.removeprefix("hetctl: ") for line in lines)

        assert refused.returncode == 2
        assert cores.startswith(f"{path}: task[1]: synthetic needs 100000 cores; this")
        assert memory.startswith(f"{path}: task[2]: command needs 900,000 GiB of mem")
        assert more.startswith(f"{path}: task[3]: synthetic needs 100000 cores; this")
    assert len(daemon.client.tasks()) == before


TOO_LARGE = """
    [[task]]
    app = "synthetic"
    name = "first"
    params = { seconds = { cpu = 0.0 } }

    [[task]]
    app = "synthetic"
    after = ["first"]
    params = { seconds = { cpu = 0.0 } }
    cores = 100_000

    [[task]]
    command = ["true"]
    memory = "900000GiB"

    [[task]]
    app = "synthetic"
    params = { seconds = { cpu = 1.0 } }
    cores = 100_000
"""


def test_batch_with_dependencies(hetctl: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "batch.toml"
    path.write_text("""
        [[task]]
        app = "synthetic"
        name = "first"
        params = { seconds = { cpu = 0.02 }, strips = 2 }
        count = 2
        [[task]]
        app = "synthetic"
        params = { seconds = { gpu0 = 0.02 }, strips = 2 }
        after = ["first"]
    """)

    tasks = hetctl.json("batch", str(path), "--wait")["tasks"]

    first, second, third = tasks
    assert [task["state"] for task in tasks] == ["completed"] * 3
    assert third["started"] >= max(first["finished"], second["finished"])


PRINTING = pytest.mark.parametrize("words", [["devices"], ["daemon", "logs"]])


@PRINTING
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_line(
    hetctl: Terminal, monkeypatch: pytest.MonkeyPatch, words: list[str], unbuffered: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)

    done = hetctl.anew().redirected("> /dev/full", *words)

    expected = "hetctl: cannot write standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, expected)


@PRINTING
def test_a_command_without_standard_output_prints_nothing(
    hetctl: Terminal, words: list[str]
) -> None:
    done = hetctl.redirected(">&-", *words)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["devices"], ["daemon", "logs"], ["--help"]])
def test_a_broken_pipe_ends_a_command_as_in_a_shell(
    hetctl: Terminal, words: list[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)

    with hetctl.opened(*words, stdout=writer, stderr=subprocess.PIPE) as run:
        os.close(writer)
        _, printed = run.communicate(timeout=PATIENCE)

    assert (run.returncode, printed) == (141, "")


def test_failures_and_cancellations_tell_by_the_status(
    hetctl: Terminal, printer: tuple[str, ...]
) -> None:
    failing = (
        "submit",
        "synthetic",
        "--seconds",
        '{"cpu": 0.02}',
        "--fail-at",
        "1",
        "--wait",
    )
    assert "failed on cpu: RuntimeError" in hetctl(*failing, status=10)

    (task,) = hetctl.json(*printer, "--hold")["ids"]
    assert hetctl.json("show", str(task))["state"] == "held"
    assert hetctl("cancel", str(task)) == f"task {task} cancelled\n"
    assert "cancelled" in hetctl("wait", str(task), status=11)


def test_events_follow_to_the_end(
    hetctl: Terminal, daemon: PrivateDaemon, printer: tuple[str, ...], tmp_path: Path
) -> None:
    (task,) = hetctl.json(*printer, "--hold")["ids"]
    follower = hetctl.opened("events", "-f", str(task), "--json")
    pipe = follower.stdout
    assert pipe is not None
    with follower:
        # it listens from some moment on: hold and release until it has heard of one
        eventually(lambda: _nudged(hetctl, task, pipe), "an event")
        (tmp_path / "gate").touch()
        hetctl("release", str(task))
        daemon.await_state(task, "completed")
        last = pipe.read().splitlines()[-1]
    assert (json.loads(last)["id"], json.loads(last)["state"]) == (task, "completed")


def test_events_of_a_followed_task_begin_with_its_submission(
    hetctl: Terminal,
) -> None:
    (task,) = hetctl.json("submit", "synthetic", "--seconds", '{"cpu": 0}')["ids"]
    hetctl("wait", str(task))

    told = hetctl("events", "-f", str(task), "--json").splitlines()

    assert [json.loads(line)["what"] for line in told] == [
        "submitted",
        "started",
        "ended",
    ]


def _nudged(hetctl: Terminal, task: int, pipe: IO[str]) -> bool:
    hetctl("release", str(task))
    hetctl("hold", str(task))
    return bool(select.select([pipe], [], [], 0.1)[0])


def test_bad_requests_leave_the_daemon_unharmed(
    hetctl: Terminal, daemon: PrivateDaemon
) -> None:
    seconds = ("--seconds", '{"cpu": 0.02}')
    for words, status, said in (
        (("submit", "synthetic", *seconds, "--on", "gpu7"), 4, "gpu7"),
        (("submit", "synthetic", *seconds, "--on", "gpu0"), 2, "cannot run on gpu0"),
        (("submit", "synthetic", *seconds, "--after", "999999"), 4, "999999"),
        (("migrate", "999999", "--to", "cpu"), 4, "999999"),
        (("policy", "set", "nice"), 4, "nice"),
        (("policy", "set", "affinity", "--set", "x=1"), 2, "x"),
        (("drain", "gpu7"), 4, "gpu7"),
    ):
        done = hetctl.completed(*words)
        assert (done.returncode, done.stderr.count("\n")) == (status, 1), done.stderr
        assert said in done.stderr

    assert daemon.is_up()
    assert hetctl.json("daemon", "status")["pid"] == daemon.pid


def test_drain_and_resume(hetctl: Terminal) -> None:
    hetctl("drain", "gpu0")
    states = {each["name"]: each["state"] for each in hetctl.json("devices")["devices"]}
    assert states == {"cpu": "up", "gpu0": "draining", "fpga0": "up"}

    hetctl("resume", "gpu0")
    states = {each["name"]: each["state"] for each in hetctl.json("devices")["devices"]}
    assert states["gpu0"] == "up"


def test_drain_and_resume_take_several_resources(hetctl: Terminal) -> None:
    refused = hetctl.completed("drain", "gpu0", "gpu7", "fpga0")
    assert (refused.returncode, refused.stdout) == (4, "gpu0 is draining\n")
    assert "gpu7" in refused.stderr

    drained = hetctl.json("drain", "gpu0", "fpga0")
    assert (drained["name"], drained["names"]) == ("gpu0", ["gpu0", "fpga0"])
    states = {line.split()[0]: line for line in hetctl("devices").splitlines()}
    assert "drained" in states["gpu0"]
    assert "drained" in states["fpga0"]
    assert "drained" not in states["cpu"]

    assert hetctl("resume", "gpu0", "fpga0") == "gpu0 is up\nfpga0 is up\n"


def test_a_drained_resource_with_a_task_is_draining(
    hetctl: Terminal, daemon: PrivateDaemon
) -> None:
    task = daemon.client.submit(Synthetic({"gpu": 600.0}, 1))  # it has no checkpoint
    daemon.await_state(task.id, "running")
    hetctl("drain", "gpu0")
    (line,) = (
        each for each in hetctl("devices").splitlines() if each.startswith("gpu0 ")
    )
    assert "draining" in line

    hetctl("resume", "gpu0")
    task.cancel()
