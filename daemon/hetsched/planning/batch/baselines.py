"""The baselines of zhao-2018: SCT and MMI of the ICC paper, SJF and LJF of the TPDS paper.

SCT and MMI assume that each accelerator has its responder's link to itself, and send the
shortest transfer first (Theorem 3).

SJF and LJF give a free accelerator the next job: SJF the one that it completes quickest,
LJF the one that takes longest on average. A transfer runs ahead in the capacity that
earlier jobs have left of the links (`Shop`).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from hetsched.planning.batch.executor import carry_out, timed
from hetsched.planning.batch.flow_shop import shortest_transfer_first
from hetsched.planning.batch.network import Network, arrival, send_first
from hetsched.planning.batch.problem import ANYWHERE
from hetsched.planning.batch.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetsched.planning.batch.arrays import Floats, Ints
    from hetsched.planning.batch.plan import Plan
    from hetsched.planning.batch.problem import Problem

    Choose = Callable[["Shop", int], int]


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


class Shop:
    """The state of a plan while jobs are assigned to accelerators.

    Attributes:
        problem: the batch.
        network: what is left of the links.
        free: when each accelerator is free, seconds.
        waiting: whether each job still waits.

    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.network = Network(problem.links)
        self.free = problem.free_at.astype(np.float64)
        self.waiting = np.ones(problem.jobs, dtype=bool)
        self._least_transfers = problem.transfer_seconds()
        self._egress_ends = np.zeros(problem.jobs)
        self._egress_first = np.zeros(problem.jobs)
        for requester in set(problem.requesters.tolist()):
            self._look_at(requester)

    def give(self, job: int, accelerator: int) -> Floats:
        """Transfer and compute a job; return the pieces of its transfer."""
        pieces = send_first(self.network, self.problem, job, accelerator)
        start = max(float(self.free[accelerator]), arrival(pieces))
        self.free[accelerator] = start + self.problem.seconds[job, accelerator]
        self.waiting[job] = False
        self._look_at(int(self.problem.requesters[job]))
        return pieces

    def earliest_ends(self, accelerator: int) -> Floats:
        """Return when each job could be done at best: taking each link alone."""
        responder = int(self.problem.responders[accelerator])
        left = self.network.between(responder, ANYWHERE)
        there, first = self._egress_ends, self._egress_first
        if left is not None:
            there = np.maximum(there, left.ends(self.problem.sizes))
            first = np.maximum(first, left.opens())
        there = np.maximum(there, first + self._least_transfers[:, accelerator])
        there = np.where(self.problem.sizes > 0, there, 0.0)
        ends = np.maximum(self.free[accelerator], there)
        ends = ends + self.problem.seconds[:, accelerator]
        return np.where(self.waiting, ends, np.inf)

    def promised_ends(self, job: int) -> Floats:
        """Return when the job could be done on each accelerator at best."""
        start = np.maximum(self.free, self._egress_ends[job])
        start = np.maximum(start, self._least_transfers[job])
        return np.asarray(start + self.problem.seconds[job])

    def end_of(self, job: int, accelerator: int) -> float:
        """Return when the job would be done there."""
        responder = int(self.problem.responders[accelerator])
        requester, size = int(self.problem.requesters[job]), self.problem.sizes[job]
        there = self.network.end(responder, requester, float(size))
        start = max(float(self.free[accelerator]), there)
        return start + float(self.problem.seconds[job, accelerator])

    def _look_at(self, requester: int) -> None:
        """Recompute when the requester's own link could deliver its jobs."""
        if requester == ANYWHERE or not np.isfinite(
            self.problem.links.egress[requester]
        ):
            return
        mine = self.problem.requesters == requester
        left: Profile = self.network.out_of(requester)
        self._egress_ends[mine] = left.ends(self.problem.sizes[mine])
        self._egress_first[mine] = left.opens()


def shortest_job_first(problem: Problem) -> Plan:
    """SJF; of accelerators free at once, the one behind the widest link chooses first."""
    return _hand_out(problem, _quickest, -problem.ingress_of())


def largest_job_first(problem: Problem) -> Plan:
    """LJF; of accelerators free at once, the first in the list chooses first."""
    times = problem.transfer_seconds() + problem.seconds
    able = np.isfinite(times)
    sums = np.where(able, times, 0.0).sum(axis=1)
    average = sums / np.maximum(able.sum(axis=1), 1)

    def largest(shop: Shop, accelerator: int) -> int:
        fits = shop.waiting & able[:, accelerator]
        return int(np.where(fits, average, -1.0).argmax()) if fits.any() else -1

    return _hand_out(
        problem, largest, np.arange(problem.accelerators, dtype=np.float64)
    )


def _quickest(shop: Shop, accelerator: int) -> int:
    """Find the job that is done first; exact, but only for jobs that might be it."""
    bounds = shop.earliest_ends(accelerator)
    best, least = -1, np.inf
    for job in np.argsort(bounds, kind="stable").tolist():
        if bounds[job] >= least:
            break
        end = shop.end_of(job, accelerator)
        if end < least:
            best, least = job, end
    return best


def _hand_out(problem: Problem, choose: Choose, rank: Floats) -> Plan:
    shop = Shop(problem)
    chosen = np.full(problem.jobs, -1, dtype=np.int64)
    transfers = [np.empty((0, 3))] * problem.jobs
    sequence: list[int] = []
    ready = [(float(t), float(r), j) for j, (t, r) in enumerate(zip(problem.free_at, rank, strict=True))]  # fmt: skip
    heapq.heapify(ready)
    while len(sequence) < problem.jobs:
        _, place, accelerator = heapq.heappop(ready)
        job = choose(shop, accelerator)
        if job < 0:
            continue  # nothing that waits can run here
        chosen[job] = accelerator
        transfers[job] = shop.give(job, accelerator)
        sequence.append(job)
        heapq.heappush(ready, (float(shop.free[accelerator]), place, accelerator))
    return timed(problem, chosen, np.array(sequence, dtype=np.int64), transfers)
