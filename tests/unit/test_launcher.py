"""The launcher: forks workers, tells how they end, and outlives its daemon."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from libtask.messages import (
    Finished,
    Hello,
    KillWorker,
    Leaving,
    Ready,
    Retire,
    StartWorkers,
    WorkerExited,
)
from libtask.processes import children_of, descendants_of, is_alive
from libtask.worker.launcher import default_folder, start_launcher
from libtask.worker.logs import read
from unit.scripted_daemon import PATIENCE, ScriptedDaemon, cpu, run, stage, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

APP = r'''
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass

import numpy as np

from libtask import Task


@dataclass
class Look(Task):
    """Looks around in its process."""

    spawn: str = ""
    deaf: bool = False
    thread: bool = False

    def load(self):
        if self.deaf:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.thread:
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        if self.spawn:
            read, write = os.pipe()
            code = f"import os, time\ndef tell(): os.write({write}, b'%d' % os.getpid())\n"
            subprocess.Popen([sys.executable, "-c", code + self.spawn], pass_fds=[write])
            self.pid = int(os.read(read, 20))

    def save(self, checkpoint):
        print("hello from", os.getpid())
        found = {"files": len(os.listdir("/proc/self/fd")), "leads": os.getsid(0) == os.getpid()}
        found["draws"] = int(np.random.randint(1 << 40))
        found["pid"] = getattr(self, "pid", 0)
        return found


@Look.on("cpu")
def look(task, device, checkpoint):
    for strip in checkpoint.strips():
        yield
'''


LAUNCHER = ("-m", "libtask.worker.launcher")


class Played:
    """A launcher process, and the daemon that the test plays for it."""

    def __init__(
        self, folder: Path, *options: str, program: Sequence[str] = LAUNCHER
    ) -> None:
        self.folder = folder / "launcher"
        self.app = folder / "look.py"
        self.app.write_text(APP)
        self.daemon = ScriptedDaemon(folder / "hetd.sock")
        self.options = options
        self.program = program
        self.workers: list[int] = []
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, *self.program]
        places = ["--socket", str(self.daemon.path), "--directory", str(self.folder)]
        return subprocess.Popen([*command, *places, *self.options])

    def say(self, message: Any) -> None:
        self.daemon.say("launcher", message)

    def start_workers(self, *names: str) -> dict[str, int]:
        """Start workers; return their pids."""
        self.say(StartWorkers(names=list(names)))
        hellos = [self.daemon.greet() for _ in names]
        self.workers += [hello.pid for hello in hellos]
        return {hello.worker: hello.pid for hello in hellos}

    def look(self, worker: str, **params: Any) -> dict[str, Any]:
        """Run the app on a worker; return what it saw."""
        order = stage(1, f"{self.app}:Look", params=params)
        self.daemon.say(worker, order, run(1, cpu()))
        result: dict[str, Any] = self.daemon.expect(Finished).result
        return result

    def stage(self, worker: str, **params: Any) -> None:
        """Have a worker load the app, no more."""
        self.daemon.say(worker, stage(1, f"{self.app}:Look", params=params))
        self.daemon.expect(Ready)

    def expect_leaving(self, status: int = 0) -> None:
        """Hear that the worker leaves, and how it ended."""
        self.daemon.expect(Leaving)
        assert self.daemon.expect(WorkerExited).status == status

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pid in filter(is_alive, self.workers):
            # One with a result that nobody may have heard of would stay for long.
            os.kill(pid, signal.SIGKILL)
        self.daemon.close()


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Played]:
    played = Played(tmp_path)
    hello = played.daemon.greet()
    assert hello == Hello(role="launcher", pid=played.process.pid)
    yield played
    played.close()


def test_starts_workers_and_tells_which_signal_ended_one(launcher: Played) -> None:
    pids = launcher.start_workers("w1", "w2")
    assert sorted(children_of(launcher.process.pid)) == sorted(pids.values())

    os.kill(pids["w1"], signal.SIGKILL)

    exited = launcher.daemon.expect(WorkerExited)
    reason = "killed by signal 9 (SIGKILL)"
    assert exited == WorkerExited(name="w1", status=-9, reason=reason)
    assert children_of(launcher.process.pid) == [pids["w2"]]
    assert launcher.look("w2")["leads"]


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
    while not isinstance(message, Hello):
        _, message = launcher.daemon.hear()
        # its orphans, who are idle, leave meanwhile or later
        assert isinstance(message, Hello | Leaving)
    assert message.role == "launcher"


def test_output_of_a_worker_is_in_its_log(launcher: Played) -> None:
    pids = launcher.start_workers("w1")
    launcher.look("w1")

    log = launcher.folder / "logs" / "w1.log"

    assert log.read_text() == f"hello from {pids['w1']}\n"


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
while True:
    if os.fork():
        os._exit(0)
    time.sleep(0.001)
"""
"""Processes that replace themselves all the time."""

