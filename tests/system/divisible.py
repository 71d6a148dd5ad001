"""An application whose strips are independent: it writes down each, and waits in each.

Its result tells how often each iteration counts in it, so that one that was done twice, or
by nobody, shows.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from libtask.task import Size, Task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.checkpoint import Checkpoint
    from libtask.devices import Device

STRIP_S = 0.004


@dataclass
class Divisible(Task):
    """Squares the first numbers.

    Attributes:
        trace: file that gets a line for each strip.
        n: how many.

    """

    state_names = ("squares",)
    parallel = True

    trace: str
    n: int = 20

    def size(self) -> Size:
        return Size(str(self.n), work=float(self.n), iterations=self.n, state_bytes=8)

    def load(self) -> None:
        self.squares = np.zeros(self.n, np.int64)

    def total(self) -> int:
        return self.n

    def merge(self, other: Divisible, strips: range) -> None:
        self.squares[strips.start : strips.stop] += other.squares[
            strips.start : strips.stop
        ]

    def save(self, checkpoint: Checkpoint) -> list[int]:
        return [int(square) for square in self.squares]


@Divisible.on("cpu")
@Divisible.on("gpu")
def square(task: Divisible, device: Device, checkpoint: Checkpoint) -> Iterator[None]:
    with device.resident(task.squares) as (squares,):
        for strip in checkpoint.strips():
            squares[strip.start : strip.stop] += np.square(
                np.arange(strip.start, strip.stop)
            )
            with Path(task.trace).open("a", encoding="ascii") as file:
                file.write(f"{strip.start} {device.spec.name} {os.getpid()}\n")
            time.sleep(STRIP_S * len(strip))
            yield
