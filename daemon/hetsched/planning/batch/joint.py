"""Transfers beside computations: Algorithm 4 of zhao-2018-tpds (NCJM).

Jobs are assigned by their computing time alone, each accelerator takes its shortest job
first, and the job that could start first gets its data first: spread over the time
until then if the links suffice, else as soon as they allow.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from hetsched.planning.batch.executor import timed
from hetsched.planning.batch.network import NO_PIECES, Network, arrival

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats, Ints
    from hetsched.planning.batch.plan import Plan
    from hetsched.planning.batch.problem import Problem


def overlap(problem: Problem, accelerators: Ints, keys: Floats, *, spread: bool = True) -> Plan:  # fmt: skip
    """Transfer each job's data while others compute (lines 3 to 15).

    Args:
        problem: the batch.
        accelerators: of each job.
        keys: each accelerator takes its jobs by rising key.
        spread: a transfer that has time takes all of it, as in the paper; False: it is
            done as soon as can be.

    """
    network = Network(problem.links)
    queues = _queues(accelerators, keys, problem.accelerators)
    ready = [(float(problem.free_at[j]), j) for j, queue in enumerate(queues) if queue]
    heapq.heapify(ready)
    transfers = [NO_PIECES] * problem.jobs
    sequence = []
    while ready:
        due, accelerator = heapq.heappop(ready)
        job = queues[accelerator].pop()
        pieces = _send(network, problem, (job, accelerator), due if spread else 0.0)
        transfers[job] = pieces
        sequence.append(job)
        if queues[accelerator]:
            start = max(due, arrival(pieces))
            end = start + float(problem.seconds[job, accelerator])
            heapq.heappush(ready, (end, accelerator))
    return timed(problem, accelerators, np.array(sequence, dtype=np.int64), transfers)


def _queues(accelerators: Ints, keys: Floats, count: int) -> list[list[int]]:
    """List the jobs of each accelerator, the first one last."""
    queues: list[list[int]] = [[] for _ in range(count)]
    for job in np.argsort(keys, kind="stable")[::-1].tolist():
        queues[int(accelerators[job])].append(job)
    return queues


def _send(
    network: Network, problem: Problem, pair: tuple[int, int], due: float
) -> Floats:
    """Reserve what the job's transfer needs by `due`, or as soon after as can be."""
    job, accelerator = pair
    responder = int(problem.responders[accelerator])
    requester = int(problem.requesters[job])
    left = network.between(responder, requester)
    size = float(problem.sizes[job])
    if left is None or size <= 0:
        return NO_PIECES
    in_time = left.amount_by(due) >= size
    pieces = left.spread(size, due) if in_time else left.first(size)
    network.take(pieces, responder, requester)
    return pieces
