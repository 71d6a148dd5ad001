"""Assignment of jobs to machines such that the last is done early: bound, plan, ratio.

Two ways. By rounding, as the papers have it: the relaxed program's vertex, made a
pseudo-forest, rounded; at most twice the bound. By prices: jobs go, largest first, to
the machine where they cost least at the relaxed program's prices, and moves and swaps
even out what is left; its ratio is known when it is done, and where it were above the
limit, rounding is tried as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hetsched.planning.batch.bisection import bisect
from hetsched.planning.batch.descent import Descent
from hetsched.planning.batch.forest import pseudo_forest
from hetsched.planning.batch.greedy import cheapest_in_time, finish_of, largest_first
from hetsched.planning.batch.relaxation import Relaxed, relax
from hetsched.planning.batch.rounding import round_split
from hetsched.planning.batch.splitting import Split, split_at

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats, Ints

GUARANTEE = 2.0
GOOD_ENOUGH = 1.0005
"""Improvement ends here, as a multiple of the bound."""


@dataclass(frozen=True, slots=True)
class Effort:
    """The effort of a search for an assignment.

    Attributes:
        way: `prices` or `rounding`.
        improve: whether moves and swaps follow.
        solver: `direct` or `bisection`: how rounding finds the least time.
        most: rounding gives a job to the machine with most of it (Algorithm 2 of the
            TPDS paper); False: to any (Algorithm 1 of the ICC paper).
        steps: of the improvement, at most.
        solver_seconds: the time of one call of HiGHS, at most.

    """

    way: str = "prices"
    improve: bool = True
    solver: str = "direct"
    most: bool = True
    steps: int = 2000
    solver_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Assignment:
    """A machine for each job.

    Attributes:
        machines: (jobs,).
        bound: no assignment is done earlier, seconds.
        time: when this one is done, seconds.

    """

    machines: Ints
    bound: float
    time: float

    @property
    def ratio(self) -> float:
        """Return the greatest possible ratio to the best; 1 where both are 0."""
        return self.time / self.bound if self.bound > 0 else 1.0


def assign(seconds: Floats, free_at: Floats, effort: Effort) -> Assignment:
    """Assign each job to a machine where it can run.

    Args:
        seconds: (jobs, machines); infinite where a job cannot run; each job can somewhere.
        free_at: when each machine is free, seconds.
        effort: how.

    """
    if not len(seconds):
        return Assignment(np.empty(0, dtype=np.int64), 0.0, 0.0)
    if len(seconds) == 1:  # the greedy choice is the best one, and needs no program
        machines = largest_first(seconds, free_at)
        time = finish_of(machines, seconds, free_at)
        return Assignment(machines, time, time)
    relaxed = relax(seconds, free_at)
    if effort.way == "rounding":
        machines, bound = _rounded(seconds, free_at, relaxed, effort)
    else:
        machines, bound = _priced(seconds, free_at, relaxed), relaxed.bound
    found = _finished(machines, seconds, free_at, (bound, relaxed.prices, effort))
    if found.ratio > GUARANTEE and effort.way != "rounding":
        machines, _ = _rounded(seconds, free_at, relaxed, effort)
        other = _finished(machines, seconds, free_at, (bound, relaxed.prices, effort))
        found = min(found, other, key=lambda each: each.time)
    return found


def _priced(seconds: Floats, free_at: Floats, relaxed: Relaxed) -> Ints:
    """Take the best of three greedy assignments; the first that is good enough."""
    bound = relaxed.bound
    best = largest_first(seconds, free_at)
    least = finish_of(best, seconds, free_at)
    for room in (1.0, 1.002):
        if least <= GOOD_ENOUGH * bound:
            break
        tried = cheapest_in_time(seconds, free_at, relaxed.prices, room * bound)
        time = finish_of(tried, seconds, free_at)
        if time < least:
            best, least = tried, time
    return best


def _rounded(
    seconds: Floats, free_at: Floats, relaxed: Relaxed, effort: Effort
) -> tuple[Ints, float]:
    """Round a vertex; return the bound with it, which the bisection may have found.

    The columns of a relaxed program that is not sharp may not do for a good plan.
    """
    if effort.solver == "bisection" or not relaxed.is_sharp:
        found = bisect(seconds, free_at, solver_seconds=effort.solver_seconds)
        bound, time, split = found.low, found.high, found.split
    else:
        bound, time = relaxed.bound, relaxed.time
        split = _vertex(seconds, free_at, relaxed, effort.solver_seconds)
    if split is None:  # the solver's time was up: this plan is valid, too
        return largest_first(seconds, free_at), bound
    forest = pseudo_forest(split, seconds, free_at, time, effort.solver_seconds)
    return round_split(forest, len(seconds), most=effort.most), bound


def _vertex(
    seconds: Floats, free_at: Floats, relaxed: Relaxed, solver_seconds: float
) -> Split | None:
    """Find a vertex over the columns of the relaxed program only: they suffice."""
    allowed = np.zeros(seconds.shape, dtype=bool)
    np.put_along_axis(allowed, relaxed.machines, values=True, axis=1)
    return split_at(seconds, free_at, allowed, solver_seconds)


def _finished(
    machines: Ints,
    seconds: Floats,
    free_at: Floats,
    known: tuple[float, Floats, Effort],
) -> Assignment:
    bound, prices, effort = known
    if effort.improve:
        descent = Descent(seconds, free_at, machines, prices)
        descent.run(GOOD_ENOUGH * bound, effort.steps)
        machines = descent.machines
    return Assignment(machines, bound, finish_of(machines, seconds, free_at))
