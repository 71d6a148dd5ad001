"""An application that crashes where and how it is told, after it has said something."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libtask.errors import ProgramError
from libtask.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.checkpoint import Checkpoint
    from libtask.devices import Device


@dataclass
class Crashing(Task):
    """Counts to three, unless it crashes.

    Attributes:
        say: written to standard error, with a line end, before the crash.
        fill: bytes written before that, in lines.
        at: "load", "strip", "second", "save"; empty: it does not crash.
        how: "abort", "segfault", "kill", "exit", "program" or "raise".
        once: file that is made by the crash, and keeps it from happening again; empty: none.

    """

    say: str = ""
    fill: int = 0
    at: str = ""
    how: str = "abort"
    once: str = ""

    def load(self) -> None:
        self.crash("load")

    def total(self) -> int:
        return 3

    def save(self, checkpoint: Checkpoint) -> Any:
        self.crash("save")
        return {"done": checkpoint.done}

    def crash(self, place: str) -> None:
        if place != self.at or (self.once and Path(self.once).exists()):
            return
        if self.once:
            Path(self.once).touch()
        line = "x" * 99 + "\n"
        for _ in range(self.fill // len(line)):
            sys.stderr.write(line)
        sys.stderr.write(f"{self.say}\n")
        CRASHES[self.how]()


def _segfault() -> None:
    ctypes.string_at(0)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _exit() -> None:
    os._exit(3)


def _program() -> None:
    error = ProgramError("gpu0: a.cl does not compile: error: no such thing")
    error.add_note("line 1:2: error: no such thing")
    raise error


def _raise() -> None:
    raise ArithmeticError("on purpose")


CRASHES = {
    "abort": os.abort,
    "segfault": _segfault,
    "kill": _kill,
    "exit": _exit,
    "program": _program,
    "raise": _raise,
}


@Crashing.on("cpu")
def run_cpu(task: Crashing, device: Device, checkpoint: Checkpoint) -> Iterator[None]:
    for strip in checkpoint.strips():
        task.crash("strip" if strip.start == 0 else "second")
        yield


Crashing.on("gpu")(run_cpu)
Crashing.on("fpga")(run_cpu)

NAME = f"{__file__}:{Crashing.__name__}"
