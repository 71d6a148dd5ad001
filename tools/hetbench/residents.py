"""Chains of calls on one accelerator that pass an array on: kept there, or copied each time.

Two daemons take turns, one that lets results stay on the device and one that does not. The
calls count the bytes that were copied to the device. On a machine without a GPU, PoCL stands in
for one: a copy is one within the machine's memory, neither slower nor quicker for a link.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from libtask.client.call import current_device
from libtask.daemon.private import private_daemon

if TYPE_CHECKING:
    from concurrent.futures import Executor

BYTES = 64 << 20
STEPS = 10
ROUNDS = 5
PATIENCE_S = 300.0
SHARES = {"results stay": 0.2, "results are copied": 0.0}
NEXT = """
__kernel void next(__global const long *old, __global long *new) {
    size_t i = get_global_id(0);
    new[i] = 3 * old[i] + 1;
}
"""


def made(size: int) -> Any:
    """Return an array of `size` bytes."""
    return np.arange(size // 8)


def following(old: Any) -> Any:
    """Compute the next array on the device of the call."""
    device: Any = current_device()
    kernel = device.program(NEXT).kernel("next")
    new = np.empty_like(old)
    with device.inputs(old) as (read,), device.results(new, copy_in=False) as (to,):
        kernel(device.queue, (old.size,), None, read, to)
    return new


def counted(array: Any) -> tuple[int, int]:
    """Return the bytes copied to the device so far, and a number from an array."""
    return current_device().bytes_in, int(array[-1])


def run() -> list[dict[str, Any]]:
    """Measure; return a row for each way."""
    stay, copied = (
        private_daemon(f"resident_share = {share}") for share in SHARES.values()
    )
    with (
        stay as one,
        copied as other,
        one.executor("gpu") as first,
        other.executor("gpu") as second,
    ):
        ways = {
            name: DaemonChains(executor)
            for name, executor in zip(SHARES, (first, second), strict=True)
        }
        spec = next(d.spec for d in one.devices() if d.spec.kind == "gpu")
        device = f"{spec.device}{' (emulates a GPU)' * spec.emulated}"
        load = round(os.getloadavg()[0], 2)
        for way in ways.values():
            way.chain()  # compiles
        for _ in range(ROUNDS):
            for way in ways.values():
                way.chain()
    if len({value for way in ways.values() for value in way.values}) != 1:
        raise AssertionError("chains differ in their results")
    return [_row(name, way, device, load) for name, way in ways.items()]


class DaemonChains:
    """The chains through one daemon.

    Attributes:
        seconds: of each step of each chain, from the end of the first step on.
        copied: bytes that each chain copied to the device.
        values: a number of each result.

    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._counted = 0
        self.seconds: list[float] = []
        self.copied: list[int] = []
        self.values: list[int] = []

    def chain(self) -> None:
        """Run a chain; all of its calls are submitted at once."""
        ends: list[float] = []
        last: Any = self._executor.submit(made, BYTES)
        for _ in range(STEPS):
            last = self._executor.submit(following, last)
            last.add_done_callback(lambda _call: ends.append(time.perf_counter()))
        copied, value = self._executor.submit(counted, last).result(PATIENCE_S)
        self.seconds.append((ends[-1] - ends[0]) / (STEPS - 1))
        self.copied.append(copied - self._counted)
        self._counted = copied
        self.values.append(value)


def _row(name: str, way: DaemonChains, device: str, load: float) -> dict[str, Any]:
    seconds = way.seconds[1:]
    return {
        "figure": f"a chain of {STEPS} calls on one device, 64 MiB, {name}",
        "device": device,
        "ms_each": round(1e3 * statistics.median(seconds), 1),
        "least_ms_each": round(1e3 * min(seconds), 1),
        "copied_in_mib": [each >> 20 for each in way.copied[1:]],
        "load": load,
    }
