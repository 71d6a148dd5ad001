"""From one batch to the next: capacity that earlier plans hold, and plans in parts.

The online form of section 3.4, the waves by type and the groups by size of section 3.5
are one thing: a part is planned beside what the parts before it were promised.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hetsched.planning.batch.network import NO_PIECES
from hetsched.planning.batch.plan import Plan
from hetsched.planning.batch.problem import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hetsched.planning.batch.arrays import Ints
    from hetsched.planning.batch.problem import Problem


def after(problem: Problem, plan: Plan, elapsed: float = 0.0) -> Problem:
    """Return the problem's accelerators and links as they are `elapsed` seconds later.

    Times of the result count from then; what is over by then is forgotten.
    """
    free_at = problem.free_at.copy()
    np.maximum.at(free_at, plan.accelerators, plan.finishes)
    held = [*problem.links.promised, *promises_of(problem, plan)]
    later = tuple(_later(each, elapsed) for each in held if each.finish > elapsed)
    links = replace(problem.links, promised=later)
    return replace(problem, free_at=np.maximum(free_at - elapsed, 0.0), links=links)


def promises_of(problem: Problem, plan: Plan) -> Iterable[Promise]:
    """List the rates that a plan uses."""
    for job, pieces in enumerate(plan.transfers):
        responder = int(problem.responders[plan.accelerators[job]])
        requester = int(problem.requesters[job])
        for start, finish, rate in pieces.tolist():
            yield Promise(responder, requester, start, finish, rate)


def _later(promise: Promise, elapsed: float) -> Promise:
    start = max(0.0, promise.start - elapsed)
    return replace(promise, start=start, finish=promise.finish - elapsed)


def in_parts(
    problem: Problem, parts: Iterable[tuple[Ints, Callable[[Problem], Plan]]]
) -> Plan:
    """Plan part after part, each by its planner; a part's jobs are named by number."""
    whole = _nothing(problem.jobs)
    state = problem
    for jobs, planner in parts:
        if not len(jobs):
            continue
        chosen = problem.only(jobs)
        part = replace(chosen, free_at=state.free_at, links=state.links)
        plan = planner(part)
        _enter(whole, plan, jobs)
        state = after(part, plan)
    return replace(whole, orders=_orders(whole))


def _nothing(jobs: int) -> Plan:
    numbers = np.zeros(jobs, dtype=np.int64)
    times = np.zeros(jobs)
    return Plan(numbers, numbers.copy(), times, times.copy(), [NO_PIECES] * jobs)


def _enter(whole: Plan, plan: Plan, jobs: Ints) -> None:
    whole.accelerators[jobs] = plan.accelerators
    whole.starts[jobs] = plan.starts
    whole.finishes[jobs] = plan.finishes
    for job, pieces in zip(jobs.tolist(), plan.transfers, strict=True):
        whole.transfers[job] = pieces


def _orders(plan: Plan) -> Ints:
    """Number the jobs of each accelerator by when they start."""
    sequence = np.lexsort((plan.finishes, plan.starts, plan.accelerators))
    own = plan.accelerators[sequence]
    first = np.searchsorted(own, own, side="left")
    orders = np.empty(len(own), dtype=np.int64)
    orders[sequence] = np.arange(len(own)) - first
    return orders
