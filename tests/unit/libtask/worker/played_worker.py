"""A worker process, the daemon that a test plays for it, and apps that it runs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from libtask.messages import Finished, Progress, Ready, Retire
from unit.scripted_daemon import PATIENCE, ScriptedDaemon, cpu, null, run, stage

if TYPE_CHECKING:
    from pathlib import Path

APPS = '''
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from libtask import Task
from libtask.errors import DeviceError, InputError

CELLS = 100


@dataclass
class Nothing(Task):
    """Does nothing, in one strip."""


@dataclass
class Count(Task):
    """Counts until a file appears; tells where it has been."""

    until: str = ""
    limit: int = 0

    def load(self):
        self.counted = 0
        self.trail = []
        print("loading")

    def total(self):
        return self.limit or None

    def save(self, checkpoint):
        print("saving")
        same = checkpoint.done == self.counted
        return {"same": same, "trail": self.trail, "seen": checkpoint.extra["seen"]}


def count(task, device, checkpoint):
    task.trail.append(device.spec.name)
    print("counting on", device.spec.name)
    with device.resident():
        for strip in checkpoint.strips():
            task.counted += len(strip)
            checkpoint.extra["seen"] = strip.stop
            yield
            if task.until and Path(task.until).exists():
                return


@dataclass
class Broken(Task):
    """Fails where it is told to."""

    where: str = ""
    error: str = "ValueError"
    file: bytes = b""
    iterations: int = 1
    pause: float = 0.0

    def total(self):
        return self.iterations

    def fail(self, where):
        if where == self.where:
            kinds = {"DeviceError": DeviceError, "InputError": InputError}
            kinds |= vars(__builtins__) if not isinstance(__builtins__, dict) else __builtins__
            raise kinds[self.error]("no\\n luck" + os.fsdecode(self.file))

    def load(self):
        self.fail("load")

    def save(self, checkpoint):
        self.fail("save")
        return {"result": object, "set": {1: 2}, "large": "x" * 2_000_000}.get(self.where)


def broken(task, device, checkpoint):
    for strip in checkpoint.strips():
        task.fail("run")
        time.sleep(task.pause)
        extra = {"array": np.ones(3), "map": {1: 2}, "long": "x" * 2_000_000}.get(task.where)
        if extra is not None:
            checkpoint.extra["kept"] = extra
        yield


@dataclass
class Stuck(Task):
    """Reaches no checkpoint until a file appears."""

    until: str


def stuck(task, device, checkpoint):
    for strip in checkpoint.strips():
        while not Path(task.until).exists():
            time.sleep(0.001)
        yield


@dataclass
class Clingy(Task):
    """Does not go when it has ended."""

    def load(self):
        self.held = True

    def __del__(self):
        while getattr(self, "held", False):
            pass


def nothing(task, device, checkpoint):
    for strip in checkpoint.strips():
        yield


@dataclass
class Sheet(Task):
    """Marks its cells, slowly, in strips that others may do."""

    parallel = True
    state_names = ("cells",)

    def load(self):
        self.cells = np.zeros(CELLS, np.uint8)

    def total(self):
        return CELLS

    def merge(self, other, strips):
        self.cells[strips.start : strips.stop] = other.cells[strips.start : strips.stop]

    def save(self, checkpoint):
        return self.cells.tolist()


def mark(task, device, checkpoint):
    with device.resident(task.cells) as (cells,):
        for strip in checkpoint.strips():
            cells[strip.start : strip.stop] += 1
            time.sleep(0.02)
            yield


Sheet.on("cpu")(mark)
Stuck.on("cpu")(stuck)
Nothing.on("cpu")(nothing)
Nothing.on("gpu")(nothing)
Clingy.on("cpu")(nothing)
Count.on("cpu")(count)
Count.on("gpu")(count)
Broken.on("cpu")(broken)
'''


class Played:
    """A worker process, and the daemon that the test plays for it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.log = folder / "worker.log"
        self.apps = folder / "apps.py"
        self.apps.write_text(textwrap.dedent(APPS))
        self.daemon = ScriptedDaemon(folder / "hetd.sock")
        script = (
            "from pathlib import Path\nfrom libtask.worker.options import WorkerOptions\n"
            "from libtask.worker.worker import Worker\n"
            f"options = WorkerOptions('w1', Path({str(self.daemon.path)!r}),"
            f" {str(self.log)!r}, **{options!r})\nWorker(options).run()\n"
        )
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", script], stdout=log, stderr=log, cwd=folder
            )

    def say(self, *messages: Any) -> None:
        self.daemon.say("w1", *messages)

    def app(self, name: str) -> str:
        return f"{self.apps}:{name}"

    def output(self, of: Any) -> str:
        """Return what a stretch of a task printed."""
        assert of.log == str(self.log)
        return self.log.read_bytes()[of.log_start : of.log_end].decode()

    def still_works(self) -> None:
        """Run a task that does nothing."""
        self.say(stage(99, self.app("Nothing")), run(99, cpu()))
        assert self.daemon.expect(Finished).task == 99

    def retire(self) -> int:
        self.say(Retire())
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.daemon.close()


def start_counting(worker: Played, **params: Any) -> Progress:
    """Stage and run an endless task on gpu0; return its first report."""
    params = {"until": str(worker.folder / "enough"), **params}
    worker.say(stage(1, worker.app("Count"), params=params, strip=100))
    worker.daemon.expect(Ready)
    worker.say(run(1, null("gpu0")))
    return worker.daemon.expect(Progress)


def next_but_progress(worker: Played) -> Any:
    while True:
        _, message = worker.daemon.hear()
        if not isinstance(message, Progress):
            return message
