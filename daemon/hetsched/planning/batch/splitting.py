"""Split plans with few parts: vertices of the makespan program, by HiGHS's simplex.

A vertex has at most as many positive shares as there are jobs and machines together
(Lemma 1 of zhao-2018-tpds): that is what rounding needs. Each call has a time limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Bools, Floats, Ints

INFEASIBLE, NUMERICAL_DIFFICULTIES = 2, 4
"""Statuses of SciPy's `linprog`."""
LEAST_SHARE = 1e-7
"""Smaller shares are noise of the solver."""


@dataclass(frozen=True, slots=True)
class Split:
    """Which share of which job is on which machine: three arrays, one entry a part."""

    jobs: Ints
    machines: Ints
    shares: Floats

    def part(self, chosen: Bools) -> Split:
        """Keep some of the parts."""
        return Split(self.jobs[chosen], self.machines[chosen], self.shares[chosen])


def split_at(
    seconds: Floats, free_at: Floats, allowed: Bools, solver_seconds: float
) -> Split | None:
    """Find the vertex of least time over the allowed pairs; None: not within the limit.

    Args:
        seconds: (jobs, machines).
        free_at: when each machine is free, seconds.
        allowed: (jobs, machines); each job needs one machine at least.
        solver_seconds: the time that the solver may take.

    """
    from scipy.optimize import linprog

    jobs, machines = np.nonzero(allowed)
    count = len(jobs) + 1  # the last column is T
    open_ = np.flatnonzero(allowed.any(axis=0))
    lines = np.searchsorted(open_, machines)
    cost = np.zeros(count)
    cost[-1] = 1.0
    found = linprog(
        cost,
        A_ub=_loads(seconds[jobs, machines], lines, len(open_), with_time=True),
        b_ub=-free_at[open_],
        A_eq=_sums(jobs, len(seconds), count),
        b_eq=np.ones(len(seconds)),
        method="highs-ds",
        options={"time_limit": solver_seconds},
    )
    if found.x is None or not found.success:
        return None
    split = Split(jobs, machines, found.x[:-1])
    return split.part(split.shares > LEAST_SHARE)


def feasible_at(
    seconds: Floats, free_at: Floats, time: float, solver_seconds: float
) -> Split | bool:
    """Ask HiGHS whether `time` suffices: a split plan, False, or True for "unknown"."""
    from scipy.optimize import linprog

    allowed = seconds + free_at <= time
    if not allowed.any(axis=1).all():
        return False
    jobs, machines = np.nonzero(allowed)
    program: dict[str, Any] = {
        "c": np.zeros(len(jobs)),
        "A_ub": _loads(
            seconds[jobs, machines], machines, len(free_at), with_time=False
        ),
        "b_ub": np.maximum(time - free_at, 0.0),
        "A_eq": _sums(jobs, len(seconds), len(jobs)),
        "b_eq": np.ones(len(seconds)),
        "options": {"time_limit": solver_seconds},
    }
    found = linprog(method="highs", **program)
    if found.status == NUMERICAL_DIFFICULTIES:
        # the simplex method does not notice that some small programs are infeasible
        found = linprog(method="highs-ipm", **program)
    if found.success:
        split = Split(jobs, machines, found.x)
        return split.part(split.shares > LEAST_SHARE)
    return bool(found.status != INFEASIBLE)


def _loads(own: Floats, lines: Ints, count: int, *, with_time: bool) -> Any:
    from scipy.sparse import csr_array

    places = np.arange(len(own))
    if with_time:
        lines = np.concatenate([lines, np.arange(count)])
        places = np.concatenate([places, np.full(count, len(own))])
        own = np.concatenate([own, -np.ones(count)])
    width = int(places[-1]) + 1 if len(places) else 0
    return csr_array((own, (lines, places)), shape=(count, width))


def _sums(jobs: Ints, count: int, width: int) -> Any:
    from scipy.sparse import csr_array

    ones = np.ones(len(jobs))
    return csr_array((ones, (jobs, np.arange(len(jobs)))), shape=(count, width))
