"""The least time of the restricted program as the paper finds it: bisection with HiGHS.

Algorithm 1 of zhao-2018-tpds. Kept as the reference for `relaxation`, which finds the
same time directly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.planning.batch.greedy import finish_of, largest_first
from hetsched.planning.batch.relaxation import fastest_fit
from hetsched.planning.batch.splitting import Split, feasible_at

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats


@dataclass(frozen=True, slots=True)
class Bisected:
    """The result of the bisection.

    Attributes:
        low: no plan is shorter, seconds.
        high: a split plan takes this long, seconds.
        split: that plan; None: the solver had no time to find it.
        finished: False: a solver call met its time limit, the bracket is wider than asked.

    """

    low: float
    high: float
    split: Split | None
    finished: bool


def bisect(
    seconds: Floats,
    free_at: Floats,
    accuracy: float = 1e-3,
    solver_seconds: float = 60.0,
) -> Bisected:
    """Narrow the bracket down to a share `accuracy` of its upper end.

    The paper starts from a random assignment; we start from a greedy one, which saves
    the bisection a step or two.
    """
    low = fastest_fit(seconds, free_at)
    high = finish_of(largest_first(seconds, free_at), seconds, free_at)
    split: Split | None = None
    first = feasible_at(seconds, free_at, low, solver_seconds)
    if isinstance(first, Split):
        return Bisected(low, low, first, finished=True)
    while high - low > accuracy * high:
        middle = 0.5 * (low + high)
        answer = feasible_at(seconds, free_at, middle, solver_seconds)
        if answer is True:
            return Bisected(low, high, split, finished=False)
        if isinstance(answer, Split):
            high, split = middle, answer
        else:
            low = middle
    if split is None:
        # the greedy plan, which gave the first `high`, was never bettered
        last = feasible_at(seconds, free_at, high, solver_seconds)
        split = last if isinstance(last, Split) else None
    return Bisected(low, high, split, finished=True)
