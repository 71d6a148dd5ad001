"""Jobs that arise in a responder itself (section 3.5 of zhao-2018-tpds)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Bools, Ints
    from hetsched.planning.batch.problem import Problem

ELSEWHERE = -1
"""The source of jobs that come from a requester."""

INTENSIVE = 10.0
"""A job that computes at least this many times longer than it transfers is computation-intensive."""


def settled(problem: Problem, sources: Ints) -> Problem:
    """Keep jobs that arise in a responder there, and spare them the transfer.

    Computation-intensive ones may go anywhere: their transfer can be ignored.

    Args:
        problem: the batch.
        sources: the responder of each job, or `ELSEWHERE`.

    """
    own = sources != ELSEWHERE
    if not own.any():
        return problem
    sizes = np.where(own, 0.0, problem.sizes)
    away = problem.responders[None, :] != sources[:, None]
    pinned = (own & ~_computes(problem))[:, None] & away
    return replace(
        problem, sizes=sizes, seconds=np.where(pinned, np.inf, problem.seconds)
    )


def _computes(problem: Problem) -> Bools:
    sent = problem.transfer_seconds().min(axis=1)
    return np.asarray(problem.seconds.min(axis=1) >= INTENSIVE * sent)
