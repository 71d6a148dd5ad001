"""Repeats a run over seeds, on all cores, and sums up with confidence intervals."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from hetsim.processes import on_all_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hetpapers.figures import Row
    from hetsched.planning.batch.arrays import Floats

Point = TypeVar("Point")
Sample = dict[str, float]


def over_seeds(
    measure: Callable[[Point, int], Sample], points: Sequence[Point], seeds: int
) -> list[list[Sample]]:
    """Measure each point with each seed; a list of samples a point."""
    runs = [(point, seed) for point in points for seed in range(seeds)]
    samples = on_all_cores(partial(_sample, measure), runs)
    return [samples[i * seeds : (i + 1) * seeds] for i in range(len(points))]


def _sample(measure: Callable[[Point, int], Sample], run: tuple[Point, int]) -> Sample:
    return measure(*run)


def summed_up(samples: list[Sample]) -> Row:
    """Mean of each value, and half the width of its 95 % confidence interval, if any."""
    row: Row = {}
    for name in samples[0]:
        values = np.array([sample[name] for sample in samples])
        row[name] = float(values.mean())
        row[f"{name} ±"] = _half_width(values)
    return row


def note_on(seeds: int) -> str:
    """Say what the values of a figure are."""
    if seeds == 1:
        return "one seed; computing times deviate by 20 %, by pair"
    return (
        f"means of {seeds} seeds with 95 % confidence intervals; computing times deviate "
        "by 20 %, by pair"
    )


def _half_width(values: Floats) -> float | None:
    from scipy.stats import t

    if len(values) == 1:
        return None
    deviation = float(values.std(ddof=1))
    root = math.sqrt(len(values))
    return float(t.ppf(0.975, len(values) - 1)) * deviation / root


def improvement(ours: float, theirs: float) -> float:
    """Return the reduction in percent of theirs (equation 7 of the TPDS paper)."""
    return 100 * (theirs - ours) / theirs


def gain(ours: float, theirs: float) -> float:
    """Return the increase in percent of theirs."""
    return 100 * (ours - theirs) / theirs
