"""First assignments: the largest job first, to where it is done earliest or costs least."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats, Ints


def largest_first(seconds: Floats, free_at: Floats) -> Ints:
    """Give each job to the machine that is done with it earliest."""
    ends = free_at.copy()
    chosen = np.empty(len(seconds), dtype=np.int64)
    for job in _by_size(seconds):
        after = ends + seconds[job]
        machine = int(after.argmin())
        ends[machine] = after[machine]
        chosen[job] = machine
    return chosen


def cheapest_in_time(
    seconds: Floats, free_at: Floats, prices: Floats, time: float
) -> Ints:
    """Give each job to the machine where it pays least of those that stay within `time`.

    Where none does, to the one that is done with it earliest. At the prices of the
    relaxed program this wastes next to nothing: large jobs go where they are served
    best, and the small ones fill what is left.
    """
    ends = free_at.copy()
    asked = np.maximum(prices, 1e-12)
    chosen = np.empty(len(seconds), dtype=np.int64)
    for job in _by_size(seconds):
        after = ends + seconds[job]
        costs = np.where(after <= time, asked * seconds[job], np.inf)
        machine = int(costs.argmin())
        if after[machine] > time:
            machine = int(after.argmin())
        ends[machine] = after[machine]
        chosen[job] = machine
    return chosen


def finish_of(machines: Ints, seconds: Floats, free_at: Floats) -> float:
    """Return when the last machine with a job is done, in seconds."""
    if not len(machines):
        return 0.0
    own = seconds[np.arange(len(machines)), machines]
    ends = free_at + np.bincount(machines, own, len(free_at))
    return float(ends[np.unique(machines)].max())


def _by_size(seconds: Floats) -> list[int]:
    order: list[int] = np.argsort(-seconds.min(axis=1), kind="stable").tolist()
    return order
