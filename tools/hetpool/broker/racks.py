"""Large pools planned by racks: jobs are dealt to racks by load, each rack is planned alone.

A planner's matrices have a row for each job and a column for each slot: at 1,000 nodes and
3,000 jobs a plan takes seconds and hundreds of megabytes. A rack of 100 nodes takes a
hundredth of both. The paper calls it sub-systems. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from hetpool.jobs import PoolPlan
from hetpool.placing import placing_of, plan_of, seconds_of
from hetsched.planning.batch.planners import make_planner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetpool.jobs import PlanEntry, PoolJob, PoolNode
    from hetpool.placing import Commitments, Estimates
    from hetsched.planning.batch.arrays import Floats
    from hetsched.planning.batch.planners import Planner


PLANNED = ("resources", "cores", "memory_bytes")
"""Options on which a plan depends."""
RACK = 100
"""Nodes in a rack of a live pool."""
WHOLE = 200
"""Most nodes that the live broker plans as one; see docs/pool-at-scale.md."""


@dataclass(frozen=True, slots=True)
class RackPlanner:
    """Plans jobs rack by rack.

    Attributes:
        name: of the planner; `planner`: itself.
        rack: nodes in a rack, neighbours in their list; 0: all nodes are one rack.
        share: of the links' rates that plans may use.
        estimates: of jobs that do not say what they take.

    """

    name: str
    planner: Planner
    rack: int = 0
    share: float = 1.0
    estimates: Estimates = field(default_factory=dict)

    def plan(
        self,
        jobs: Sequence[PoolJob],
        nodes: Sequence[PoolNode],
        commitments: Commitments,
        order: int = 0,
    ) -> tuple[PoolPlan, list[PoolJob]]:
        """Plan a batch.

        Args:
            jobs: with their expected times.
            nodes: all nodes; those without slots serve all racks.
            commitments: what earlier plans hold.
            order: of the first job of the plan.

        Returns:
            one plan of all racks, and the jobs that no node can run.

        """
        racks = racks_of(nodes, self.rack)
        loads = [_load(rack, commitments) for rack in racks]
        dealt, left = deal(jobs, racks, self.estimates, loads)
        whole = max(1, sum(job.size for job in jobs))
        plans = []
        for members, some in zip(racks, dealt, strict=True):
            part = sum(job.size for job in some) / whole
            others = [_narrowed(each, part) for each in nodes if not each.slots]
            placing, unable = placing_of(
                some, [*members, *others], self.estimates, commitments, self.share
            )
            left += unable
            if placing is not None:
                plans.append(
                    plan_of(placing, self.planner.plan(placing.problem), self.name)
                )
        return _merged(plans, self.name, order), left


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Jobs to place in a large pool, and what a plan of them depends on.

    Attributes:
        jobs, nodes: what, and where.
        estimates: of jobs that do not say what they take.
        commitments: what earlier plans hold.
        share: of the links' rates that the plan may use.

    """

    jobs: tuple[PoolJob, ...]
    nodes: tuple[PoolNode, ...]
    estimates: Estimates
    commitments: Commitments
    share: float


def batch_of(
    jobs: Sequence[PoolJob],
    nodes: Sequence[PoolNode],
    estimates: Estimates,
    commitments: Commitments,
    share: float,
) -> Batch:
    """Return a batch for another process, without what a plan does not depend on."""
    short = (
        replace(
            job,
            params={},
            options={key: job.options[key] for key in PLANNED if key in job.options},
        )
        for job in jobs
    )
    return Batch(tuple(short), tuple(nodes), estimates, commitments, share)


def planned_by_racks(batch: Batch, planner: str, order: int) -> PoolPlan:
    """Plan a batch by racks of `RACK` nodes; jobs that no node can run have no entry.

    Raises:
        NotFoundError: there is no such planner.

    """
    made = make_planner(planner, {})
    racks = RackPlanner(planner, made, RACK, batch.share, batch.estimates)
    plan, _ = racks.plan(batch.jobs, batch.nodes, batch.commitments, order)
    return plan


def racks_of(nodes: Sequence[PoolNode], rack: int) -> list[list[PoolNode]]:
    """Split the nodes with slots into racks of neighbours, as few and as equal as may be."""
    able = [each for each in nodes if each.slots and each.present and not each.draining]
    count = math.ceil(len(able) / rack) if rack else 1
    size = max(1, math.ceil(len(able) / max(1, count)))
    return [able[at : at + size] for at in range(0, len(able), size)] or [[]]


def deal(
    jobs: Sequence[PoolJob],
    racks: Sequence[Sequence[PoolNode]],
    estimates: Estimates,
    loads: Sequence[float],
) -> tuple[list[list[PoolJob]], list[PoolJob]]:
    """Give each job to the rack that is done with it first; the longest jobs choose first.

    A rack is taken as one machine with the speed of all its slots, which has `loads` seconds
    to do. Returns the jobs of each rack, and the jobs that none can run.
    """
    dealt: list[list[PoolJob]] = [[] for _ in racks]
    if len(racks) == 1:
        return [list(jobs)], []
    costs = np.stack([_seconds_in(rack, jobs, estimates) for rack in racks], axis=1)
    load, left = np.array(loads, dtype=float), []
    for index in np.argsort(-costs.min(axis=1, initial=math.inf), kind="stable"):
        ends = load + costs[index]
        chosen = int(ends.argmin())
        if math.isinf(ends[chosen]):
            left.append(jobs[index])
            continue
        load[chosen] = ends[chosen]
        dealt[chosen].append(jobs[index])
    return dealt, left


def _load(rack: Sequence[PoolNode], held: Commitments) -> float:
    """Return the seconds for which earlier plans occupy a rack, if all slots shared them."""
    places = [(node.name, slot.resource) for node in rack for slot in node.slots]
    busy = sum(sum(held.busy.get(place, ())) for place in set(places))
    return busy / max(1, len(places))


def _seconds_in(
    rack: Sequence[PoolNode], jobs: Sequence[PoolJob], estimates: Estimates
) -> Floats:
    """Return the time that each job takes of a rack, as if all slots worked on it."""
    slots = [(node, slot) for node in rack for slot in node.slots]
    with np.errstate(divide="ignore"):
        return np.asarray(1 / (1 / seconds_of(jobs, slots, estimates)).sum(axis=1))


def _narrowed(node: PoolNode, part: float) -> PoolNode:
    """Give a rack its part of a link that all racks share."""
    if node.egress is None or not part:
        return node
    return replace(node, egress=node.egress * part)


def _merged(plans: Sequence[PoolPlan], name: str, order: int) -> PoolPlan:
    entries = [entry for plan in plans for entry in plan.entries]
    entries.sort(key=lambda entry: (entry.order, entry.start))
    return PoolPlan(
        name,
        tuple(_at(entry, order + place) for place, entry in enumerate(entries)),
        max((plan.makespan for plan in plans), default=0.0),
        max((plan.bound for plan in plans), default=0.0),
        tuple(dict.fromkeys(note for plan in plans for note in plan.notes)),
    )


def _at(entry: PlanEntry, order: int) -> PlanEntry:
    return replace(entry, order=order)
