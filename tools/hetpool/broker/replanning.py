"""Planning again: jobs that have not begun move where they would end sooner.

Due after each batch, after the loss or return of a node or of a device, and where a job ends
much earlier or later than planned. What runs stays where it is: moving it is the user's decision.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from hetpool import messages as m
from hetpool.placing import Commitments
from libtask.errors import HetError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hetpool.broker.estimates import Ask
    from hetpool.broker.ledger import Ledger, PlacedJob
    from hetpool.broker.moving import Mover
    from hetpool.jobs import PlanEntry, PoolJob, PoolPlan

LEAST_GAIN = 0.05
"""Share of the time that is left by which a plan must be shorter to be carried out."""
LEAST_PAUSE_S = 5.0
"""Seconds between two plans."""
SLACK_S = 1.0
"""A deviation of less is not worth a plan, whatever its share."""
MOST_MOVES = 100
UNBEGUN = frozenset({"placed", "staged"})

log = logging.getLogger("hetpool")


class Plans(Protocol):
    """Plans jobs beside all others."""

    async def __call__(self, jobs: Sequence[PoolJob], planner: str) -> PoolPlan: ...


class Replanner:
    """Plans the jobs again that have not begun.

    Args:
        ledger: which says where jobs are.
        ask: sends a message to a node.
        plans: plans jobs beside all others.
        mover: moves them.
        clock: monotonic seconds.

    """

    def __init__(
        self,
        ledger: Ledger,
        ask: Ask,
        plans: Plans,
        mover: Mover,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._ask = ask
        self._plans = plans
        self._mover = mover
        self._clock = clock
        self._due = False
        self._next = 0.0

    def set_due(self, *, at_once: bool = False) -> None:
        """Plan again at the next occasion; `at_once`: do not wait since the last plan."""
        self._due = True
        if at_once:
            self._next = 0.0

    def ended(self, placed: PlacedJob, deviation: float) -> None:
        """Plan again if a job ended much earlier or later than planned."""
        took = self._clock() - placed.planned_at
        if abs(took - placed.entry.finish) > deviation * placed.entry.finish + SLACK_S:
            self._due = True

    def find_overdue(self, deviation: float) -> None:
        """Plan again if a job takes much longer than planned, and when it is twice as late."""
        now = self._clock()
        for each in self._ledger.unfinished():
            late = now - each.planned_at - each.entry.finish
            tolerated = deviation * each.entry.finish + SLACK_S
            if late > max(tolerated, 2 * each.late_s):
                each.late_s = late
                self._due = True

    async def look(self, planner: str) -> None:
        """Plan again if that is due, and move what would end sooner elsewhere."""
        if not self._due or self._clock() < self._next:
            return
        self._due, self._next = False, self._clock() + LEAST_PAUSE_S
        if len([each for each in self._ledger.nodes.values() if each.present]) < 2:  # noqa: PLR2004  else there is no choice
            return
        jobs = await self._movable()
        if not jobs:
            return
        stuck = self._stuck(jobs)
        plan = await self._plans(jobs, planner)
        now_s = longest(self._ledger, self._clock(), jobs)
        if plan.makespan >= (1 - LEAST_GAIN) * now_s and not stuck:
            return
        self._stay([each for each in plan.entries if each.job in stuck])
        changed = [each for each in plan.entries if self._differs(each)][:MOST_MOVES]
        log.info("%d jobs move: %.1f s, not %.1f", len(changed), plan.makespan, now_s)
        moves = [self._mover.move(each.job, each) for each in changed]
        for error in await asyncio.gather(*moves, return_exceptions=True):
            if isinstance(error, Exception):
                log.warning("move: %s", error)

    def _stuck(self, jobs: Sequence[PoolJob]) -> set[str]:
        """Return the jobs whose planned resource is gone."""
        placed = (self._ledger.placed.get(job.id) for job in jobs)
        return {
            each.job.id
            for each in placed
            if each is not None and not self._ledger.offers(each.entry)
        }

    def _stay(self, entries: Sequence[PlanEntry]) -> None:
        """Enter another resource of the same node for jobs whose resource is gone."""
        for entry in entries:
            placed = self._ledger.placed.get(entry.job)
            if placed is not None and placed.node == entry.node:
                placed.entry = replace(entry, errand=placed.entry.errand)
                placed.planned_at = self._clock()

    def _differs(self, entry: PlanEntry) -> bool:
        placed = self._ledger.placed.get(entry.job)
        return placed is not None and not placed.ended and placed.node != entry.node

    async def _movable(self) -> list[PoolJob]:
        """List the jobs that no hetd has begun, by what the nodes say now."""
        waiting: dict[str, list[PoolJob]] = {}
        for each in self._ledger.unfinished():
            alone = len(self._ledger.errands.get(each.entry.errand, ())) == 1
            if alone and not each.moving and not each.cancelled:
                waiting.setdefault(each.node, []).append(each.job)
        found = [self._unbegun(node, jobs) for node, jobs in waiting.items()]
        return [job for jobs in await asyncio.gather(*found) for job in jobs]

    async def _unbegun(self, node: str, jobs: list[PoolJob]) -> list[PoolJob]:
        wanted = m.ListJobs(tuple(job.id for job in jobs))
        try:
            listed = await self._ask(node, "list", wanted, m.JobList)
        except (HetError, OSError):
            return []
        for each in listed.jobs:
            self._ledger.learn(each)
        states = {each.id: each.state for each in listed.jobs}
        return [job for job in jobs if states.get(job.id, "placed") in UNBEGUN]


def longest(ledger: Ledger, now: float, jobs: Sequence[PoolJob]) -> float:
    """Return the seconds until placed jobs have ended, if they stay where they are.

    Others count where they share a resource with them: elsewhere a long one would make
    every plan look shorter.
    """
    entries = [ledger.placed[job.id].entry for job in jobs if job.id in ledger.placed]
    places = {(entry.node, entry.resource) for entry in entries}
    held: Commitments = ledger.commitments(now)
    busy = {at: times for at, times in held.busy.items() if at in places}
    slots: dict[tuple[str, str], int] = {}
    for node in ledger.nodes.values():
        for slot in node.slots:
            place = (node.name, slot.resource)
            slots[place] = slots.get(place, 0) + 1
    shared = [sum(times) / slots.get(at, 1) for at, times in busy.items()]
    return max([0.0, *shared, *(max(times) for times in busy.values())])
