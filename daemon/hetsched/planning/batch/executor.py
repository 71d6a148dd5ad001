"""Executes plans in the model of the papers, and finds the faults of a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hetsched.planning.batch.network import Network, arrival, send_first
from hetsched.planning.batch.plan import Plan
from hetsched.planning.batch.problem import ANYWHERE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.planning.batch.arrays import Floats, Ints
    from hetsched.planning.batch.problem import Problem

TOLERANCE = 1e-6
"""Share of a rate, a size or a time by which a plan may be off."""


def carry_out(problem: Problem, accelerators: Ints, sequence: Ints) -> Plan:
    """Transfer the jobs in this sequence, each as soon as can be, and compute them in it.

    Args:
        problem: the batch.
        accelerators: of each job.
        sequence: all jobs, those first that get the links first.

    """
    network = Network(problem.links)
    transfers = [np.empty((0, 3))] * problem.jobs
    for job in sequence.tolist():
        transfers[job] = send_first(network, problem, job, int(accelerators[job]))
    return timed(problem, accelerators, sequence, transfers)


def timed(
    problem: Problem, accelerators: Ints, sequence: Ints, transfers: list[Floats]
) -> Plan:
    """Compute the jobs in this sequence, each when its data and its accelerator are there."""
    free = problem.free_at.tolist()
    placed = [0] * problem.accelerators
    orders = np.zeros(problem.jobs, dtype=np.int64)
    starts, finishes = np.zeros(problem.jobs), np.zeros(problem.jobs)
    for job in sequence.tolist():
        machine = int(accelerators[job])
        start = max(free[machine], arrival(transfers[job]))
        free[machine] = start + float(problem.seconds[job, machine])
        starts[job], finishes[job] = start, free[machine]
        orders[job] = placed[machine]
        placed[machine] += 1
    return Plan(accelerators, orders, starts, finishes, transfers)


def carry_out_again(problem: Problem, plan: Plan) -> Plan:
    """Carry a plan out where the times turn out to be those of `problem`."""
    sequence = np.argsort(plan.orders, kind="stable")
    again = timed(problem, plan.accelerators, sequence, plan.transfers)
    return replace(again, bound=plan.bound, notes=plan.notes)


def faults(problem: Problem, plan: Plan) -> list[str]:
    """List the faults of a plan, in words; empty = valid."""
    return [
        *_late_data(problem, plan),
        *_overlaps(problem, plan),
        *_overloads(problem, plan),
    ]


def _late_data(problem: Problem, plan: Plan) -> Iterator[str]:
    for job in range(problem.jobs):
        pieces, size = plan.transfers[job], float(problem.sizes[job])
        accelerator, start = int(plan.accelerators[job]), float(plan.starts[job])
        took = plan.finishes[job] - start
        if not np.isclose(took, problem.seconds[job, accelerator], TOLERANCE):
            yield f"job {job}: takes {took} s on accelerator {accelerator}"
        if arrival(pieces) > start * (1 + TOLERANCE) + 1e-12:
            yield f"job {job}: starts at {start} s, its data is there at {arrival(pieces)} s"
        sent = float((pieces[:, 1] - pieces[:, 0]) @ pieces[:, 2])
        if _is_limited(problem, job) and not np.isclose(sent, size, TOLERANCE):
            yield f"job {job}: {sent} of {size} are transferred"


def _is_limited(problem: Problem, job: int) -> bool:
    """Whether the job's data meets a limit wherever it goes."""
    requester = int(problem.requesters[job])
    if requester != ANYWHERE and np.isfinite(problem.links.egress[requester]):
        return True
    return bool(np.isfinite(problem.links.ingress).all())


def _overlaps(problem: Problem, plan: Plan) -> Iterator[str]:
    order = np.lexsort((plan.orders, plan.accelerators))
    free = problem.free_at.astype(np.float64)
    for job in order.tolist():
        accelerator = int(plan.accelerators[job])
        if plan.starts[job] < free[accelerator] * (1 - TOLERANCE) - 1e-12:
            yield f"job {job}: starts while accelerator {accelerator} is busy"
        free[accelerator] = plan.finishes[job]


def _overloads(problem: Problem, plan: Plan) -> Iterator[str]:
    into: dict[int, list[Floats]] = {}
    out_of: dict[int, list[Floats]] = {}
    for job, pieces in enumerate(plan.transfers):
        responder = int(problem.responders[plan.accelerators[job]])
        into.setdefault(responder, []).append(pieces)
        out_of.setdefault(int(problem.requesters[job]), []).append(pieces)
    for promise in problem.links.promised:
        piece = np.array([[promise.start, promise.finish, promise.rate]])
        into.setdefault(promise.responder, []).append(piece)
        out_of.setdefault(promise.requester, []).append(piece)
    out_of.pop(ANYWHERE, None)
    yield from _beyond("responder", into, problem.links.ingress)
    yield from _beyond("requester", out_of, problem.links.egress)


def _beyond(side: str, used: dict[int, list[Floats]], limits: Floats) -> Iterator[str]:
    for host, parts in used.items():
        peak = peak_rate(np.concatenate(parts))
        if peak > limits[host] * (1 + TOLERANCE):
            yield f"{side} {host}: {peak} is transferred at once, it carries {limits[host]}"


def peak_rate(pieces: Floats) -> float:
    """Return the highest sum of rates at an instant; pieces end before others start."""
    edges = np.concatenate([pieces[:, 0], pieces[:, 1]])
    steps = np.concatenate([pieces[:, 2], -pieces[:, 2]])
    # instants that differ by rounding are one
    rounded = np.round(edges / max(edges.max(initial=0.0), 1e-300), 11)
    order = np.lexsort((steps, rounded))
    return float(np.cumsum(steps[order]).max(initial=0.0))
