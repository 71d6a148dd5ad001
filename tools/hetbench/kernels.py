"""The CPU kernels beside the libraries: the share of 20 runs in which ours is faster.

Ours and the baseline take turns, the first of a pair in turn as well, so that a busy machine
disturbs both alike. Before each run the threads of the other side fall asleep, and one short
call that does not count brings the data into the caches.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import cv2
import numba
import numpy as np

from hetapps.chains import generate_chain
from hetapps.tables import generate_table
from hetbench.kernels_correlation import ours as correlate
from hetbench.kernels_gaussian_blur import calls as blurs
from hetbench.kernels_heat import opencv
from hetbench.kernels_heat import ours as heat
from hetbench.kernels_markov import NEVER, baseline_product
from hetbench.machine import await_quiet
from hetkernels.markov.cpu import CpuWalk
from hetkernels.markov.layout import scratch, start
from libtask.devices import open_device
from libtask.messages import DeviceSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RUNS = 20
WANTED = 19
"""Runs of 20 in which ours has to be at least as fast."""
RUN_SECONDS = 0.05
"""A run repeats calls for this time, as long as a strip of hetd, and takes their mean."""
DECIDED = 60
"""Calls after which a kernel has chosen among its variants, at any size here."""
DECIDING_SECONDS = 0.5
LONG_SECONDS = 0.03
"""Kernels above this duration fill the caches themselves."""
THREADS = len(os.sched_getaffinity(0))

STRIP_ENTRIES = 1 << 28
"""Entries of a strip of a chain: some ten milliseconds; hetd's strips take 50."""

BLURS = (
    (256, "uint8", 1.0),
    (256, "uint8", 2.0),
    (256, "uint8", 5.0),
    (1024, "uint8", 1.0),
    (1024, "uint8", 2.0),
    (4096, "uint8", 1.0),
    (4096, "uint8", 2.0),
    (4096, "uint8", 5.0),
    (4096, "uint16", 1.0),
    (256, "float32", 1.0),
    (4096, "float32", 1.0),
    (4096, "float32", 5.0),
)
"""(side, type, sigma)"""
CHAINS = (
    (512, 1.0, "float32"),
    (1000, 1.0, "float32"),
    (2048, 1.0, "float32"),
    (4096, 1.0, "float32"),
    (8192, 1.0, "float32"),
    (4096, 1.0, "float64"),
    (100_000, 1e-4, "float32"),
    (1_000_000, 8e-6, "float32"),
)
"""(states, density, type)"""
TABLES = (
    (4_096, 2_048, "float32"),
    (4_096, 2_048, "float64"),
    (8_192, 3_000, "float32"),
    (20_000, 1_000, "float32"),
    (20_000, 1_000, "float64"),
    (100_000, 200, "float32"),
    (100_000, 200, "float64"),
    (10_000, 20, "float64"),
    (1_000_000, 20, "float32"),
    (1_000_000, 20, "float64"),
)
"""(rows, columns, type)"""
PLATES = ((512, 16), (4096, 4))
"""(side, steps)"""


class Pair(NamedTuple):
    """Two calls that compute the same.

    Attributes:
        kernel: ours.
        size: of what it computes.
        baseline: what ours is compared with: a library and its function.
        ours: a call of ours.
        theirs: a call of the baseline.

    """

    kernel: str
    size: str
    baseline: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]


def run() -> list[dict[str, Any]]:
    device = open_device(DeviceSpec(name="cpu", kind="cpu", threads=THREADS))
    device.mark()()
    numba.set_num_threads(THREADS)
    cv2.setNumThreads(THREADS)
    rows = []
    for pair in pairs(device):
        rows.append(compare(pair))
        print(
            "    {kernel}, {size}: {ratio} x {baseline}".format(**rows[-1]),
            file=sys.stderr,
        )
    return rows


