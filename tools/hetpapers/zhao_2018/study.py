"""Repeats a run over seeds in two processes, and sums up with confidence intervals."""

from __future__ import annotations

import math
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hetpapers.figures import Row
    from hetsched.planning.batch.arrays import Floats

Point = TypeVar("Point")
Sample = dict[str, float]

FEW = 4
"""Number of runs up to which one process suffices."""


def over_seeds(
    measure: Callable[[Point, int], Sample], points: Sequence[Point], seeds: int
) -> list[list[Sample]]:
    """Measure each point with each seed; a list of samples a point."""
    runs = [(point, seed) for point in points for seed in range(seeds)]
    if len(runs) <= FEW:
        samples = [measure(*run) for run in runs]
    else:
        samples = _in_processes(measure, runs)
    return [samples[i * seeds : (i + 1) * seeds] for i in range(len(points))]


def _in_processes(
    measure: Callable[[Point, int], Sample], runs: list[tuple[Point, int]]
) -> list[Sample]:
    workers = min(len(os.sched_getaffinity(0)), len(runs), 8)
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, context, threadpool_limits, (1,)) as pool:
        return list(pool.map(measure, *zip(*runs, strict=True)))


def summed_up(samples: list[Sample]) -> Row:
    """Mean of each value, and half the width of its 95 % confidence interval."""
    row: Row = {}
    for name in samples[0]:
        values = np.array([sample[name] for sample in samples])
        row[name] = float(values.mean())
        row[f"{name} ±"] = _half_width(values)
    return row


def _half_width(values: Floats) -> float:
    from scipy.stats import t

    if len(values) == 1:
        return 0.0
    deviation = float(values.std(ddof=1))
    root = math.sqrt(len(values))
    return float(t.ppf(0.975, len(values) - 1)) * deviation / root


def improvement(ours: float, theirs: float) -> float:
    """Return the reduction in percent of theirs (equation 7 of the TPDS paper)."""
    return 100 * (theirs - ours) / theirs


def gain(ours: float, theirs: float) -> float:
    """Return the increase in percent of theirs."""
    return 100 * (ours - theirs) / theirs
