"""The baselines of Banerjee et al. for jobs that are graphs: HEFT, Graphene and Paragon.

Each function is one reaction: it yields the tasks to place and where. How the originals are
read for unequal processors is in `docs/papers/banerjee.md`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from hetsched.planning.classification import classification_of
from hetsched.planning.expected_finish import (
    ExpectedFinish,
    ready_since,
    waiting_without_place,
)
from hetsched.planning.owners_in_turn import OwnersInTurn
from hetsched.planning.troublesome_first import (
    SEARCHED,
    VirtualTask,
    troublesome_order,
)
from hetsched.system import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.contention import Loads
    from hetsched.graphs import JobGraph
    from hetsched.ids import TaskId
    from hetsched.system import System
    from hetsched.tasks import TaskRecord

TWICE = 2.0
SRPT_WEIGHT = 0.5
"""Weight of a job's share of the work left in Graphene's score."""

TOO_SLOW = 3.0
LOSSES = (0.05, 0.2, math.inf)
"""Slowdowns by interference that Paragon tolerates in its three steps."""


def heft(system: System) -> Iterator[tuple[TaskRecord, str]]:
    """Yield ready tasks by upward rank, each with the resource that ends it first.

    The queues of the resources count, contention does not (Topcuoglu et al., 2002).
    """
    while waiting := waiting_without_place(system):
        ends = ExpectedFinish(system, crowded=False)
        waiting.sort(key=lambda t: (-t.priority, -system.rank(t), t.sequence))
        for task in waiting:
            found = ends.candidates(task)
            if not found:
                return
            best = min(found, key=lambda each: each.finish)
            ends.take(best)
            yield task, best.resource


# ------------------------------------------------------------ Graphene

_orders: WeakKeyDictionary[JobGraph, tuple[int, dict[TaskId, float]]] = (
    WeakKeyDictionary()
)
"""Orders of jobs, a pure function of their graphs; computed once for each version."""


def graphene(system: System) -> Iterator[tuple[TaskRecord, str]]:
    """Yield tasks for idle resources by order, packing and remaining work of their jobs.

    A task takes a resource only if it ends there within twice its quickest expected end.
    """
    waiting = waiting_without_place(system)
    turns = OwnersInTurn(system)
    ends = ExpectedFinish(system, crowded=False)
    most = max((system.work_left_of(task) for task in waiting), default=0.0) or 1.0
    demand = dict(system.crowding.demand) if system.crowding else {}
    offers = [_Offer(system, task, ends.alone_on(task), most) for task in waiting]
    for name in system.idle():
        able = [offer for offer in offers if offer.goes_to(name)]
        for _ in range(system.spare(name)):
            if not able:
                break
            eligible = _in_turn(able, turns)
            chosen = max(eligible, key=lambda offer: offer.score(name, demand))
            turns.charge(chosen.task)
            able.remove(chosen)
            offers.remove(chosen)
            for load in chosen.ends[name][1]:
                demand[load.shared] = demand.get(load.shared, 0.0) + load.demand
            yield chosen.task, name


def _in_turn(offers: list[_Offer], turns: OwnersInTurn) -> list[_Offer]:
    """Return the offers of the owner whose turn it is."""
    if not turns.several:
        return offers
    tasks = set(turns.next_of([offer.task for offer in offers]))
    return [offer for offer in offers if offer.task in tasks]


class _Offer:
    """A waiting task, as Graphene sees it.

    Args:
        system: what is scheduled.
        task: the task.
        ends: resource -> seconds until it would end there, and its loads.
        most: the most work left of a waiting task's job, in seconds.

    """

    __slots__ = ("_earliness", "_left", "_limit", "ends", "task")

    def __init__(
        self,
        system: System,
        task: TaskRecord,
        ends: dict[str, tuple[float, Loads]],
        most: float,
    ) -> None:
        self.task = task
        self.ends = ends
        self._limit = TWICE * min([finish for finish, _ in ends.values()])
        self._earliness = 1.0 - order_of(system, task)
        self._left = SRPT_WEIGHT * (system.work_left_of(task) / most)

    def goes_to(self, name: str) -> bool:
        """Return whether the task ends on a resource within twice its quickest end."""
        found = self.ends.get(name)
        return found is not None and found[0] <= self._limit

    def score(self, name: str, demand: dict[str, float]) -> tuple[int, float, int]:
        """Return the priority and Graphene's online score on a resource; earlier first."""
        packing = 0.0
        for load in self.ends[name][1]:
            left = 1.0 - demand.get(load.shared, 0.0)
            if left > 0.0:
                packing += load.demand * left
        score = self._earliness * (1.0 + packing) - self._left
        return self.task.priority, score, -self.task.sequence


