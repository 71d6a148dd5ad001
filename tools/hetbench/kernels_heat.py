"""Time the heat kernel on this CPU beside what else one would use.

All calls advance the same float32 grid by the same steps on the same threads. They
take turns, and medians are compared, so that a busy machine disturbs all alike.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING, Any

import cv2
import numba
import numpy as np
from numba import njit, prange

from hetkernels.heat.cpu import heat_steps
from hetkernels.heat.plate import Plate

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

ALPHA = np.float32(0.2)
SIZES = ((512, 400), (2048, 64), (4096, 64), (10240, 32))
"""(n, steps)"""
ROUNDS = 7
THREADS = len(os.sched_getaffinity(0))


@njit(parallel=True, cache=True)
def one_step(now: NDArray[np.float32], after: NDArray[np.float32]) -> None:
    rows, columns = now.shape
    four = np.float32(4)
    for i in prange(1, rows - 1):
        for j in range(1, columns - 1):
            around = (now[i - 1, j] + now[i + 1, j]) + (now[i, j - 1] + now[i, j + 1])
            after[i, j] = now[i, j] + ALPHA * (around - four * now[i, j])


def plain_numba(grid: NDArray[np.float32], steps: int) -> None:
    now, after = grid, grid.copy()
    for _ in range(steps):
        one_step(now, after)
        now, after = after, now
    if now is not grid:
        grid[:] = now


def numpy_slices(grid: NDArray[np.float32], steps: int) -> None:
    inner = grid[1:-1, 1:-1]
    for _ in range(steps):
        around = grid[:-2, 1:-1] + grid[2:, 1:-1]
        around += grid[1:-1, :-2] + grid[1:-1, 2:]
        around -= 4 * inner
        around *= ALPHA
        inner += around


def opencv(grid: NDArray[np.float32], steps: int) -> None:
    """Filter with 3 x 3 weights; keep the edges."""
    weights = np.array([[0, ALPHA, 0], [ALPHA, 1 - 4 * ALPHA, ALPHA], [0, ALPHA, 0]])
    weights = weights.astype(np.float32)
    for _ in range(steps):
        grid[1:-1, 1:-1] = cv2.filter2D(grid, -1, weights)[1:-1, 1:-1]


def ours(grid: NDArray[np.float32], steps: int) -> None:
    rows, columns = grid.shape
    plate = Plate(rows, columns, float(ALPHA), insulated=False)
    heat_steps(grid, plate, steps, THREADS)


BASELINES: dict[str, tuple[Callable[[Any, int], None], int]] = {
    "numba, plain parallel": (plain_numba, 1),
    "numpy, slices": (numpy_slices, 16),
    "opencv, filter2D": (opencv, 16),
}
"""Name -> (call, how many times fewer steps it is timed with)."""


def timed(call: Callable[[Any, int], None], grid: Any, steps: int) -> float:
    start = time.perf_counter()
    call(grid, steps)
    return time.perf_counter() - start


def compare(n: int, steps: int) -> list[dict[str, Any]]:
    grid = np.random.default_rng(n).random((n, n), dtype=np.float32)
    ours(grid, 2)
    plain_numba(grid, 2)
    seconds: dict[str, list[float]] = {name: [] for name in ("ours", *BASELINES)}
    for _ in range(ROUNDS):
        seconds["ours"].append(timed(ours, grid, steps))
        for name, (call, fewer) in BASELINES.items():
            less = max(2, steps // fewer)
            seconds[name].append(timed(call, grid, less) * steps / less)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return [row(n, steps, medians, baseline) for baseline in BASELINES]


def row(n: int, steps: int, medians: dict[str, float], baseline: str) -> dict[str, Any]:
    mine, theirs = medians["ours"], medians[baseline]
    return {
        "kernel": "heat",
        "size": f"{n} x {n}, {steps} steps",
        "ours_s": round(mine, 6),
        "baseline": baseline,
        "baseline_s": round(theirs, 6),
        "ratio": round(theirs / mine, 2),
        "threads": THREADS,
        "note": f"float32, fixed edges; ours {n * n * steps / mine / 1e9:.2f} Gcell/s",
    }


def run() -> list[dict[str, Any]]:
    numba.set_num_threads(THREADS)
    cv2.setNumThreads(THREADS)
    return [line for n, steps in SIZES for line in compare(n, steps)]