WITHOUT_GROUPS = """
import sys
from libtask.worker import launcher, shepherd

shepherd.find_groups = lambda: None
launcher.main(sys.argv[1:])
"""


@pytest.fixture(params=["groups, where there are any", "no groups"])
def any_launcher(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Played]:
    """A launcher that may make control groups, and one that may not."""
    without = request.param == "no groups"
    played = Played(tmp_path, program=["-c", WITHOUT_GROUPS] if without else LAUNCHER)
    played.daemon.greet()
    yield played
    played.close()


@pytest.mark.parametrize("way", [*WAYS.values(), HYDRA])
def test_what_a_task_started_ends_with_its_worker(
    any_launcher: Played, way: str
) -> None:
    launcher = any_launcher
    (worker,) = launcher.start_workers("w1").values()
    launcher.stage("w1", spawn=way)
    below = [*descendants_of([worker])]
    assert below

    os.kill(worker, signal.SIGKILL)

    assert launcher.daemon.expect(WorkerExited).name == "w1"
    assert not any(map(is_alive, below)), "its exit is told when nothing is left"
    assert children_of(launcher.process.pid) == [], "not even zombies"


def test_a_worker_with_a_thread_too_many_serves_no_other_task(launcher: Played) -> None:
    launcher.start_workers("w1")

    launcher.look("w1", thread=True)

    launcher.expect_leaving()


def test_a_worker_that_its_task_made_deaf_serves_no_other(launcher: Played) -> None:
    launcher.start_workers("w1")

    launcher.look("w1", deaf=True)

    launcher.expect_leaving()


def test_a_worker_lives_without_a_log(launcher: Played) -> None:
    (launcher.folder / "logs").write_text("no folder")
    shutil.rmtree(launcher.folder / "exits")

    pids = launcher.start_workers("w1")
    assert launcher.look("w1")["leads"]
    os.kill(pids["w1"], signal.SIGKILL)

    assert launcher.daemon.expect(WorkerExited).status == -9
    complaints = (launcher.folder / "launcher.log").read_text()
    assert "w1.log: Not a directory; no output is kept" in complaints


def test_a_flood_of_output_is_capped(launcher: Played) -> None:
    launcher.daemon.welcome("launcher", log_bytes=1 << 20)
    launcher.start_workers("w1")
    launcher.stage("w1", spawn=FLOOD)
    log = launcher.folder / "logs" / "w1.log"

    until(lambda: log.stat().st_size > 20 << 20, "a flood")
    until(lambda: log.stat().st_blocks * 512 <= 20 << 20, "the flood is capped")

    assert b"bytes of output were dropped" in read(log, 0, None)[0]


FLOOD = """
tell()
parent = os.getppid()
while os.getppid() == parent:
    os.write(1, b"y" * 65536)
"""
"""Ends with the worker, however that ends: nobody else stops it from filling the disk."""


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
from libtask.worker.launcher import main

