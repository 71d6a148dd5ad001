"""An application that does what no application should; tests choose what."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libtask.errors import DeviceError, ProgramError
from libtask.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from libtask.checkpoint import Checkpoint
    from libtask.devices import Device

ENDS: dict[str, Callable[[], None]] = {
    "exit": lambda: os._exit(0),
    "exit-1": lambda: os._exit(1),
    "abort": os.abort,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
}
"""Deeds that end the worker."""
HIDE = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
time.sleep(600)
"""


@dataclass
class Disobedient(Task):
    """Runs some strips; in one of them it misbehaves.

    Attributes:
        folder: where it notes each strip ("trace": strip, resource, pid), and the pids
            of processes that it hides ("hidden").
        deed: "hang", "ignore" (hang, deaf to signals), "exit", "exit-1", "abort", "kill" (itself),
            "device" (an error of the device), "program" (it does not compile), "hide" (a
            daemon is started), "flood" or none.
        deed_on: kind of resource on which alone it does so; empty: all.
        times: misbehaves so many times, counted over all attempts; below 0: always.
        deed_at: the strip in which it does.
        pace: seconds that a strip takes; `save_s`: saving.

    """

    folder: str
    deed: str = ""
    deed_on: str = ""
    times: int = -1
    deed_at: int = 2
    total_strips: int = 6
    pace: float = 0.002
    save_s: float = 0.0

    def total(self) -> int:
        return self.total_strips

    def save(self, checkpoint: Checkpoint) -> int:
        time.sleep(self.save_s)
        return checkpoint.done

    def misbehave(self) -> None:
        if self.deed in {"hang", "ignore"}:
            self.hang()
        elif self.deed in ENDS:
            ENDS[self.deed]()
        elif self.deed == "device":
            raise DeviceError("on purpose")
        elif self.deed == "program":
            raise ProgramError("does not compile: line 3")
        elif self.deed == "hide":
            hidden = str(Path(self.folder, "hidden"))
            subprocess.run([sys.executable, "-c", HIDE, hidden], check=True)
            while not Path(hidden).exists():
                time.sleep(0.001)
        elif self.deed == "flood":
            print(("x" * 1023 + "\n") * 8192)  # noqa: T201  8 MiB of a task's output

    def hang(self) -> None:
        if self.deed == "ignore":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
        while True:
            time.sleep(600)

    def is_to_misbehave(self, device: Device) -> bool:
        if self.deed_on and device.spec.kind != self.deed_on:
            return False
        done = Path(self.folder, "deeds")
        count = done.stat().st_size if done.exists() else 0
        if 0 <= self.times <= count:
            return False
        with done.open("a") as file:
            file.write("x")
        return True


@Disobedient.on("cpu")
@Disobedient.on("gpu")
@Disobedient.on("fpga")
def disobedient(task: Any, device: Device, checkpoint: Checkpoint) -> Iterator[None]:
    """Note each strip; misbehave in one of them."""
    for strip in checkpoint.strips():
        with Path(task.folder, "trace").open("a") as file:
            file.write(f"{strip.start} {device.spec.name} {os.getpid()}\n")
        time.sleep(task.pace)
        if task.deed_at in strip and task.is_to_misbehave(device):
            task.misbehave()
        yield
