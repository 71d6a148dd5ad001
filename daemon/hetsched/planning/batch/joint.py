"""Joint plans of transfers and computations: Algorithm 4 of zhao-2018-tpds, and one of ours.

The paper's (NCJM) assigns jobs by their computing time alone; each accelerator takes its
shortest job first, and the job that could start first gets its data first: spread over
the time until then if the links suffice, else as soon as they allow.

Ours takes the jobs in one sequence, and each goes to the accelerator where it is done
earliest. There are two sequences. By falling tail: a requester sends its largest job
first, so that little computing is left when its link falls silent; the tail of a job is
the time its requester still has to send from it on, and the computing after that. And by
Johnson's rule, as if all links were one and all accelerators one: then computing begins
early, and the links fall silent no sooner than the accelerators.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from hetsched.planning.batch.baselines import Shop
from hetsched.planning.batch.executor import timed
from hetsched.planning.batch.flow_shop import johnson
from hetsched.planning.batch.network import NO_PIECES, Network, arrival
from hetsched.planning.batch.problem import ANYWHERE

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


EXAMINED = 4
"""Accelerators whose links are examined for each job: the most promising ones."""


def critical_first(problem: Problem) -> Plan:
    """Assign the jobs by falling tail."""
    return in_sequence(problem, np.argsort(-requester_tails(problem), kind="stable"))


def johnson_first(problem: Problem) -> Plan:
    """Assign the jobs by Johnson's rule, of a flow shop of all links and all accelerators."""
    carried = np.minimum(problem.egress_of(), problem.links.ingress.sum())
    with np.errstate(divide="ignore"):  # a job may take no time
        together = 1 / (1 / problem.seconds).sum(axis=1)
    return in_sequence(problem, johnson(problem.sizes / carried, together))


def in_sequence(problem: Problem, sequence: Ints) -> Plan:
    """Assign the jobs one after another, each to where it is done earliest."""
    shop = Shop(problem)
    chosen = np.zeros(problem.jobs, dtype=np.int64)
    transfers = [NO_PIECES] * problem.jobs
    for job in sequence.tolist():
        accelerator = _earliest(shop, job)
        chosen[job] = accelerator
        transfers[job] = shop.give(job, accelerator)
    return timed(problem, chosen, sequence, transfers)


def requester_tails(problem: Problem) -> Floats:
    """Tails of jobs that each requester sends by falling size, seconds."""
    computed = problem.seconds.min(axis=1)
    rates = np.minimum(problem.egress_of(), problem.links.ingress.max())
    sent = problem.sizes / rates
    tails = sent + computed
    for requester in np.unique(problem.requesters[problem.requesters != ANYWHERE]):
        mine = np.flatnonzero(problem.requesters == requester)
        mine = mine[np.argsort(problem.sizes[mine], kind="stable")]
        tails[mine] = np.cumsum(sent[mine]) + computed[mine[0]]
        tails[mine] = np.maximum(tails[mine], sent[mine] + computed[mine])
    return np.asarray(tails, dtype=np.float64)


def _earliest(shop: Shop, job: int) -> int:
    """Find the accelerator where the job is done first, among the most promising."""
    ends = shop.promised_ends(job)
    ranked: Ints = np.argsort(ends, kind="stable")
    best, least, seen = int(ranked[0]), np.inf, set[int]()
    for accelerator in ranked.tolist():
        if ends[accelerator] >= least or len(seen) == EXAMINED:
            break
        responder = int(shop.problem.responders[accelerator])
        if responder in seen:
            continue  # the responder's other accelerators get the data no sooner
        seen.add(responder)
        end = shop.end_of(job, accelerator)
        if end < least:
            best, least = accelerator, end
    return best
