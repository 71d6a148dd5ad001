"""A launcher process, the daemon that a test plays for it, and an app that looks around."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

from libtask.messages import Finished, Leaving, Ready, StartWorkers, WorkerExited
from libtask.processes import is_alive, kill_with_descendants
from unit.scripted_daemon import ScriptedDaemon, cpu, run, stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


APP = r'''
import os
import resource
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
    megabytes: int = 0
    address_space: int = 0

    def load(self):
        if self.address_space:
            _, most = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (self.address_space << 20, most))
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
        eaten = b"x" * (self.megabytes << 20)
        print("hello from", os.getpid())
        found = {"files": len(os.listdir("/proc/self/fd")), "leads": os.getsid(0) == os.getpid()}
        found["draws"] = int(np.random.randint(1 << 40))
        found["pid"] = getattr(self, "pid", 0)
        found["processes"] = resource.getrlimit(resource.RLIMIT_NPROC)
        return found


@Look.on("cpu")
def look(task, device, checkpoint):
    for strip in checkpoint.strips():
        yield
'''

LAUNCHER = ("-m", "libtask.launcher")


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

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, *self.program]
        places = ["--socket", str(self.daemon.path), "--directory", str(self.folder)]
        return subprocess.Popen([*command, *places, *self.options, *options])

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

    def expect_leaving(self) -> WorkerExited:
        """Hear that the worker leaves, and return how it ended.

        They come from two processes: on a busy machine in any order.
        """
        told = [self.daemon.hear()[1] for _ in range(2)]
        exits = [message for message in told if isinstance(message, WorkerExited)]
        assert [type(each) for each in told if each not in exits] == [Leaving], told
        return exits[0]

    def close(self) -> None:
        # Nothing may survive: what a failed test leaves running would disturb later ones.
        others = filter(is_alive, self.workers)
        kill_with_descendants([self.process.pid, *others])
        self.process.wait()
        self.daemon.close()
