"""The engine on a node: a Dask worker that is made again when it ends.

A Dask worker does not reconnect to its scheduler (dask/distributed#6361): it ends. The
process goes on, with its client of hetd, and opens the next worker at the same address.
"""

from __future__ import annotations

import asyncio
import logging
import time
from itertools import islice
from typing import TYPE_CHECKING, Any

from distributed import Reschedule, Status, Worker
from distributed.worker import get_worker

from hetpool.engine.answers import Answered, answered, unpacked
from hetpool.engine.configuration import HTTP, OPEN_TASKS, configure, security

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from hetpool.seam import Answer
    from hetpool.setup.settings import EngineSettings

LARGE = 1 << 18
"""Bytes of a message that takes long enough to say something about its link."""
MEASURED = 32
"""Large messages that the measured rate looks at."""

PAUSE_S = 0.5
"""Seconds between two attempts to reach the scheduler."""

log = logging.getLogger("hetpool")


class _NodeWorker(Worker):  # type: ignore[misc]  # Dask is not typed
    """A worker that knows when it last heard its scheduler, and which engine it is of."""

    engine: DaskWorkerEngine

    def _update_latency(self, latency: float) -> None:
        # called when a heartbeat was answered; `heartbeat` itself swallows the errors
        self.engine.last_heard = time.monotonic()
        super()._update_latency(latency)


class DaskWorkerEngine:
    """The node's side of `hetpool.seam`.

    Args:
        settings: addresses and certificates.
        name: of the node.
        host: where it listens; with `port` its address, which stays the same: tasks are
            pinned to addresses, as names are resolved when a graph arrives.
        port: fixed TCP port.
        folder: for Dask's own files, which it would share with other users else.
        agent: which `agent_here` returns to functions of errands.

    """

    def __init__(
        self,
        settings: EngineSettings,
        name: str,
        host: str,
        port: int,
        folder: Path,
    ) -> None:
        configure(settings)
        self._folder = folder
        self.settings = settings
        self.name = name
        self.host, self.port = host, port
        self.last_heard = time.monotonic()
        self.agent: Any = None
        self._handlers: dict[str, Answer] = {}
        self._worker: _NodeWorker | None = None
        self._parting = asyncio.Event()

    @property
    def address(self) -> str:
        """The address at which the node's worker listens."""
        scheme = self.settings.scheduler.partition("://")[0]
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"

    def answer(self, name: str, handler: Answer) -> None:
        self._handlers[name] = handler

    async def ask(self, name: str, message: bytes, node: str = "") -> bytes:
        worker = self._worker
        if worker is None:
            raise ConnectionError(f"{self.name}: no connection to the scheduler")
        peer = worker.rpc(node) if node else worker.scheduler
        return unpacked(await peer.hetpool_ask(name=name, message=message))

    def put_back(self) -> Exception:
        again: Exception = Reschedule()
        return again

    def heard(self) -> float:
        return self.last_heard

    def received(self) -> list[tuple[str, int, float, float]]:
        """Return the files that Dask brought here since the worker connected.

        Returns:
            (content id, bytes, start, end) of each; times are seconds since the epoch.

        """
        log = self._worker.transfer_incoming_log if self._worker is not None else ()
        return [
            (str(key).rpartition("-")[2], size, each["start"], each["stop"])
            for each in list(log)
            for key, size in each["keys"].items()
            if size is not None
        ]

    def rate(self) -> float | None:
        """Return the best rate of the last large messages, bytes a second.

        Inputs come one message at a time, so the best of them had the link to itself.
        """
        log = self._worker.transfer_incoming_log if self._worker is not None else ()
        large = (each for each in reversed(log) if each["total"] >= LARGE)
        rates = (each["bandwidth"] for each in islice(large, MEASURED))
        return max(rates, default=None)

    def part(self) -> None:
        self._parting.set()

    async def run(
        self,
        joined: Callable[[], Awaitable[None]],
        parted: Callable[[], None],
        stop: asyncio.Event,
    ) -> None:
        """Keep a worker until `stop` is set.

        Args:
            joined: called when a worker has connected.
            parted: called when a worker has ended.
            stop: ends this.

        """
        while not stop.is_set():
            try:
                await self._serve(joined, stop)
            except Exception as error:  # noqa: BLE001  the next worker may do better
                log.info("%s: %s", self.settings.scheduler, str(error) or repr(error))
            parted()
            await _pause(stop, PAUSE_S)

    async def _serve(
        self, joined: Callable[[], Awaitable[None]], stop: asyncio.Event
    ) -> None:
        """Open a worker and wait until it ends."""
        worker = self._made()
        try:
            # errands may come before this returns: their function waits for `joined`
            await worker
            self._worker = worker
            self.last_heard = time.monotonic()
            await joined()
            self._parting.clear()
            reasons = {stop.wait(), self._parting.wait(), worker.finished()}
            ends = {asyncio.ensure_future(each) for each in reasons}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for each in ends:
                each.cancel()
        finally:
            self._worker = None
            if worker.status not in (Status.closed, Status.failed):
                await worker.close(executor_wait=False, nanny=False)

    def _made(self) -> _NodeWorker:
        worker = _NodeWorker(
            self.settings.scheduler,
            name=self.name,
            host=self.host,
            port=self.port,
            nthreads=OPEN_TASKS,
            memory_limit=0,
            security=security(self.settings),
            validate=False,
            dashboard=False,
            dashboard_address=HTTP,
            local_directory=str(self._folder),
            death_timeout=self.settings.patience_s,
        )
        worker.engine = self
        worker.handlers["hetpool_ask"] = self._answered
        return worker

    async def _answered(self, name: str, message: bytes) -> Answered:
        handler = self._handlers.get(name)
        if handler is None:
            raise ValueError(f"{self.name}: no handler for {name[:80]!r}")
        return await answered(handler, message)


def agent_here() -> Any:
    """Return the agent of the node on which the calling errand runs."""
    return get_worker().engine.agent


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
