"""The lower bound of the makespan when tasks may be preempted and moved for free.

Lawler and Labetoulle (1978): on unrelated machines the shortest preemptive schedule is
that of a linear program. Here with arrival times: time is cut at the arrivals, and in
each interval a task computes on each machine for some time, but no longer than the
interval lasts in all, and no machine for longer than that. The program is tight for
tasks that can be cut anywhere and moved at no cost, known in advance: no schedule of
real tasks, which follow more rules than these, is shorter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

LARGEST = 1e14
"""Greatest coefficient in seconds: HiGHS refuses 1e15. A shorter time only lowers the bound."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Equal tasks that arrive together.

    Attributes:
        seconds: time of one task on each machine; infinite where it cannot run.
        count: how many there are.
        release: instant of their arrival, in seconds.
        at_once: machines that may do one of them at once.

    """

    seconds: tuple[float, ...]
    count: int = 1
    release: float = 0.0
    at_once: int = 1


def preemptive_makespan(batches: Sequence[Batch], capacities: Sequence[int]) -> float:
    """Solve the program; return the end of the shortest schedule, in seconds.

    Every distinct release is an interval: round releases down to a few (which can only
    lower the bound) where there are many.

    Args:
        batches: the tasks; those that can run nowhere are left out.
        capacities: how many tasks each machine serves at full speed at once.

    """
    feasible = [batch for batch in batches if min(batch.seconds) < math.inf]
    if not feasible:
        return 0.0
    starts = sorted({batch.release for batch in feasible})
    program = _Program(starts, capacities)
    for batch in feasible:
        program.add(batch)
    return starts[-1] + program.solve()


class _Program:
    """Collects the rows and columns; one column: seconds of a batch on a machine in an interval."""

    def __init__(self, starts: list[float], capacities: Sequence[int]) -> None:
        self.starts = starts
        self.lengths = [after - before for before, after in pairwise(starts)]
        self.capacities = capacities
        self.limits: list[float] = []
        self.entries: list[tuple[int, int, float]] = []
        self.demands: list[tuple[int, int, float]] = []
        self.wanted: list[float] = []
        self.columns = 1
        """Column 0 is the length of the last interval, which is to be short."""
        self._machines = [
            [self._limit(interval, capacity) for capacity in capacities]
            for interval in range(len(starts))
        ]

    def add(self, batch: Batch) -> None:
        """Enter a batch: it must be computed whole, in the intervals from its release on."""
        demand = len(self.wanted)
        self.wanted.append(float(batch.count))
        for interval in range(self.starts.index(batch.release), len(self.starts)):
            alone = self._limit(interval, batch.count * batch.at_once)
            for machine, seconds in enumerate(batch.seconds):
                if seconds < math.inf:
                    self.demands.append((demand, self.columns, 1.0))
                    spent = min(seconds, LARGEST)
                    self._spend(alone, spent)
                    self._spend(self._machines[interval][machine], spent)
                    self.columns += 1

    def solve(self) -> float:
        """Return the least length of the last interval, in seconds."""
        from scipy.optimize import linprog

        cost = [1.0] + [0.0] * (self.columns - 1)
        found = linprog(
            cost,
            A_ub=_matrix(self.entries, len(self.limits), self.columns),
            b_ub=self.limits,
            A_eq=_matrix(self.demands, len(self.wanted), self.columns),
            b_eq=self.wanted,
            method="highs",
        )
        if not found.success:
            raise ArithmeticError(f"the makespan program failed: {found.message}")
        return float(found.fun)

    def _limit(self, interval: int, capacity: int) -> int:
        """Make a row: the time available in this interval."""
        row = len(self.limits)
        last = interval == len(self.starts) - 1
        self.limits.append(0.0 if last else capacity * self.lengths[interval])
        if last:
            self.entries.append((row, 0, -float(capacity)))
        return row

    def _spend(self, row: int, seconds: float) -> None:
        # a column is a share of the batch: it takes that share of the seconds
        self.entries.append((row, self.columns, seconds))


def _matrix(entries: list[tuple[int, int, float]], rows: int, columns: int) -> Any:
    from scipy.sparse import csr_array

    lines, places, values = zip(*entries, strict=True)
    return csr_array((values, (lines, places)), shape=(rows, columns))
