"""How workers end, and everything that their tasks started with them."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from libtask.messages import KillWorker, Retire, WorkerExited
from libtask.processes import children_of, descendants_of, is_alive
from unit.libtask.launcher.played_launcher import LAUNCHER, Played

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_kills_as_told(launcher: Played) -> None:
    launcher.start_workers("w1")

    launcher.say(KillWorker(name="nobody", reason="?"))
    launcher.say(KillWorker(name="w1", reason="does not obey"))

    exited = launcher.daemon.expect(WorkerExited)
    assert (exited.name, exited.status) == ("w1", -15)
    assert exited.reason == "killed by signal 15 (SIGTERM): does not obey"


def test_kills_a_deaf_worker_for_certain(launcher: Played) -> None:
    launcher.start_workers("w1")
    launcher.stage("w1", deaf=True)

    launcher.say(KillWorker(name="w1", reason="hangs"))

    assert launcher.daemon.expect(WorkerExited).status == -9


def test_a_retired_worker_leaves_with_status_0(launcher: Played) -> None:
    launcher.start_workers("w1")

    launcher.daemon.say("w1", Retire())

    exited = launcher.expect_leaving()
    assert exited == WorkerExited(name="w1", status=0, reason="exit status 0")


def test_a_worker_with_a_thread_too_many_serves_no_other_task(launcher: Played) -> None:
    launcher.start_workers("w1")

    launcher.look("w1", thread=True)

    assert launcher.expect_leaving().status == 0


def test_a_worker_that_its_task_made_deaf_serves_no_other(launcher: Played) -> None:
    launcher.start_workers("w1")

    launcher.look("w1", deaf=True)

    assert launcher.expect_leaving().status == 0


# ---------------------------------------------------------------- what tasks start


WAYS = {
    "child": "tell(); time.sleep(600)",
    "session": "os.setsid(); tell(); time.sleep(600)",
    "daemon": "os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); tell(); time.sleep(600)",
}
"""How a process may try to outlive its worker."""


@pytest.mark.parametrize("way", WAYS)
def test_what_a_task_started_ends_with_the_task(launcher: Played, way: str) -> None:
    launcher.start_workers("w1")

    hidden = launcher.look("w1", spawn=WAYS[way])["pid"]

    assert hidden
    assert not is_alive(hidden)
    assert launcher.look("w1")["pid"] == 0, "the worker serves on"


HYDRA = """
os.fork() or os.fork()
tell()
end = time.monotonic() + 100
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    MOVE
    time.sleep(0.001)
"""
"""Processes that replace themselves all the time; not for ever, should the test be killed."""
HYDRAS = [HYDRA.replace("MOVE", ""), HYDRA.replace("MOVE", "os.setsid()")]
"""In the group of their worker, and each in a session of its own."""

LOOK_S = 20.0
"""Seconds for a look at one of them: on a busy machine each is replaced between two looks."""

WITHOUT_GROUPS = """
import sys
from libtask.launcher import __main__ as process

process.find_groups = lambda **_: None
process.main(sys.argv[1:])
"""


@pytest.fixture(params=["groups, where there are any", "no groups"])
def any_launcher(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Played]:
    """A launcher that may make control groups, and one that may not."""
    without = request.param == "no groups"
    played = Played(tmp_path, program=["-c", WITHOUT_GROUPS] if without else LAUNCHER)
    played.daemon.greet()
    yield played
    played.close()


@pytest.mark.parametrize("way", [*WAYS.values(), *HYDRAS])
def test_what_a_task_started_ends_with_its_worker(
    any_launcher: Played, way: str
) -> None:
    launcher = any_launcher
    (worker,) = launcher.start_workers("w1").values()
    launcher.stage("w1", spawn=way)
    below: list[int] = []
    until = time.monotonic() + LOOK_S
    while not below and time.monotonic() < until:
        below = [*descendants_of([worker])]
    assert below or way in HYDRAS

    os.kill(worker, signal.SIGKILL)

    assert launcher.daemon.expect(WorkerExited).name == "w1"
    assert not any(map(is_alive, below)), "its exit is told when nothing is left"
    assert children_of(launcher.process.pid) == [], "not even zombies"


# ---------------------------------------------------------------- last output


def test_how_a_worker_with_a_task_ended_is_told_with_its_phase(
    launcher: Played,
) -> None:
    pids = launcher.start_workers("w1")
    launcher.stage("w1")

    os.kill(pids["w1"], signal.SIGKILL)

    last = launcher.daemon.expect(WorkerExited).last
    assert last is not None
    assert (last.task, last.phase, last.computed) == (1, "while it waited", False)
    assert last.reason.startswith("killed by signal 9 (SIGKILL) while it waited, which")
    assert last.log.endswith("w1.log")


def test_of_a_worker_whose_task_has_ended_no_phase_is_told(launcher: Played) -> None:
    pids = launcher.start_workers("w1")
    launcher.look("w1")

    os.kill(pids["w1"], signal.SIGKILL)

    assert launcher.daemon.expect(WorkerExited).last is None
