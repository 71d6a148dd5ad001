"""The baselines of zhao-2018-icc: SCT and MMI.

Both think of each accelerator as having its responder's link to itself, and send the
shortest transfer first (Theorem 3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetsched.planning.batch.executor import carry_out
from hetsched.planning.batch.flow_shop import shortest_transfer_first

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats, Ints
    from hetsched.planning.batch.plan import Plan
    from hetsched.planning.batch.problem import Problem


def smallest_completion(problem: Problem) -> Plan:
    """SCT: each job goes where it is executed quickest, whatever else is there."""
    transfers = problem.transfer_seconds()
    chosen = (transfers + problem.seconds).argmin(axis=1)
    return by_transfer(problem, chosen)


def makespan_increase(problem: Problem) -> Plan:
    """MMI: job by job, the one that makes the makespan grow least, where it does.

    Where several make it grow alike (most do not at all), the one that is done first.
    """
    growth = _Growth(problem)
    chosen = np.full(problem.jobs, -1, dtype=np.int64)
    for _ in range(problem.jobs):
        job, machine = growth.least()
        chosen[job] = machine
        growth.give(job, machine)
    return by_transfer(problem, chosen)


def by_transfer(problem: Problem, accelerators: Ints) -> Plan:
    """Carry an assignment out in the order of Theorem 3."""
    transfers = problem.transfer_seconds()
    own = transfers[np.arange(problem.jobs), accelerators]
    return carry_out(problem, accelerators, shortest_transfer_first(own))


class _Growth:
    """Return when each machine would be done if it got each job, in the order of Theorem 3.

    With transfers a and computations b in order, a machine is done at the greatest of
    free_at + b_1 + ... + b_n and, over k, of a_1 + ... + a_k + b_k + ... + b_n.
    """

    def __init__(self, problem: Problem) -> None:
        self.transfers = problem.transfer_seconds()
        self.seconds = problem.seconds
        self.free_at = problem.free_at
        self.given: list[list[int]] = [[] for _ in range(problem.accelerators)]
        first = np.maximum(self.transfers, self.free_at)
        self.done = first + self.seconds
        self.makespan = 0.0

    def least(self) -> tuple[int, int]:
        """Find the pair with the least growth; it is the pair done first."""
        # a pair that is done first grows the makespan least, and breaks the ties, too
        job, machine = divmod(int(self.done.argmin()), self.done.shape[1])
        return job, machine

    def give(self, job: int, machine: int) -> None:
        """Add a pair; update the other jobs on that machine."""
        self.done[job] = np.inf
        mine = self.given[machine]
        mine.append(job)
        mine.sort(key=lambda each: float(self.transfers[each, machine]))
        waiting = np.flatnonzero(np.isfinite(self.done[:, machine]))
        self.done[waiting, machine] = self._with_each(machine, waiting)

    def _with_each(self, machine: int, jobs: Ints) -> Floats:
        """Return when the machine is done with what it has and each of the jobs in turn."""
        mine = self.given[machine]
        sent, computed = self.transfers[mine, machine], self.seconds[mine, machine]
        there = np.cumsum(sent)
        after = np.cumsum(computed[::-1])[::-1]
        paths = there + after
        new, time = self.transfers[jobs, machine], self.seconds[jobs, machine]
        place = np.searchsorted(sent, new, side="right")
        before = np.concatenate([[-np.inf], np.maximum.accumulate(paths)])[place]
        behind = np.concatenate([np.maximum.accumulate(paths[::-1])[::-1], [-np.inf]])
        own = np.concatenate([[0.0], there])[place] + new + time
        own = own + np.concatenate([after, [0.0]])[place]
        busy = self.free_at[machine] + after[0] + time
        done = np.maximum(before + time, behind[place] + new)
        return np.asarray(np.maximum.reduce([done, own, busy]))
