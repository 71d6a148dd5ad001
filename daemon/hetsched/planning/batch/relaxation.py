"""The least time of the restricted program, found directly (CIM-LP of zhao-2018-tpds).

A job may be split, but only over machines where the whole of it would fit into T. The
paper finds the least such T by bisection, one linear program a step (`bisection`). Here
T rises from below: at each T the prices of a small program prove by how much the true
T is greater, and which columns it needs. It ends when a split plan is as short as
the bound, to the accuracy wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hetsched.planning.batch.interior import Interior
from hetsched.planning.batch.pricing import cheapest, proven, uniform_prices

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats, Ints

ACCURACY = 2e-4
SHARP = 1e-3
"""As accurate as the paper's bisection."""
WIDTH = 6
MOST_ROUNDS = 12
PRICE_FLOOR = 0.7
"""The first round lowers no price below this share of what it was; later ones do."""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A split plan and a bound.

    Attributes:
        bound: no plan is shorter than this, in seconds.
        time: how long the split plan takes; it uses no machine where a whole job would
            not fit into `time`.
        prices: of the machines' time; they sum to 1.
        machines: the columns, (jobs, columns); a machine may be named twice.
        shares: how much of the job is there, same shape; a row sums to 1.

    """

    bound: float
    time: float
    prices: Floats
    machines: Ints
    shares: Floats

    @property
    def is_sharp(self) -> bool:
        """Whether the split plan is about as short as the bound."""
        return self.time <= self.bound * (1 + SHARP)


def fastest_fit(seconds: Floats, free_at: Floats) -> float:
    """Return when the slowest job is done if each had the machine to itself, in seconds."""
    return float((seconds + free_at).min(axis=1).max(initial=0.0))


def relax(
    seconds: Floats,
    free_at: Floats,
    accuracy: float = ACCURACY,
    rounds: int = MOST_ROUNDS,
) -> Relaxed:
    """Solve the restricted program to this accuracy, in at most `rounds` rounds.

    Args:
        seconds: (jobs, machines); infinite where a job cannot run.
        free_at: when each machine is free, in seconds.
        accuracy: share by which `time` may be above `bound`.
        rounds: of columns; when they are used up, `bound` holds, and is less sharp.

    """
    bound = fastest_fit(seconds, free_at)
    if bound <= 0:
        return _instant(seconds, free_at)
    found = _round(seconds, free_at, bound, uniform_prices(seconds))
    best = found
    for number in range(1, rounds):
        if best.time <= best.bound * (1 + accuracy):
            break
        found = _round(seconds, free_at, best.bound, found.prices, number)
        bound = max(best.bound, found.bound)
        best = _with_bound(min(best, found, key=lambda each: each.time), bound)
    return best


def _instant(seconds: Floats, free_at: Floats) -> Relaxed:
    """Place jobs that are done at once."""
    machines = (seconds + free_at).argmin(axis=1)[:, None]
    prices = np.full(len(free_at), 1.0 / len(free_at))
    return Relaxed(0.0, 0.0, prices, machines, np.ones(machines.shape))


def _round(
    seconds: Floats,
    free_at: Floats,
    bound: float,
    prices: Floats,
    number: int = 0,
) -> Relaxed:
    """Solve for the cheapest columns that fit into `bound`; learn prices and a bound."""
    limit = bound * (1 + 1e-9)
    open_ = np.flatnonzero(free_at < limit)
    inner, free = seconds[:, open_], free_at[open_]
    if len(open_) == len(free_at):
        inner = seconds
    width = min(WIDTH + 2 * number, len(open_))
    columns = cheapest(prices[open_], inner, (free, limit), width)
    kept = np.take_along_axis(inner, columns, axis=1)
    point = Interior(kept, columns, free).solve(prices[open_], ACCURACY / 4)
    # a machine with too few columns to fill it costs nothing here: not so in the whole
    floor = PRICE_FLOOR ** (4**number)
    asked = np.maximum(point.prices, floor * prices[open_])
    asked /= asked.sum()
    everywhere = np.zeros(len(free_at))
    everywhere[open_] = asked
    time = max(point.time, bound)
    if time > bound * (1 + ACCURACY):
        # over all machines: those still busy at `bound` may help in a longer time
        bound = proven(everywhere, seconds, free_at, (bound, time))
    return Relaxed(bound, time, everywhere, open_[columns], point.shares)


def _with_bound(relaxed: Relaxed, bound: float) -> Relaxed:
    return Relaxed(
        bound, relaxed.time, relaxed.prices, relaxed.machines, relaxed.shares
    )
