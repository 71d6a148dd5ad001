"""Lower bounds of the makespan, whatever the planner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetsched.planning.batch.problem import ANYWHERE
from hetsched.planning.batch.relaxation import relax

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats
    from hetsched.planning.batch.problem import Problem


def computing_bound(problem: Problem) -> float:
    """Least time of the restricted program (CIM-LP), seconds."""
    if not problem.jobs or not _weighs(problem.seconds):
        return 0.0
    return relax(problem.seconds, problem.free_at).bound


def one_responder_bound(problem: Problem) -> float:
    """Objective of NIM-OR, seconds: all responders as one, each requester by itself."""
    into = float(problem.sizes.sum()) / float(problem.links.ingress.sum() or np.inf)
    sent = sent_by(problem)
    asked = sent > 0
    out_of = sent[asked] / problem.links.egress[asked]
    return max(into, float(out_of.max(initial=0.0)))


def sent_by(problem: Problem) -> Floats:
    """Return the data that each requester has to send."""
    known = problem.requesters != ANYWHERE
    count = len(problem.links.egress)
    sent = np.bincount(problem.requesters[known], problem.sizes[known], count)
    return sent.astype(np.float64)


def transfer_bound(problem: Problem) -> float:
    """Least time to carry all data, each job to one responder, jobs split, seconds."""
    bound = one_responder_bound(problem)
    if not problem.jobs or not _weighs(problem.sizes):
        return bound
    alone = into_responders(problem)
    finite = alone[:, np.isfinite(problem.links.ingress)]
    if finite.shape[1] < alone.shape[1]:
        return bound  # an unlimited responder may take everything
    return max(bound, relax(alone, np.zeros(alone.shape[1])).bound)


def into_responders(problem: Problem) -> Floats:
    """Time of each job on the link into each responder; infinite where it cannot run."""
    count = len(problem.links.ingress)
    able = np.zeros((problem.jobs, count), dtype=bool)
    for machine, responder in enumerate(problem.responders.tolist()):
        able[:, responder] |= np.isfinite(problem.seconds[:, machine])
    times = problem.sizes[:, None] / problem.links.ingress[None, :]
    return np.where(able, times, np.inf)


def alone_bound(problem: Problem) -> float:
    """Time of the job that takes longest with everything to itself, seconds."""
    start = np.maximum(problem.transfer_seconds(), problem.free_at)
    return float((start + problem.seconds).min(axis=1).max(initial=0.0))


def lower_bound(problem: Problem) -> float:
    """Return the greatest of the bounds, seconds."""
    return max(computing_bound(problem), transfer_bound(problem), alone_bound(problem))


def _weighs(amounts: Floats) -> bool:
    return bool((amounts[np.isfinite(amounts)] > 0).any())
