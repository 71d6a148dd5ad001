"""Jobs that no node can run now: the broker keeps them, and places them when a node can.

Their clients have started them as errands without a node, which the engine keeps, too. So
they wait whether their clients live or not, and as long as the scheduler does.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hetpool.jobs import MAX_JOBS
from hetpool.messages import encode
from hetpool.placing import obstacle
from hetpool.seam import ErrandState
from libtask.errors import NotAllowedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hetpool.broker.ledger import Ledger, WaitingJob
    from hetpool.broker.replanning import Plans
    from hetpool.jobs import JobStatus, PlanEntry, PoolJob
    from hetpool.seam import SchedulerEngine

MOST_WAITING, MOST_BYTES = 100_000, 256 << 20
"""Jobs that wait for a node, and bytes of their parameters, calls and environments: this
process has both the broker and the engine, which keeps them."""
MOST_REASONS = 1_000
"""Kinds of jobs for which a list says why they wait."""
PAUSE_S = 5.0
"""Seconds between two plans of them if no node has changed meanwhile."""

log = logging.getLogger("hetpool")


class WaitingJobs:
    """Places the jobs that wait for a node.

    Args:
        ledger: which lists them.
        engine: which keeps and pins their errands.
        plans: plans jobs beside all others.
        clock: monotonic seconds.

    """

    def __init__(
        self,
        ledger: Ledger,
        engine: SchedulerEngine,
        plans: Plans,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._engine = engine
        self._plans = plans
        self._clock = clock
        self._next = -math.inf

    def set_due(self) -> None:
        """Plan at the next occasion: a node has changed and may run them."""
        self._next = -math.inf

    def enter(self, jobs: Sequence[PoolJob]) -> None:
        """Have new jobs wait, all or none of them.

        Raises:
            NotAllowedError: too many wait already.

        """
        sizes = [len(encode(job)) + job.left_out for job in jobs]
        others = self._ledger.waiting
        held = sum(each.size for each in others.values()) if jobs else 0
        if len(others) + len(jobs) > MOST_WAITING or held + sum(sizes) > MOST_BYTES:
            raise NotAllowedError(
                f"no node can run {len(jobs)} of the jobs now, and {len(others)} others "
                f"wait, of {MOST_WAITING} at most, with {MOST_BYTES >> 20} MiB of "
                "parameters and calls: resume a node, or cancel some"
            )
        for job, size in zip(jobs, sizes, strict=True):
            self._ledger.wait(job, size, self._clock())

    async def look(self, planner: str) -> bool:
        """Place those that a node can run now, if that is due; return whether there are any.

        An errand that the engine does not know yet cannot be pinned, and its client would
        start it without a node afterwards: such a job waits for the next look.
        """
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + PAUSE_S
        waiting = [each.job for each in self._ledger.waiting.values()]
        started = [job for job in waiting if self._engine.knows(job.id)]
        for job in started:
            if self._ledger.adopt(job, now):  # its node came back late
                self._pin(job.id)
        left = [job for job in started if job.id in self._ledger.waiting]
        return await self._placed(left[:MAX_JOBS], planner) if left else False

    async def _placed(self, jobs: Sequence[PoolJob], planner: str) -> bool:
        plan = await self._plans(jobs, planner)
        entries = {entry.job: entry for entry in plan.entries}
        for job in jobs:
            if job.id not in self._ledger.waiting:
                continue  # it was cancelled while the plan was made
            if job.id in entries:
                self.begin(job, entries[job.id])
            else:
                self._ledger.wait_last(job.id)
        if entries:
            log.info("%d jobs that waited for a node are placed", len(entries))
        return bool(entries)

    def begin(self, job: PoolJob, entry: PlanEntry) -> None:
        """Place a job whose errand the engine knows."""
        self._ledger.place([job], [replace(entry, errand=job.id)], self._clock())
        self._pin(job.id)

    def _pin(self, job: str) -> None:
        node = self._ledger.nodes[self._ledger.placed[job].node]
        self._engine.pin(job, node.address)

    def cancel(self, job: str, reason: str) -> None:
        """End a job that waits, for all clients."""
        now = time.time()  # noqa: TID251  hetctl compares it with hetd's times
        self._ledger.cancel_waiting(job, reason, now)
        self._engine.cancel(job, reason)

    def errand_changed(self, key: str, state: ErrandState) -> None:
        """Handle a change of an errand that is not placed."""
        if state is ErrandState.FORGOTTEN:
            self._ledger.waiting.pop(key, None)
        elif state is ErrandState.OPEN:
            # the engine is in the middle of the change
            asyncio.get_running_loop().call_soon(self._end_if_unwanted, key)

    def _end_if_unwanted(self, key: str) -> None:
        """End an errand that was cancelled, or is not placed, when it is started."""
        end = self._ledger.ends.get(key)
        if end is not None and end.state == "cancelled":
            self._engine.cancel(key, end.reason)
        elif not self._ledger.expects(key):
            # after its client had placed it, the job ended or was set aside, or the
            # scheduler was lost
            self._engine.give_back(key)

    def drop_unstarted(self, before: float) -> None:
        """Make room where a client has not started a job that it sent before a time.

        A client that was suspended starts it late, and has to place it again.
        """
        for key, each in list(self._ledger.waiting.items()):
            if each.since < before and not self._engine.knows(key):
                del self._ledger.waiting[key]

    def statuses(self, ids: Sequence[str]) -> list[JobStatus]:
        """List those that wait, none named: all.

        One that its client has not started is not listed: it may never be.
        """
        waiting = self._ledger.waiting
        found = [
            waiting[job]
            for job in ids or waiting
            if job in waiting and self._engine.knows(job)
        ]
        reasons: dict[tuple[Any, ...], str] = {}
        return [self._status(each, reasons) for each in found]

    def _status(
        self, waiting: WaitingJob, reasons: dict[tuple[Any, ...], str]
    ) -> JobStatus:
        """Return the state of a job and why it waits; jobs that are alike share a reason."""
        job = waiting.job
        resources = tuple(job.options.get("resources") or ())
        alike = (job.nodes, resources, job.cores, job.memory_bytes)
        if alike not in reasons and len(reasons) < MOST_REASONS:
            reasons[alike] = obstacle(job, self._ledger.nodes.values())
        return replace(waiting.status, reason=reasons.get(alike, ""))
