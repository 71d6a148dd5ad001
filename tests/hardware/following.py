"""An application for tests: computes an array from the one before, and counts copies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from libtask import Task

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUES = 1 << 15
NEXT = """
__kernel void next(__global const long *old, __global long *new) {
    size_t i = get_global_id(0);
    new[i] = 3 * old[i] + 1;
}
"""


@dataclass
class Following(Task):
    """Its result is three times the values of the one before, and 1.

    Attributes:
        before: result of another such task; empty: the numbers from 0.

    """

    before: Any = None

    def load(self) -> None:
        self.old = self.before["values"] if self.before else np.arange(VALUES)
        self.values = np.empty_like(self.old)
        self.counts: dict[str, int] = {}

    def total(self) -> int:
        return 1

    def save(self, _checkpoint: Any) -> dict[str, Any]:
        return {"values": self.values, **self.counts}


@Following.on("gpu")
def follow(task: Any, device: Any, checkpoint: Any) -> Iterator[None]:
    kernel = device.program(NEXT).kernel("next")
    found, copied = device.residents.found, device.bytes_in
    with device.inputs(task.old) as (old,), device.results(task.values) as (new,):
        task.counts = {
            "pid": os.getpid(),
            "found": device.residents.found - found,
            "copied": device.bytes_in - copied,
        }
        for _ in checkpoint.strips():
            kernel(device.queue, (VALUES,), None, old, new)
            yield
