"""Chains of calls that pass an array on: what handing it from task to task takes.

Each call takes the result of the one before. Beside them a chain that passes a number, and
the same calls in this process. Through the real daemon, with the clock on the wall; the load
of the machine before each run is in its row.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from hetbench.resources import CPU_ONLY
from libtask.daemon.private import private_daemon

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.client.client import Client

BYTES = 64 << 20
STEPS = 20
ROUNDS = 5
PATIENCE_S = 300.0


def made(size: int) -> Any:
    """Return an array of `size` bytes."""
    return np.ones(size // 8)


def looked_at(array: Any) -> Any:
    """Read a part of each page of an array; pass it on as it is."""
    array[::512].sum()
    return array


def changed(array: Any) -> Any:
    """Change an array in place."""
    array += 1.0
    return array


def counted(number: Any) -> Any:
    """Pass a number on."""
    return number


CHAINS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "a number": (counted, 8),
    "64 MiB, read": (looked_at, BYTES),
    "64 MiB, changed in place": (changed, BYTES),
}
"""The value that is passed on -> the call, and its bytes."""


def run() -> list[dict[str, Any]]:
    """Measure; return a row for each chain."""
    with private_daemon(CPU_ONLY) as client:
        client.submit(counted, 1).result(PATIENCE_S)
        return [_row(client, name, *CHAINS[name]) for name in CHAINS]


def _row(
    client: Client, name: str, call: Callable[[Any], Any], size: int
) -> dict[str, Any]:
    load = round(os.getloadavg()[0], 2)
    passed = [_chain(client, call, size) for _ in range(ROUNDS)]
    here = [_here(call, size) for _ in range(ROUNDS)]
    return {
        "figure": f"a chain of {STEPS} calls that passes {name}",
        "ms_each": round(1e3 * statistics.median(passed) / STEPS, 2),
        "least_ms_each": round(1e3 * min(passed) / STEPS, 2),
        "in_one_process_ms_each": round(1e3 * statistics.median(here) / STEPS, 3),
        "load": load,
    }


def _chain(client: Client, call: Callable[[Any], Any], size: int) -> float:
    first: Any = client.submit(made, size)
    first.wait(PATIENCE_S)
    began = time.perf_counter()
    last = first
    for _ in range(STEPS):
        last = client.submit(call, last)
    last.wait(PATIENCE_S)
    return time.perf_counter() - began


def _here(call: Callable[[Any], Any], size: int) -> float:
    array = made(size)
    began = time.perf_counter()
    for _ in range(STEPS):
        array = call(array)
    return time.perf_counter() - began
