"""Placing: jobs, nodes and links as a problem for hetd's batch planners, and their plan back.

Pure: no clock, no network, no Dask. The broker uses it live, `hetsim pool` in simulations.
Nodes are the planners' responders, slots their accelerators, nodes that have input files
their requesters.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hetpool.jobs import LONGEST_REASON, PlanEntry, PoolPlan
from hetsched.planning.batch.planners import make_planner
from hetsched.planning.batch.problem import ANYWHERE, Links, Problem, Promise
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hetpool.jobs import NodeSlot, PoolJob, PoolNode
    from hetsched.planning.batch.arrays import Bools, Floats
    from hetsched.planning.batch.plan import Plan

Estimates: TypeAlias = "Mapping[str, Mapping[str, Mapping[str, float]]]"
"""Job -> node -> seconds by resource; jobs that are alike share the map of their nodes."""

NOTHING: Mapping[str, Mapping[str, float]] = {}
UNKNOWN_S = 1.0
"""Expected time of a job about which nothing is known, seconds."""
MOST_NAMED = 3
"""Nodes or resources that a text names."""
GIB = 1 << 30
OVERHEAD_S = 0.01
"""Seconds that a pool adds to the time of a job: submit, staging, wake-ups."""


@dataclass(frozen=True, slots=True)
class LinkUse:
    """A rate of a transfer that an earlier plan still uses; times from now on.

    Attributes:
        node: that receives; `source`: the node that sends, empty: without a limit.
        start, finish: seconds; `rate`: bytes a second.

    """

    node: str
    source: str
    start: float
    finish: float
    rate: float


@dataclass(frozen=True, slots=True)
class Commitments:
    """The parts of the nodes and links that earlier plans hold.

    Attributes:
        busy: (node, resource) -> seconds from now to the end of each job that has begun
            there, or that stays there.
        promised: rates of transfers that have begun.

    """

    busy: Mapping[tuple[str, str], Sequence[float]] = field(default_factory=dict)
    promised: tuple[LinkUse, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Placing:
    """A batch as a problem, with the names behind its numbers.

    Attributes:
        problem: for the planners.
        jobs: in its order.
        slots: (node, slot) of each accelerator.
        nodes: of each responder.
        sources: of each requester, names of nodes.

    """

    problem: Problem
    jobs: tuple[PoolJob, ...]
    slots: tuple[tuple[PoolNode, NodeSlot], ...]
    nodes: tuple[PoolNode, ...]
    sources: tuple[str, ...]


def seconds_on(
    job: PoolJob, node: PoolNode, slot: NodeSlot, estimated: Mapping[str, float] | None
) -> float:
    """Return the expected time of a job on a slot; infinite: it cannot run there.

    Args:
        job: with its own expectations, which come first.
        node, slot: the place.
        estimated: seconds by resource, from the node; None: it has not said.

    """
    allowed = job.options.get("resources") or ()
    if (
        (job.nodes and node.name not in job.nodes)
        or (allowed and slot.resource not in allowed)
        or _is_too_large(job, node)
    ):
        return math.inf
    if job.seconds:
        named = (f"{node.name}/{slot.resource}", slot.resource, slot.kind)
        return next(
            (job.seconds[each] for each in named if each in job.seconds), math.inf
        )
    if estimated is None:
        return UNKNOWN_S if slot.kind == "cpu" else math.inf
    return estimated.get(slot.resource, math.inf)


def _is_too_large(job: PoolJob, node: PoolNode) -> bool:
    """Return whether a job needs more than a node has, so that its hetd would refuse it."""
    too_many = 0 < node.cores < job.cores
    return too_many or 0 < node.memory_bytes < job.memory_bytes


def obstacle(job: PoolJob, nodes: Iterable[PoolNode]) -> str:
    """Return what the nodes lack that take jobs now, for a job that waits; empty: it is not known."""
    able = [each for each in nodes if each.present and not each.draining and each.slots]
    if not able:
        return "all nodes are absent or drained"
    able = [each for each in able if not job.nodes or each.name in job.nodes]
    if not able:
        return f"{', '.join(job.nodes[:MOST_NAMED])}: absent or drained"
    allowed = job.options.get("resources") or ()
    there = {slot.resource for each in able for slot in each.slots}
    if allowed and not there & set(allowed):
        return f"no node has {' or '.join(allowed[:MOST_NAMED])}"[:LONGEST_REASON]
    if all(_is_too_large(job, each) for each in able):
        return _need(job, able)
    return ""


def _need(job: PoolJob, nodes: Sequence[PoolNode]) -> str:
    cores = max(each.cores for each in nodes)
    if job.cores > cores:
        return f"it needs {job.cores} cores; the largest node has {cores}"
    memory = max(each.memory_bytes for each in nodes)
    return (
        f"it needs {job.memory_bytes / GIB:,.4g} GiB of memory; "
        f"the largest node has {memory / GIB:,.4g} GiB"
    )


def seconds_of(
    jobs: Sequence[PoolJob],
    slots: Sequence[tuple[PoolNode, NodeSlot]],
    estimates: Estimates,
) -> Floats:
    """Return the expected time of each job on each slot, (jobs, slots).

    A thousand nodes have a few kinds of slots: a job that says nothing of nodes is looked
    at once for each kind. Jobs that are alike by what the nodes estimate share a row.
    """
    alike: dict[tuple[Any, ...], tuple[PoolNode, NodeSlot]] = {}
    for node, slot in slots:
        alike.setdefault(_kind_of(node, slot), (node, slot))
    numbers = {kind: number for number, kind in enumerate(alike)}
    columns = np.array([numbers[_kind_of(*each)] for each in slots], dtype=np.int64)
    rows = np.empty((len(jobs), len(slots)))
    known: dict[tuple[Any, ...], Floats] = {}
    for row, job in zip(rows, jobs, strict=True):
        if job.seconds and not job.nodes and not any("/" in key for key in job.seconds):
            kinds = [seconds_on(job, node, slot, None) for node, slot in alike.values()]
            row[:] = np.array(kinds)[columns]
            continue
        by_node = estimates.get(job.id, NOTHING)
        same = _likeness(job, by_node)
        if same not in known:
            row[:] = [
                seconds_on(job, node, slot, by_node.get(node.name))
                for node, slot in slots
            ]
            known[same] = row
        row[:] = known[same]
    return rows


def _kind_of(node: PoolNode, slot: NodeSlot) -> tuple[Any, ...]:
    """Return what the time of a job depends on that says nothing of nodes."""
    return slot.resource, slot.kind, node.cores, node.memory_bytes


def _likeness(job: PoolJob, by_node: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what the times of a job on all slots depend on."""
    allowed = tuple(job.options.get("resources") or ())
    needs = (job.cores, job.memory_bytes)
    return id(by_node), job.nodes, allowed, tuple(job.seconds.items()), needs


