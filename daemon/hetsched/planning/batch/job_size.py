"""The baselines of zhao-2018-tpds: SJF and LJF.

Whenever an accelerator is free it gets the next job: with SJF the one that it completes
quickest, with LJF the one that takes longest on average. A transfer runs ahead in what
earlier chosen jobs have left of the links.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from hetsched.planning.batch.executor import timed
from hetsched.planning.batch.network import Network, arrival, send_first
from hetsched.planning.batch.problem import ANYWHERE
from hetsched.planning.batch.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetsched.planning.batch.arrays import Floats
    from hetsched.planning.batch.plan import Plan
    from hetsched.planning.batch.problem import Problem

    Choose = Callable[["Shop", int], int]


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
