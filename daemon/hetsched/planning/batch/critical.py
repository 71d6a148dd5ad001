"""Joint plans of ours: the job with the longest tail goes first.

A requester sends its largest job first, so that little computing is left when its link
falls silent. The tail of a job is the time its requester still has to send from it on,
and the computing after that; jobs go by falling tail, each to the accelerator where it
is done earliest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetsched.planning.batch.executor import timed
from hetsched.planning.batch.job_size import Shop
from hetsched.planning.batch.network import NO_PIECES
from hetsched.planning.batch.problem import ANYWHERE

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats, Ints
    from hetsched.planning.batch.plan import Plan
    from hetsched.planning.batch.problem import Problem

LOOKED_AT = 4
"""Accelerators whose links are examined for each job: the most promising ones."""


def critical_first(problem: Problem, tails: Floats) -> Plan:
    """Assign the jobs by falling tail."""
    shop = Shop(problem)
    sequence = np.argsort(-tails, kind="stable")
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
        if ends[accelerator] >= least or len(seen) == LOOKED_AT:
            break
        responder = int(shop.problem.responders[accelerator])
        if responder in seen:
            continue  # the responder's other accelerators get the data no sooner
        seen.add(responder)
        end = shop.end_of(job, accelerator)
        if end < least:
            best, least = accelerator, end
    return best