def placing_of(
    jobs: Sequence[PoolJob],
    nodes: Iterable[PoolNode],
    estimates: Estimates | None = None,
    commitments: Commitments | None = None,
    share: float = 1.0,
) -> tuple[Placing | None, list[PoolJob]]:
    """Make a problem of jobs.

    Args:
        jobs: the batch.
        nodes: all nodes; those that are absent or draining take nothing, but may send.
        estimates: of the nodes; None: only the jobs say what they take.
        commitments: what earlier plans hold.
        share: of the links' rates that the plan may use.

    Returns:
        the problem, None if there is nothing to place; and the jobs that no node can run.

    """
    every = list(nodes)
    able = [each for each in every if each.present and not each.draining and each.slots]
    slots = [(node, slot) for node in able for slot in node.slots]
    rows = seconds_of(jobs, slots, estimates or {})
    can: Bools = np.asarray(np.isfinite(rows).any(axis=1))
    placed = [jobs[index] for index in np.flatnonzero(can).tolist()]
    left = [jobs[index] for index in np.flatnonzero(~can).tolist()]
    if not placed:
        return None, left
    sources = sorted({_source(job) for job in placed} - {""})
    held = commitments or Commitments()
    problem = Problem(
        seconds=rows[can] + OVERHEAD_S,
        sizes=np.array([float(job.size) for job in placed]),
        requesters=np.array(
            [
                sources.index(_source(job)) if _source(job) else ANYWHERE
                for job in placed
            ]
        ),
        responders=np.repeat(np.arange(len(able)), [len(each.slots) for each in able]),
        free_at=np.array(_free_at(slots, held)),
        links=_links(able, every, sources, held, share),
    )
    return Placing(
        problem, tuple(placed), tuple(slots), tuple(able), tuple(sources)
    ), left


def _source(job: PoolJob) -> str:
    """Return the node that sends a job's inputs; empty: it has none, or any may."""
    return next((file.sources[0] for file in job.inputs if file.sources), "")


