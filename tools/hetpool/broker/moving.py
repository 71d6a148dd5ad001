"""Moving: a job leaves one node and goes on at another, under the same errand.

The node holds it and writes its snapshot; the ledger names the new place; the node gives it
up, and its errand is put back and starts where it is pinned by then. There the agent pulls
the snapshot and submits the job with it. The client's future stays the same one.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from hetpool import messages as m
from libtask.errors import HetError, InputError

if TYPE_CHECKING:
    from hetpool.broker.estimates import Ask
    from hetpool.broker.ledger import Ledger
    from hetpool.jobs import PlanEntry
    from hetpool.seam import SchedulerEngine

log = logging.getLogger("hetpool")


class Mover:
    """Moves jobs between nodes.

    Args:
        ledger: which says where jobs are.
        engine: which pins errands.
        ask: sends a message to a node.

    """

    def __init__(self, ledger: Ledger, engine: SchedulerEngine, ask: Ask) -> None:
        self._ledger = ledger
        self._engine = engine
        self._ask = ask

    async def move(self, job: str, entry: PlanEntry) -> bool:
        """Move a job to the place of a plan's entry; return whether it went.

        Raises:
            InputError: it travels in a group of short jobs, or moves already.
            HetError: its node does not answer.

        """
        placed = self._ledger.placed[job]
        if placed.node == entry.node:
            return False
        if len(self._ledger.errands.get(placed.entry.errand, ())) > 1:
            raise InputError(f"job {job[:12]} is too short to move: it is in a group")
        if placed.moving:
            raise InputError(f"job {job[:12]} moves already")
        placed.moving = True  # no node may begin it from here on
        try:
            return await self._moved(job, entry)
        finally:
            placed.moving = False

    async def _moved(self, job: str, entry: PlanEntry) -> bool:
        placed = self._ledger.placed[job]
        source = placed.node
        try:
            parked = await self._ask(source, "park", m.ParkJob(job), m.ParkedJob)
        except BaseException:
            await self._stay(source, job)
            raise
        if parked.ended or placed.ended:
            return False
        if parked.snapshot is not None:
            placed.snapshot = parked.snapshot
        if parked.here:
            self.settle(entry, time.monotonic())
            await self._leave(source, job)
        else:
            # its inputs are on their way: it has not begun
            self.settle(entry, time.monotonic())
            self._engine.take_back(placed.entry.errand)
        return True

    async def _stay(self, source: str, job: str) -> None:
        """Let a job go on where it is: its node may have parked it although it did not answer."""
        with suppress(HetError, OSError):
            await self._ask(source, "unpark", m.UnparkJob(job), m.NameList)

    async def _leave(self, source: str, job: str) -> None:
        try:
            await self._ask(source, "leave", m.LeaveJob(job), m.NameList)
        except (HetError, OSError) as error:
            # it was held, and is cancelled when the node joins again
            log.warning("%s on %s: %s", job[:12], source, error)

    def settle(self, entry: PlanEntry, now: float) -> None:
        """Give an errand another place: all of its jobs, which travel together."""
        errand = self._ledger.placed[entry.job].entry.errand
        generation = time.time_ns() // 1_000_000_000
        for job in self._ledger.errands.get(errand, ()):
            self._ledger.place_again(replace(entry, job=job), now, generation)
        node = self._ledger.nodes[entry.node]
        self._engine.pin(errand, node.address)
