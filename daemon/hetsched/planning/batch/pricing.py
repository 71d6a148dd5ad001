"""Prices of the machines' time: they give cheap columns, and a bound without a solver.

A job pays for the seconds that it takes. Whatever prices p >= 0 with sum 1 are asked,
no schedule is shorter than what all jobs pay where they pay least (weak duality):

    T  >=  g(T) = sum over jobs i of min over j with free_j + e_ij <= T of p_j e_ij
                  + sum over j of p_j free_j

g falls as T grows, so the least T with g(T) <= T bounds the restricted program too.
Big matrices are read in blocks of jobs that fit into the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.planning.batch.arrays import Floats, Ints

BLOCK = 1 << 18
"""Entries of a block: 2 MiB."""

TIE_BREAK = 0.02
"""Columns are chosen after raising costs by up to this share at random: where machines
differ by a factor only, all columns cost the same, and every machine must be met."""

SAMPLE = 2000
"""Jobs that the first prices are drawn from."""

HALVINGS = 12


def uniform_prices(seconds: Floats) -> Floats:
    """Prices at which an average job pays the same on each machine."""
    sample = seconds[:: max(1, len(seconds) // SAMPLE)]
    able = np.isfinite(sample)
    logs = np.where(able, np.log(np.where(able, np.maximum(sample, 1e-300), 1.0)), 0.0)
    mean = logs.sum(axis=0) / np.maximum(able.sum(axis=0), 1)
    prices = np.exp(mean.min() - mean)
    return np.asarray(prices / prices.sum(), dtype=np.float64)


def value_at(prices: Floats, seconds: Floats, free_at: Floats, time: float) -> float:
    """Evaluate g(time), in seconds; infinite where a job fits on no machine."""
    total = float(prices @ free_at)
    for rows in _blocks(seconds):
        block = seconds[rows]
        costs = np.where(block + free_at <= time, block, np.inf) * _positive(prices)
        total += float(costs.min(axis=1).sum())
    return total


def proven(prices: Floats, seconds: Floats, free_at: Floats, ends: tuple[float, float]) -> float:  # fmt: skip
    """Return the greatest bound that these prices prove, between two times.

    Args:
        prices: one a machine; they sum to 1.
        seconds: (jobs, machines).
        free_at: seconds, one a machine.
        ends: a time that is a bound already, and one that a plan reaches.

    """
    low, high = ends
    low = max(low, min(value_at(prices, seconds, free_at, high), high))
    if high - low > 1e-3 * high and value_at(prices, seconds, free_at, low) <= low:
        return low
    for _ in range(HALVINGS):
        if high - low <= 1e-6 * high:
            break
        middle = 0.5 * (low + high)
        value = value_at(prices, seconds, free_at, middle)
        if value > middle:
            low = middle
        else:
            high, low = middle, max(low, value)
    # up to the next time at which a job fits on one more machine, g is as at `low`
    value = value_at(prices, seconds, free_at, low)
    if value <= low:
        return low
    return min(value, _next_fit(seconds, free_at, low), ends[1])


def _next_fit(seconds: Floats, free_at: Floats, time: float) -> float:
    """Return the first time after `time` at which a job fits on another machine."""
    later = np.inf
    for rows in _blocks(seconds):
        done = seconds[rows] + free_at
        later = min(later, float(done.min(initial=np.inf, where=done > time)))
    return later


def cheapest(prices: Floats, seconds: Floats, fits: tuple[Floats, float], width: int) -> Ints:  # fmt: skip
    """Choose for each job the machines where it pays least; (jobs, width).

    Args:
        prices: one a machine.
        seconds: (jobs, machines).
        fits: when each machine is free, and the time by which a job must be done.
        width: how many; where fewer fit, the cheapest is named again.

    """
    free_at, time = fits
    noise = np.random.default_rng(len(seconds)).random(_block_shape(seconds))
    raised = (1 + TIE_BREAK * noise) * _positive(prices)
    chosen = np.empty((len(seconds), width), dtype=np.int64)
    for rows in _blocks(seconds):
        block = seconds[rows]
        costs = np.where(block + free_at <= time, block, np.inf) * raised[: len(block)]
        chosen[rows] = _least(costs, width)
    return chosen


def _least(costs: Floats, width: int) -> Ints:
    machines = np.argpartition(costs, width - 1, axis=1)[:, :width]
    best = costs.argmin(axis=1)[:, None]
    usable = np.isfinite(np.take_along_axis(costs, machines, axis=1))
    return np.where(usable, machines, best)


def _positive(prices: Floats) -> Floats:
    """Keep prices off 0: a job that fits nowhere must not seem free (0 times infinity)."""
    return np.maximum(prices, 1e-12)


def _block_shape(seconds: Floats) -> tuple[int, int]:
    jobs, machines = seconds.shape
    return min(jobs, max(1, BLOCK // machines)), machines


def _blocks(seconds: Floats) -> Iterator[slice]:
    size = _block_shape(seconds)[0]
    for first in range(0, len(seconds), size):
        yield slice(first, first + size)
