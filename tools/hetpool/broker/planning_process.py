"""The process in which the broker plans: seconds of computing must not stop the scheduler."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any

from hetpool.broker.racks import planned_by_racks
from hetpool.placing import planned

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetpool.broker.racks import Batch
    from hetpool.jobs import PoolPlan
    from hetpool.placing import Placing

FRIENDLY = 5
"""Nice value: planning yields to the scheduler where both need the processor."""
SMALL = 32
"""Jobs times slots up to which the broker plans itself: it takes 3 to 20 ms, and the way to the
process and back takes 2 ms more (AMD EPYC, family 25 model 1, busy)."""


class PlanningProcess:
    """Plans batches one after another in a process that lives on between them."""

    def __init__(self) -> None:
        self._process = _made()
        # its imports take a second, which the first batch need not wait for
        self._process.submit(os.getpid)

    async def plan(self, placing: Placing, planner: str, order: int) -> PoolPlan:
        """Plan a batch as `placing.planned` does."""
        if placing.problem.seconds.size <= SMALL:
            return planned(placing, planner, order)
        return await self._called(planned, placing, planner, order)

    async def plan_racks(self, batch: Batch, planner: str, order: int) -> PoolPlan:
        """Plan a batch as `racks.planned_by_racks` does, which needs no large matrices here."""
        return await self._called(planned_by_racks, batch, planner, order)

    async def _called(self, work: Callable[..., PoolPlan], *given: Any) -> PoolPlan:
        """Call a function in the process; once again if the process was killed."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._process, work, *given)
        except BrokenProcessPool:
            self._process = _made()
            return await loop.run_in_executor(self._process, work, *given)

    def close(self) -> None:
        """End the process."""
        self._process.shutdown(wait=False, cancel_futures=True)


def _made() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=_begin)


def _begin() -> None:
    """Prepare the process: it yields to the scheduler, and ends with it."""
    os.nice(FRIENDLY)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Exit when the scheduler is gone, however it ended: the executor waits for ever else."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)
