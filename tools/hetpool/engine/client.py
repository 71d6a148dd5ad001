"""The engine in a client's process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dask.base import annotate
from distributed import Client, fire_and_forget
from distributed.client import FutureCancelledError

from hetpool.engine.answers import unpacked
from hetpool.engine.configuration import configure, security
from hetpool.engine.inputs import LOAD, load
from hetpool.errors import PoolUnreachableError
from hetpool.seam import EngineGoneError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distributed import Future

    from hetpool.jobs import InputFile
    from hetpool.seam import Errand
    from hetpool.setup.settings import EngineSettings

NOWHERE = "127.0.0.1:0"
"""Pin of errands without a node. A worker never has it, as it listens at no port 0; the
scheduler keeps such errands until they are pinned to a worker."""
FIRST = 24
"""Errands of a batch that are started before the others: a graph of hundreds takes the
scheduler some 0.2 s, in which links and processors would wait."""
SENDING_S = 0.01
"""Seconds that the message with the first errands gets before the loop makes the others."""


class _ByKey(dict[str, Any]):
    """An annotation that has a value of its own for each key: Dask calls it with the key."""

    def __call__(self, key: Any) -> Any:
        return self.get(key)


class DaskErrand:
    """An errand as a Dask future."""

    def __init__(self, future: Future) -> None:
        self._future = future

    async def outcome(self) -> Any:
        try:
            return await self._future.result()
        except FutureCancelledError as error:
            # futures of a scheduler that was lost are cancelled, for ever
            raise EngineGoneError(str(error)) from None
        except OSError as error:
            # its result was being fetched when a connection ended
            raise EngineGoneError(str(error)) from None

    def drop(self) -> None:
        self._future.release()


class DaskClientEngine:
    """The client's side of `hetpool.seam`; made and used in one event loop."""

    def __init__(self, settings: EngineSettings, timeout: float) -> None:
        configure(settings)
        self._settings = settings
        self._timeout = timeout
        self._client: Client = None
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Connect, again where the connection was given up.

        Raises:
            PoolUnreachableError: the scheduler does not answer.

        """
        async with self._opening:
            status = self._client.status if self._client is not None else "closed"
            if status == "connecting":  # Dask's own attempt, which ends after a while
                text = f"{self._settings.scheduler}: the connection was lost"
                raise PoolUnreachableError(text)
            if status != "running":
                await self._connect()

    async def _connect(self) -> None:
        client = Client(
            self._settings.scheduler,
            asynchronous=True,
            timeout=self._timeout,
            security=security(self._settings),
            set_as_default=False,
        )
        try:
            self._client = await client
        except BaseException as error:
            # else its finaliser makes a coroutine that nobody awaits
            client.status = "closed"
            if not isinstance(error, OSError | TimeoutError):
                raise
            text = f"no scheduler of a pool answers at {self._settings.scheduler}"
            raise PoolUnreachableError(text) from error

    async def ask(self, name: str, message: bytes) -> bytes:
        await self.open()
        try:
            answer = await self._client.scheduler.hetpool_ask(
                name=name, message=message
            )
        except OSError as error:
            raise PoolUnreachableError(
                f"{self._settings.scheduler}: {error}"
            ) from error
        return unpacked(answer)

    async def start(self, errands: Sequence[Errand]) -> list[DaskErrand]:
        await self.open()
        in_order = sorted(errands, key=lambda each: each.order)
        started = self._mapped(in_order[:FIRST])
        if len(errands) > FIRST:
            await asyncio.sleep(SENDING_S)
            started |= self._mapped(in_order[FIRST:])
        return [DaskErrand(started[each.key]) for each in errands]

    def _mapped(self, errands: Sequence[Errand]) -> dict[str, Future]:
        """Start errands in one graph, return their futures by key."""
        loads = self._loads(errands)
        nowhere = f"{self._settings.scheduler.partition('://')[0]}://{NOWHERE}"
        workers = _ByKey({each.key: [each.node or nowhere] for each in errands})
        priorities = _ByKey({each.key: -each.order for each in errands})
        by_function: dict[Any, list[Errand]] = {}
        for each in errands:
            by_function.setdefault(each.function, []).append(each)
        started: dict[str, Future] = {}
        for function, some in by_function.items():
            # one graph for all: one by one they cost the scheduler 2 ms each
            with annotate(workers=workers, priority=priorities):
                futures = self._client.map(
                    function,
                    [each.argument for each in some],
                    [[loads[file.content] for file in each.inputs] for each in some],
                    key=[each.key for each in some],
                    pure=False,
                )
            started |= {
                each.key: future for each, future in zip(some, futures, strict=True)
            }
        # a client that ends must not take its jobs along
        fire_and_forget(list(started.values()))
        return started

    def _loads(self, errands: Sequence[Errand]) -> dict[str, Future]:
        """Make futures of input files, each pinned to a node that has it.

        Not by `scatter`: scattered data cannot be made again when its holder is lost.
        """
        files: dict[str, tuple[InputFile, int]] = {}
        for errand in errands:
            for file in errand.inputs:
                files.setdefault(file.content, (file, errand.order))
        if not files:  # a graph of nothing would be sent, too
            return {}
        contents = list(files)
        keys = [f"{LOAD}-{content}" for content in contents]
        by_key = dict(zip(keys, files.values(), strict=True))
        workers = _ByKey({key: list(file.sources) for key, (file, _) in by_key.items()})
        priorities = _ByKey({key: -order for key, (_, order) in by_key.items()})
        # one graph for all, as for the errands
        with annotate(workers=workers, priority=priorities):
            futures = self._client.map(load, contents, key=keys, pure=False)
        return dict(zip(contents, futures, strict=True))

    async def close(self) -> None:
        if self._client is None or self._client.status == "closed":
            return
        sender = self._client.scheduler_comm
        await self._client.close()
        if sender is not None:
            # where the scheduler ends the connection first, Dask leaves its sender behind,
            # and a loop that stops now would report the timeout for which it waits
            await sender.close()