fork, failures = os.fork, [errno.EAGAIN]

def scarce():
    if failures:
        number = failures.pop()
        raise OSError(number, os.strerror(number))
    return fork()

os.fork = scarce
main(sys.argv[1:])
"""


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

    launcher.daemon.expect(Leaving)
    exited = launcher.daemon.expect(WorkerExited)
    assert exited == WorkerExited(name="w1", status=0, reason="exit status 0")


def test_the_same_name_is_not_started_twice(launcher: Played) -> None:
    pids = launcher.start_workers("w1")

    launcher.say(StartWorkers(names=["w1", "../w2"]))

    assert launcher.daemon.expect(WorkerExited).name == "../w2"
    assert children_of(launcher.process.pid) == [pids["w1"]]


def test_tells_a_new_daemon_of_exits_that_nobody_heard(launcher: Played) -> None:
    pids = launcher.start_workers("w1", "w2")

    launcher.daemon.die()
    os.kill(pids["w1"], signal.SIGKILL)
    until(lambda: len(children_of(launcher.process.pid)) == 1, "the worker is reaped")
    launcher.daemon.rise()

    told = [launcher.daemon.hear() for _ in range(3)]
    messages = [message for _, message in told]
    by_launcher = [message for peer, message in told if peer == "launcher"]
    assert WorkerExited("w1", -9, "killed by signal 9 (SIGKILL)") in messages
    assert isinstance(by_launcher[0], Hello)
    assert {message.worker for message in messages if isinstance(message, Hello)} == {
        "w2",
        "",
    }


def test_exits_outlive_the_launcher(launcher: Played) -> None:
    pids = launcher.start_workers("w1")
    os.kill(pids["w1"], signal.SIGKILL)
    launcher.daemon.expect(WorkerExited)
    launcher.process.kill()
    launcher.process.wait()

    launcher.process = launcher.start()

    launcher.daemon.greet()
    assert launcher.daemon.expect(WorkerExited).name == "w1"


def test_idle_workers_leave_with_their_launcher(launcher: Played) -> None:
    pids = launcher.start_workers("w1", "w2")

    launcher.process.kill()
    launcher.process.wait()

    until(lambda: not any(map(is_alive, pids.values())), "the workers leave")


def test_retires_with_its_workers(launcher: Played) -> None:
    launcher.start_workers("w1", "w2")

    launcher.say(Retire())

    exits = [launcher.daemon.expect(WorkerExited) for _ in range(2)]
    assert {exited.name for exited in exits} == {"w1", "w2"}
    assert launcher.process.wait(PATIENCE) == 0


def test_there_is_one_launcher_for_a_socket(launcher: Played) -> None:
    second = launcher.start()

    assert second.wait(PATIENCE) == 0
    assert launcher.start_workers("w1")


@pytest.mark.parametrize("option", ["--alone", "--idle"])
def test_leaves_when_nobody_needs_it(tmp_path: Path, option: str) -> None:
    played = Played(tmp_path, option, "0.1")
    if option == "--idle":
        played.daemon.greet()
    assert played.process.wait(PATIENCE) == 0
    played.close()


def test_starting_one_leaves_no_child(tmp_path: Path) -> None:
    daemon = ScriptedDaemon(tmp_path / "hetd.sock")
    before = children_of(os.getpid())

    start_launcher(daemon.path)

    hello = daemon.greet()
    assert children_of(os.getpid()) == before
    assert os.getsid(hello.pid) != os.getsid(0)
    daemon.say("launcher", Retire())
    until(lambda: not is_alive(hello.pid), "the launcher leaves")
    daemon.close()


def test_logs_never_fill_the_memory_behind_run(tmp_path: Path) -> None:
    assert default_folder(tmp_path / "hetd.sock") == tmp_path / "hetd.launcher"
    assert not default_folder(Path("/run/hetd.sock")).is_relative_to("/run")
