"""The gain of awareness of contention on this machine, beside programs that are not ours.

Two memory-bound NumPy programs run all the time. A batch of the four applications runs
through real daemons, in turn under `finish-time`, under `contention-aware` where nothing is
declared to be shared (the same rule without slowdown), and under the same with a belief:
the time of the whole, and the mean time from submission to the end. Only ratios count; the
load of the machine before each run is in the row.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from hetapps.correlation import Correlation
from hetapps.gaussian_blur import GaussianBlur
from hetapps.heat import Heat
from hetapps.markov import Markov
from hetbench.resources import CPU_ONLY
from libtask.daemon.private import private_daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.client.client import Client
    from libtask.task import Task

AWARE = """
[contention]
discover = true
"""
OTHERS = 2
MEMORY_BOUND = """
import numpy
a = numpy.ones(8_000_000)
b = a.copy()
while True:
    numpy.add(a, b, out=b)
"""
ROUNDS = 8
PATIENCE_S = 600.0
KERNELS: dict[str, Task] = {
    "gaussian-blur": GaussianBlur(n=4096, sigma=8.0),
    "heat": Heat(n=2048, steps=200),
    "markov": Markov(n=2048, stay=0.99, tolerance=1e-7, iterations=200),
    "correlation": Correlation(rows=4000, columns=1000),
}


def run() -> list[dict[str, Any]]:
    """Measure; return a row for each case."""
    with private_daemon(CPU_ONLY) as plain, private_daemon(AWARE + CPU_ONLY) as aware:
        cases = {
            "finish-time": (plain, "finish-time"),
            "contention-aware, nothing declared": (plain, "contention-aware"),
            "contention-aware": (aware, "contention-aware"),
        }
        for client in (plain, aware):
            for task in KERNELS.values():
                client.submit(task).result(PATIENCE_S)  # compiles, and is measured
        with _other_programs():
            return _compared(cases)


@contextmanager
def _other_programs() -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(OTHERS):
            program = [sys.executable, "-c", MEMORY_BOUND]
            other = stack.enter_context(subprocess.Popen(program))
            stack.callback(other.kill)
        yield


def _compared(cases: dict[str, tuple[Client, str]]) -> list[dict[str, Any]]:
    """Run the batch in each case in turn; return a row for each."""
    spans: dict[str, list[float]] = {name: [] for name in cases}
    means: dict[str, list[float]] = {name: [] for name in cases}
    loads: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, (client, policy) in cases.items():
            client.policy(policy)
            loads[name].append(os.getloadavg()[0])
            span, mean = _batch(client)
            spans[name].append(span)
            means[name].append(mean)
    usual = statistics.median(means["finish-time"])
    return [
        {
            "figure": f"two of each kernel beside {OTHERS} other programs",
            "case": name,
            "makespan_s": round(statistics.median(spans[name]), 2),
            "mean_completion_s": round(statistics.median(means[name]), 2),
            "against_finish_time": round(statistics.median(means[name]) / usual, 3),
            "of_rounds": [round(each, 2) for each in means[name]],
            "load": [round(each, 1) for each in loads[name]],
        }
        for name in cases
    ]


def _batch(client: Client) -> tuple[float, float]:
    """Run two of each kernel; return the time of the whole and the mean of each, seconds."""
    began = time.time_ns()
    tasks = [client.submit(task) for task in (*KERNELS.values(), *KERNELS.values())]
    for task in tasks:
        task.result(PATIENCE_S)
    infos = [task.info() for task in tasks]
    times = [(info.finished or 0.0) - info.submitted for info in infos]
    return (time.time_ns() - began) / 1e9, statistics.fmean(times)