def _free_at(
    slots: Sequence[tuple[PoolNode, NodeSlot]], held: Commitments
) -> list[float]:
    """Return when each slot has done what it has; jobs go to the slot that is free first."""
    free: dict[tuple[str, str], list[float]] = {}
    for node, slot in slots:
        free.setdefault((node.name, slot.resource), []).append(0.0)
    for place, times in free.items():
        for seconds in held.busy.get(place, ()):
            # slots of a resource are alike: the next job gets the one that is free first
            heapq.heapreplace(times, times[0] + seconds)
    return [heapq.heappop(free[node.name, slot.resource]) for node, slot in slots]


def _links(
    able: Sequence[PoolNode],
    every: Sequence[PoolNode],
    sources: Sequence[str],
    held: Commitments,
    share: float,
) -> Links:
    names = {each.name: number for number, each in enumerate(able)}
    rates = {each.name: each.egress for each in every}
    promised = tuple(
        Promise(
            names[use.node],
            sources.index(use.source) if use.source in sources else ANYWHERE,
            use.start,
            use.finish,
            use.rate,
        )
        for use in held.promised
        if use.node in names and use.finish > 0
    )
    ingress = np.array([(each.inward or math.inf) * share for each in able])
    egress = np.array([(rates.get(name) or math.inf) * share for name in sources])
    return Links(ingress, egress, promised)


def planned(placing: Placing, planner: str, order: int = 0) -> PoolPlan:
    """Plan a batch.

    Args:
        placing: the batch.
        planner: name of the planner, see `hetsched.planning.batch.planners`.
        order: of the first job; the others follow.

    Raises:
        InputError: there is no such planner.

    """
    try:
        plan = make_planner(planner, {}).plan(placing.problem)
    except KeyError as error:
        raise InputError(f"no planner {planner!r}") from error
    return plan_of(placing, plan, planner, order)


def plan_of(placing: Placing, plan: Plan, planner: str, order: int = 0) -> PoolPlan:
    """Name what a plan numbers; jobs that start earlier get their inputs earlier."""
    first = np.array([each[0, 0] if len(each) else 0.0 for each in plan.transfers])
    ranks = np.empty(len(placing.jobs), dtype=np.int64)
    ranks[np.lexsort((first, plan.starts))] = np.arange(len(placing.jobs))
    entries = []
    for index, job in enumerate(placing.jobs):
        node, slot = placing.slots[int(plan.accelerators[index])]
        entries.append(
            PlanEntry(
                job=job.id,
                node=node.name,
                resource=slot.resource,
                order=order + int(ranks[index]),
                start=float(plan.starts[index]),
                finish=float(plan.finishes[index]),
                pieces=tuple(tuple(piece) for piece in plan.transfers[index].tolist()),
            )
        )
    return PoolPlan(
        planner, tuple(entries), plan.makespan, float(plan.bound), tuple(plan.notes)
    )


def uses_of(entries: Iterable[PlanEntry], jobs: Mapping[str, PoolJob]) -> list[LinkUse]:
    """List the rates that the transfers of a plan use."""
    return [
        LinkUse(entry.node, _source(jobs[entry.job]), *piece)
        for entry in entries
        for piece in entry.pieces
    ]


def later(uses: Iterable[LinkUse], elapsed: float) -> tuple[LinkUse, ...]:
    """Return rates as they are `elapsed` seconds later, without those that are over."""
    return tuple(
        replace(use, start=max(0.0, use.start - elapsed), finish=use.finish - elapsed)
        for use in uses
        if use.finish > elapsed
    )


def gathered(
    entries: Sequence[PlanEntry], seconds: float, most: int
) -> list[list[PlanEntry]]:
    """Group the short jobs of each node, in their order, for one errand each.

    Args:
        entries: of a plan.
        seconds: jobs that are expected to take longer are alone.
        most: jobs in a group.

    """
    short: dict[str, list[PlanEntry]] = {}
    groups: list[list[PlanEntry]] = []
    for entry in sorted(entries, key=lambda each: each.order):
        if entry.finish - entry.start > seconds or entry.pieces:
            groups.append([entry])
        else:
            short.setdefault(entry.node, []).append(entry)
    for some in short.values():
        size = _group_size(len(some), most)
        groups += [some[at : at + size] for at in range(0, len(some), size)]
    return groups


def _group_size(jobs: int, most: int) -> int:
    """Return how many jobs travel together: few of them are not worth the waiting."""
    return max(1, min(most, jobs // 4))
