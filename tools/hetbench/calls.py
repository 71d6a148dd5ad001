"""Calls of a function of some milliseconds, beside `ProcessPoolExecutor`.

The function computes for a set processor time, whatever runs beside it. So `share` is the part of
the processor time of as many processors as there are workers that went into the calls; the rest
went into tasks and results on their way, or was not used. Each length has a daemon of its own, so
that no expected time is that of another length.

Those calls go by `map`. Short ones are also mapped in chunks of several, each of which is a task,
and calls that compute nothing are submitted one by one: `executor.submit` in a loop.
"""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

from hetbench.processes import DaemonProcesses
from hetbench.resources import cpu_with
from libtask.daemon.private import private_daemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

    from libtask.client.client import Client

WORKERS = 2
LENGTHS_MS = (1, 5, 20, 100)
COMPUTED_S = 4.0
"""Processor seconds that the calls of a round compute in all."""
ROUNDS = 7
ONE_BY_ONE = 2000
"""Calls that are submitted in a loop in a round."""
CHUNKED_MS = 0.1
CHUNKED = 5000
"""Calls that are mapped in chunks in a round."""
CHUNKS = (1, 10, 100)


def compute(seconds: float) -> None:
    """Compute for some processor time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def run() -> list[dict[str, Any]]:
    """Measure each length; return one row for each and each system."""
    rows = [row for length in LENGTHS_MS for row in _rows(length)]
    rows += [row for size in CHUNKS for row in _in_chunks(size)]
    return [*rows, *_one_by_one()]


def _rows(length_ms: int) -> Iterator[dict[str, Any]]:
    """Alternate between the systems."""
    calls = round(1000 * COMPUTED_S / length_ms)
    times = [length_ms / 1000] * calls
    with (
        private_daemon(cpu_with(WORKERS)) as client,
        ProcessPoolExecutor(WORKERS) as pool,
    ):
        systems: dict[str, Client | ProcessPoolExecutor]
        systems = {"hetd": client, "ProcessPoolExecutor": pool}
        walls: dict[str, list[float]] = {name: [] for name in systems}
        for system in systems.values():
            _wall(system, times)  # workers start, and expected times become known
        before = DaemonProcesses(client).consumption()
        _wall(client, times)
        used = DaemonProcesses(client).consumption().since(before)
        for _ in range(ROUNDS):
            for name, system in systems.items():
                walls[name].append(_wall(system, times))
    rates = {name: calls / statistics.median(walls[name]) for name in systems}
    for name in rates:
        row = _row(
            f"calls of {length_ms} ms, {WORKERS} workers", name, rates, length_ms
        )
        yield row | (used.per_task(calls) if name == "hetd" else {})


def _wall(system: Client | ProcessPoolExecutor, times: list[float]) -> float:
    begin = time.perf_counter()
    list(system.map(compute, times))
    return time.perf_counter() - begin


def _in_chunks(size: int) -> Iterator[dict[str, Any]]:
    """Map short calls in chunks of a size; alternate between the systems."""
    times = [CHUNKED_MS / 1000] * CHUNKED
    with (
        private_daemon(cpu_with(WORKERS)) as client,
        client.executor() as executor,
        ProcessPoolExecutor(WORKERS) as pool,
    ):
        systems: dict[str, Executor] = {"hetd": executor, "ProcessPoolExecutor": pool}
        walls: dict[str, list[float]] = {name: [] for name in systems}
        for _ in range(ROUNDS + 1):
            for name, system in systems.items():
                begin = time.perf_counter()
                list(system.map(compute, times, chunksize=size))
                walls[name].append(time.perf_counter() - begin)
    rates = {
        name: CHUNKED / statistics.median(rounds[1:]) for name, rounds in walls.items()
    }
    for name in rates:
        case = f"calls of {CHUNKED_MS} ms in chunks of {size}, {WORKERS} workers"
        yield _row(case, name, rates, CHUNKED_MS)


def _row(
    case: str, system: str, rates: dict[str, float], length_ms: float
) -> dict[str, Any]:
    """Return the row of a system, from the calls per second of each."""
    rate = rates[system]
    return {
        "case": case,
        "system": system,
        "calls_per_s": round(rate, 1),
        "share": round(rate * length_ms / 1000 / WORKERS, 3),
        "of_executor": round(rate / rates["ProcessPoolExecutor"], 3),
    }


def _one_by_one() -> Iterator[dict[str, Any]]:
    """Submit calls that compute nothing in a loop; alternate between the systems."""
    with (
        private_daemon(cpu_with(WORKERS)) as client,
        client.executor() as executor,
        ProcessPoolExecutor(WORKERS) as pool,
    ):
        systems: dict[str, Executor] = {"hetd": executor, "ProcessPoolExecutor": pool}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in systems}
        for _ in range(ROUNDS + 1):
            for name, system in systems.items():
                times[name].append(_loop(system))
    rate = {
        name: ONE_BY_ONE / statistics.median(wall for _, wall in rounds[1:])
        for name, rounds in times.items()
    }
    for name, rounds in times.items():
        submitting = statistics.median(loop for loop, _ in rounds[1:])
        yield {
            "case": f"calls of 0 ms, submitted one by one, {WORKERS} workers",
            "system": name,
            "calls_per_s": round(rate[name], 1),
            "of_executor": round(rate[name] / rate["ProcessPoolExecutor"], 3),
            "us_per_submit": round(submitting / ONE_BY_ONE * 1e6, 1),
        }


def _loop(system: Executor) -> tuple[float, float]:
    """Return the seconds until all calls are submitted, and until all have ended."""
    begin = time.perf_counter()
    futures = [system.submit(compute, 0.0) for _ in range(ONE_BY_ONE)]
    submitted = time.perf_counter() - begin
    for future in futures:
        future.result()
    return submitted, time.perf_counter() - begin
