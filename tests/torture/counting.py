"""The application that is tortured: a count whose result betrays every wrong step.

Each iteration mixes its number into the state, so that the result is right only if
every iteration ran once and in order, whatever was moved, killed and restarted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from libtask.task import Size, Task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.checkpoint import Checkpoint
    from libtask.devices import Device

MULTIPLIER = 6364136223846793005
MODULUS = 1 << 64


@dataclass
class Counting(Task):
    """Mixes numbers.

    Attributes:
        seed: where it begins.
        iterations: how many numbers.
        pause_s: seconds that each iteration takes.
        fail_at: the iteration that raises an error; -1: none does.

    """

    seed: int
    iterations: int = 4
    pause_s: float = 0.0
    fail_at: int = -1

    def size(self) -> Size:
        return Size("counting", state_bytes=8)

    def load(self) -> None:
        self.state = np.array([self.seed], np.uint64)

    def total(self) -> int:
        return self.iterations

    def save(self, checkpoint: Checkpoint) -> dict[str, Any]:
        return {"state": hex(int(self.state[0])), "counted": checkpoint.done}

    def step(self, state: Any, number: int) -> None:
        """Do one iteration, on the state where it lies."""
        if self.pause_s:
            time.sleep(self.pause_s)
        if number == self.fail_at:
            raise ArithmeticError(f"on purpose, in iteration {number}")
        state[0] = mixed(int(state[0]), number)


@Counting.on("cpu")
@Counting.on("gpu")
@Counting.on("fpga")
def counting(task: Counting, device: Device, checkpoint: Checkpoint) -> Iterator[None]:
    """Mix the numbers of each strip."""
    with device.resident(task.state) as (state,):
        for strip in checkpoint.strips():
            for number in strip:
                task.step(state, number)
            yield


def mixed(state: int, number: int) -> int:
    """Return the state after an iteration."""
    return (state * MULTIPLIER + number + 1) % MODULUS


def reference(seed: int, iterations: int) -> dict[str, Any]:
    """Compute the result without any of hetd."""
    state = seed
    for number in range(iterations):
        state = mixed(state, number)
    return {"state": hex(state), "counted": iterations}
