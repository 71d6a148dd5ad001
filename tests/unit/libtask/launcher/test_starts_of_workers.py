"""The launcher forks workers: what they inherit, where their output goes, who gets none."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from libtask.messages import Leaving, Register, StartWorkers, WorkerExited
from libtask.processes import children_of
from libtask.worker.logs import opened, read
from unit.libtask.launcher.played_launcher import Played
from unit.scripted_daemon import until

if TYPE_CHECKING:
    from pathlib import Path


def test_starts_workers_and_tells_which_signal_ended_one(launcher: Played) -> None:
    pids = launcher.start_workers("w1", "w2")
    assert sorted(children_of(launcher.process.pid)) == sorted(pids.values())

    os.kill(pids["w1"], signal.SIGKILL)

    exited = launcher.daemon.expect(WorkerExited)
    assert (exited.name, exited.status, exited.started) == ("w1", -9, True)
    assert exited.reason.startswith("killed by signal 9 (SIGKILL), ")
    assert children_of(launcher.process.pid) == [pids["w2"]]
    assert launcher.look("w2")["leads"]


def test_imports_ahead_start_no_thread() -> None:
    """A fork has one thread, whatever the others of its launcher were doing."""
    script = (
        "import os, sys; import libtask.launcher.__main__ as launcher;"
        "print('numpy' in sys.modules); launcher.preload();"
        "print('numpy' in sys.modules, os.listdir('/proc/self/task') == [str(os.getpid())])"
    )
    usual = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}

    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=usual,
        check=True,
    )

    assert ended.stdout == "False\nTrue True\n"


def test_workers_inherit_nothing_they_should_not(launcher: Played) -> None:
    launcher.start_workers("w1", "w2")
    seen = [launcher.look("w1"), launcher.look("w2")]

    assert seen[0]["draws"] != seen[1]["draws"]
    assert launcher.process.poll() is None
    # A worker that held the lock would keep the next launcher out.
    launcher.process.kill()
    launcher.process.wait()
    launcher.process = launcher.start()
    message: object = None
    while not isinstance(message, Register):
        _, message = launcher.daemon.hear()
        # its orphans, who are idle, leave meanwhile or later
        assert isinstance(message, Register | Leaving)
    assert message.role == "launcher"


def test_the_same_name_is_not_started_twice(launcher: Played) -> None:
    pids = launcher.start_workers("w1")

    launcher.say(StartWorkers(names=["w1", "../w2"]))

    assert launcher.daemon.expect(WorkerExited).name == "../w2"
    assert children_of(launcher.process.pid) == [pids["w1"]]


def test_a_machine_without_room_for_a_process_is_told(tmp_path: Path) -> None:
    launcher = Played(tmp_path, program=["-c", SCARCE])
    launcher.daemon.greet()

    launcher.say(StartWorkers(names=["w1"]))

    reason = "no process for a worker: Resource temporarily unavailable"
    exited = launcher.daemon.expect(WorkerExited)
    assert exited == WorkerExited("w1", 1, reason, started=False)
    assert launcher.start_workers("w2"), "the launcher lives on"
    launcher.close()


SCARCE = """
import errno, os, sys
from libtask.launcher.__main__ import main

fork, failures = os.fork, [errno.EAGAIN]

def scarce():
    if failures:
        number = failures.pop()
        raise OSError(number, os.strerror(number))
    return fork()

os.fork = scarce
main(sys.argv[1:])
"""


# ---------------------------------------------------------------- output


def test_output_of_a_worker_is_in_its_log(launcher: Played) -> None:
    pids = launcher.start_workers("w1")
    launcher.look("w1")

    log = launcher.folder / "logs" / "w1.log"

    assert log.read_text() == f"hello from {pids['w1']}\n"


def test_a_worker_lives_without_a_log(launcher: Played) -> None:
    (launcher.folder / "logs").write_text("no folder")
    shutil.rmtree(launcher.folder / "exits")

    pids = launcher.start_workers("w1")
    assert launcher.look("w1")["leads"]
    os.kill(pids["w1"], signal.SIGKILL)

    assert launcher.daemon.expect(WorkerExited).status == -9
    complaints = (launcher.folder / "launcher.log").read_text()
    assert "w1.log: Not a directory; its output is discarded" in complaints


def test_a_flood_of_output_is_capped(launcher: Played) -> None:
    launcher.daemon.welcome("launcher", log_bytes=1 << 20)
    launcher.start_workers("w1")
    launcher.stage("w1", spawn=FLOOD)
    log = launcher.folder / "logs" / "w1.log"

    until(lambda: log.stat().st_size > 20 << 20, "a flood")
    until(lambda: log.stat().st_blocks * 512 <= 20 << 20, "the flood is capped")

    with opened(log, os.getuid()) as file:
        assert b"bytes of output were dropped" in read(file, 0, None)[0]


FLOOD = """
tell()
parent = os.getppid()
while os.getppid() == parent:
    os.write(1, b"y" * 65536)
"""
"""Ends with the worker, however that ends: nobody else stops it from filling the disk."""


# ---------------------------------------------------------------- number of processes


def test_workers_may_have_as_many_processes_as_hetd_says(tmp_path: Path) -> None:
    played = Played(tmp_path)
    played.daemon.greet(processes=4000)

    played.start_workers("w1")

    assert played.look("w1")["processes"] == [4000, 4000]
    played.close()


BOMB = """
import os, signal
from libtask.launcher.fork import _limit_processes
os.setgroups([])
os.setgid(4104)
os.setuid(4104)
_limit_processes(5)
made = []
try:
    while len(made) < 50:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        made.append(pid)
except BlockingIOError:
    print(len(made))
for pid in made:
    os.kill(pid, signal.SIGKILL)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user without any")
def test_a_fork_bomb_comes_to_its_end_at_the_limit() -> None:
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    bomb = [sys.executable, "-c", BOMB]

    ended = subprocess.run(bomb, capture_output=True, text=True, env=alone, check=True)

    assert ended.stdout == "4\n", "and itself"