def pairs(device: Any) -> Iterator[Pair]:
    """Make the pairs one after the other: together they would not fit into memory."""
    for side, dtype, sigma in BLURS:
        yield from _blur(side, dtype, sigma)
    for n, density, dtype in CHAINS:
        yield _markov(n, density, dtype)
    for rows, columns, dtype in TABLES:
        yield _correlation(device, rows, columns, dtype)
    for side, steps in PLATES:
        yield _heat(side, steps)


def compare(pair: Pair) -> dict[str, Any]:
    """Run both in turn; count the runs in which ours is at least as fast."""
    await_quiet()
    until = time.perf_counter() + DECIDING_SECONDS
    for _ in range(DECIDED):
        pair.ours()
        if time.perf_counter() > until:
            break
    cold = _once(pair.theirs) < LONG_SECONDS
    mine: list[float] = []
    theirs: list[float] = []
    for turn in range(RUNS):
        both = [(pair.ours, mine), (pair.theirs, theirs)]
        for call, times in both if turn % 2 else both[::-1]:
            times.append(_seconds(call, cold=cold))
    ratios = [other / own for other, own in zip(theirs, mine, strict=True)]
    as_fast = sum(ratio >= 1 for ratio in ratios)
    return {
        "kernel": pair.kernel,
        "size": pair.size,
        "baseline": pair.baseline,
        "ours_s": round(statistics.median(mine), 7),
        "baseline_s": round(statistics.median(theirs), 7),
        "ratio": round(statistics.median(ratios), 3),
        "lowest_ratio": round(min(ratios), 3),
        "runs": RUNS,
        "at_least_as_fast": as_fast,
        "holds": as_fast >= WANTED,
        "threads": THREADS,
        "load": round(os.getloadavg()[0], 2),
    }


def _seconds(call: Callable[[], Any], *, cold: bool) -> float:
    await_quiet()
    if cold:
        call()
    begin = time.perf_counter()
    calls = 0
    while calls == 0 or time.perf_counter() - begin < RUN_SECONDS:
        call()
        calls += 1
    return (time.perf_counter() - begin) / calls


def _once(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _heat(side: int, steps: int) -> Pair:
    grid = np.random.default_rng(side).random((side, side), dtype=np.float32)
    size = f"{side} x {side}, {steps} steps"
    baseline = "opencv, filter2D"
    return Pair(
        "heat", size, baseline, lambda: heat(grid, steps), lambda: opencv(grid, steps)
    )


def _blur(side: int, dtype: str, sigma: float) -> Iterator[Pair]:
    scale = {"uint8": 255, "uint16": 65535}.get(dtype, 1)
    random = np.random.default_rng(0).random((side, side), dtype=np.float32)
    named = blurs((random * scale).astype(dtype), sigma)
    for baseline in ("opencv, sepFilter2D", "opencv, GaussianBlur"):
        size = f"{side} x {side} {dtype}, sigma {sigma:g}"
        yield Pair("gaussian-blur", size, baseline, named["ours"], named[baseline])


def _markov(n: int, density: float, dtype: str) -> Pair:
    chain = generate_chain(n, density, 0.5, 0, np.dtype(dtype))
    walker = CpuWalk(chain, start(chain), scratch(chain), tolerance=NEVER)
    baseline, product = baseline_product(chain)
    entries = chain.arrays[-1].size
    steps = max(1, STRIP_ENTRIES // entries)

    def products() -> None:
        for _ in range(steps):
            product()

    size = f"{n} states, {entries} entries, {dtype}, {steps} steps"
    kernel = f"markov-{chain.form}"
    return Pair(kernel, size, baseline, lambda: walker.steps(steps), products)


def _correlation(device: Any, rows: int, columns: int, dtype: str) -> Pair:
    table = generate_table(rows, columns, 0).values.astype(dtype)
    return Pair(
        "correlation",
        f"{rows} x {columns}, {dtype}",
        "np.corrcoef",
        lambda: correlate(device, table, 1 << 30),
        lambda: np.corrcoef(table, rowvar=False, dtype=table.dtype),
    )