def order_of(system: System, task: TaskRecord) -> float:
    """Return a task's place in the order of its job, from 0 (first) to below 1.

    In a large job by upward rank, relative to the work left: nothing is computed for all,
    nor for its last tasks.
    """
    job = system.job_of(task)
    if job is None:
        return 0.0
    if job.version > SEARCHED:
        rank = system.rank(task)
        return 1.0 - rank / (rank + job.work_left)
    known = _orders.get(job)
    if known is None or known[0] != job.version:
        known = _orders[job] = (job.version, _order(system, job))
    return known[1].get(task.id, 0.0)


def _order(system: System, job: JobGraph) -> dict[TaskId, float]:
    """Order the unfinished tasks of a job, as seen when it is first asked for."""
    live = sorted(
        (node for node in job.nodes.values() if not node.ended),
        key=lambda node: (node.depth, node.task),
    )
    numbers = {node.task: number for number, node in enumerate(live)}
    slots = [
        name
        for name, state in system.states.items()
        if state.usable
        for _ in range(state.slots)
    ]
    tasks = []
    for node in live:
        expected = system.fit(node.row).expected
        times = {name: ns / SECOND for name, ns in expected.items()}
        parents = tuple(
            numbers[parent.task] for parent in node.parents if parent.task in numbers
        )
        tasks.append(VirtualTask(times or dict.fromkeys(slots, node.least), parents))
    if not slots:
        return {
            node.task: number / len(live)
            for node, number in zip(live, numbers.values(), strict=True)
        }
    order = troublesome_order(tasks, slots)
    return {live[task].task: place / len(live) for place, task in enumerate(order)}


# ------------------------------------------------------------ Paragon


def paragon(
    system: System, known: float, seed: int
) -> Iterator[tuple[TaskRecord, str | None]]:
    """Yield tasks, the first that was ready first, with the best resource that is free.

    First with the interference that both sides tolerate, then with more, then with any. A
    task rather waits, up to twice its best time, than runs more than three times slower;
    None: it waits.
    """
    waiting = waiting_without_place(system)
    if not waiting or not system.idle():
        return
    waiting.sort(key=lambda task: (-task.priority, ready_since(task), task.sequence))
    turns = OwnersInTurn(system)
    classes = classification_of(system, known, seed, waiting)
    for task in turns.each(waiting):
        free = set(system.idle())
        if not free:
            return
        times = {
            name: classes.seconds(task.row, task.submitted.app, name)
            for name in system.affinities(task.row)
        }
        if not times:
            continue
        best = min(times.values())
        able = {name: times[name] for name in times if name in free}
        if not able:
            continue
        waited = (system.now - ready_since(task)) / SECOND
        if min(able.values()) > TOO_SLOW * best and waited < TWICE * best:
            yield task, None
            continue
        turns.charge(task)
        yield task, _tolerated(system, task, able)


def _tolerated(system: System, task: TaskRecord, able: dict[str, float]) -> str:
    """Return the quickest free resource with the least interference on both sides."""
    losses = {name: _interference(system, task, name) for name in able}
    for most in LOSSES:
        allowed = [name for name in able if losses[name] <= most]
        if allowed:
            return min(allowed, key=lambda name: able[name])
    return min(able, key=lambda name: able[name])


def _interference(system: System, task: TaskRecord, name: str) -> float:
    """Return the greatest slowdown, less 1, of the task and of those beside it.

    By the profiles of the scheduler's own tasks only: others are not seen.
    """
    crowding = system.crowding
    if crowding is None:
        return 0.0
    loads = crowding.model.loads_of(task.row.type, name)
    demand = dict(crowding.demand)
    for load in loads:
        demand[load.shared] += load.demand
    shared = {load.shared for load in loads}
    others = [
        each.loads
        for each in crowding.running.values()
        if any(load.shared in shared for load in each.loads)
    ]
    return max(_loss(each, demand) for each in [loads, *others])


def _loss(loads: Loads, demand: dict[str, float]) -> float:
    return sum(load.bound * max(demand[load.shared] - 1.0, 0.0) for load in loads)
