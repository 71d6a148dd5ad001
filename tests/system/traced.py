"""Applications for the tests: they write down each strip, and stop at gates.

`Traced` leaves one line a strip in a file, so that a test can say which strips ran,
how often, where and in which process; and it waits in a given strip until the test
opens its gate, so that what happens "in the middle" needs no clock.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from libtask.task import Size, Task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.checkpoint import Checkpoint
    from libtask.devices import Device
    from libtask.messages import Kind

STRIP_S = 0.002
"""What a strip takes: longer than the worker's interval between looks at its orders."""


@dataclass
class Traced(Task):
    """Counts to a number, and writes down how it got there.

    Attributes:
        trace: file that gets a line for each strip.
        total_strips: iterations in all.
        gate: file without which strip number `gate_at` does not end.
        gate_at: number of that iteration; -1: there is none.
        only: kinds it runs on, separated by commas; empty: all.
        raise_in: "load", "run" or "save": where it fails.
        raise_on: kind of resource on which alone `raise_in` counts; empty: all.
        result_bytes: length of a text that is part of the result.

    """

    trace: str
    total_strips: int = 20
    gate: str = ""
    gate_at: int = -1
    only: str = ""
    raise_in: str = ""
    result_bytes: int = 0

    def kinds(self) -> list[Kind]:
        chosen = self.only.split(",")
        return [
            kind for kind in self.implementations if not self.only or kind in chosen
        ]

    def size(self) -> Size:
        return Size("traced", state_bytes=8)

    def load(self) -> None:
        self.fail_in("load")
        self.sum = np.zeros(1)

    def total(self) -> int:
        return self.total_strips

    def save(self, checkpoint: Checkpoint) -> dict[str, Any]:
        self.fail_in("save")
        return {
            "sum": float(self.sum[0]),
            "counted": checkpoint.extra["counted"],
            "pid": os.getpid(),
            "text": "x" * self.result_bytes,
        }

    def fail_in(self, place: str) -> None:
        if place == self.raise_in:
            raise ArithmeticError(f"on purpose\nin {place}")

    def note(self, strip: range, resource: str) -> None:
        line = f"{strip.start} {strip.stop} {resource} {os.getpid()}\n"
        with Path(self.trace).open("a", encoding="ascii") as file:
            file.write(line)
        print(line, end="")  # noqa: T201  a task's output goes to its log

    def pass_gate(self, strip: range) -> None:
        time.sleep(STRIP_S)
        while self.gate_at in strip and not Path(self.gate).exists():
            time.sleep(STRIP_S)


@Traced.on("cpu")
@Traced.on("gpu")
@Traced.on("fpga")
def traced(task: Traced, device: Device, checkpoint: Checkpoint) -> Iterator[None]:
    """Add up the numbers of the strips."""
    with device.resident(task.sum) as (total,):
        for strip in checkpoint.strips():
            task.note(strip, device.spec.name)
            task.fail_in("run")
            task.pass_gate(strip)
            total[0] += sum(strip)
            counted = checkpoint.extra.get("counted", 0)
            checkpoint.extra["counted"] = counted + len(strip)
            yield


@dataclass
class Churn(Task):
    """Stirs numbers so that a strip left out, or run twice, changes all of them.

    Attributes:
        output: file for the numbers.
        rounds: iterations.
        exit_at: iteration in which the process ends, as if all were well; -1: none.

    """

    output: str
    rounds: int = 60_000
    exit_at: int = -1

    def size(self) -> Size:
        return Size("churn", state_bytes=8 * CELLS)

    def load(self) -> None:
        self.cells = np.arange(CELLS, dtype=np.uint64)

    def total(self) -> int:
        return self.rounds

    def save(self, checkpoint: Checkpoint) -> dict[str, Any]:
        Path(self.output).write_bytes(self.cells.tobytes())
        return {"rounds": checkpoint.done}


CELLS = 512


def stir(cells: np.ndarray[Any, Any], strip: range) -> None:
    for iteration in strip:
        np.multiply(cells, np.uint64(6364136223846793005), out=cells)
        np.add(cells, np.uint64(iteration), out=cells)


@Churn.on("cpu")
def churn(task: Churn, device: Device, checkpoint: Checkpoint) -> Iterator[None]:
    for strip in checkpoint.strips():
        if task.exit_at in strip:
            os._exit(0)
        stir(task.cells, strip)
        yield
