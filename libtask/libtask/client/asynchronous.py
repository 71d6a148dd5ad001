"""The client for asyncio: the same session, awaited.

Short requests go through a thread, long waits through futures, so that one event
loop follows any number of tasks.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self, Unpack

from libtask.client.batches import tasks_of
from libtask.client.client import Client, Selection
from libtask.client.handles import outcome
from libtask.client.options import SubmitFields
from libtask.client.subscription import Subscription, watch_of
from libtask.errors import HetError
from libtask.inputs import TaskReference
from libtask.messages import TaskChanged
from libtask.results import has_pickled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable
    from pathlib import Path
    from types import TracebackType

    from libtask.apps import LateTask
    from libtask.client.handles import TaskHandle
    from libtask.messages import DeviceInfo, TaskInfo
    from libtask.task import Task


class AsyncTask(TaskReference):
    """A submitted task that can be awaited; as a parameter it stands for the result."""

    def __init__(self, handle: TaskHandle) -> None:
        self.handle = handle
        self.id = handle.id

    @property
    def input_id(self) -> int:
        return self.id

    @property
    def progress(self) -> float:
        """Share done in the latest change, 0 to 1; see `AsyncClient.follow_progress`."""
        return self.handle.progress

    @property
    def state(self) -> str:
        """State in the latest received change."""
        return self.handle.state

    def done(self) -> bool:
        """Return whether it has ended."""
        return self.handle.done()

    async def wait(self) -> str:
        """Wait for the end; return the state."""
        change = await self._last_change()
        return change.state

    async def result(self) -> Any:
        """Wait for the end; return the result, or raise as `TaskHandle.result` does."""
        change = await self._last_change()
        result = outcome(change)
        if has_pickled(result):  # asks the daemon for the owner, and reads files
            return await asyncio.to_thread(self.handle.result, 0)
        return result

    async def _last_change(self) -> TaskChanged:
        if self.handle.lost:
            await asyncio.to_thread(self.handle.follow_again)
        # shielded: cancelling the wait must not cancel the handle's future
        return await asyncio.shield(asyncio.wrap_future(self.handle.ended))

    async def cancel(self) -> None:
        await asyncio.to_thread(self.handle.cancel)

    async def info(self) -> TaskInfo:
        return await asyncio.to_thread(self.handle.info)


class AsyncClient:
    """Use as `async with AsyncClient() as client`; arguments as for `Client`."""

    def __init__(
        self,
        socket: str | Path | None = None,
        *,
        timeout: float = 10.0,
        patience: float = 30.0,
    ) -> None:
        self._socket = socket
        self._timeout = timeout
        self._patience = patience
        self._opened: Client | None = None

    async def __aenter__(self) -> Self:
        self._opened = await asyncio.to_thread(
            Client, self._socket, timeout=self._timeout, patience=self._patience
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.client.close)

    async def follow_progress(self) -> None:
        """Subscribe to progress too, which keeps the `progress` of tasks current."""
        await asyncio.to_thread(self.client.follow_progress)

    @property
    def client(self) -> Client:
        """The underlying client, for requests without an asynchronous form."""
        if self._opened is None:
            raise RuntimeError("AsyncClient: enter it first, with `async with`")
        return self._opened

    async def submit(
        self,
        app: Task | str | Callable[..., Any],
        *arguments: Any,
        **options: Unpack[SubmitFields],
    ) -> AsyncTask:
        """Submit a task, as `Client.submit`."""
        return AsyncTask(
            await asyncio.to_thread(self.client.submit, app, *arguments, **options)
        )

    async def submit_many(
        self, tasks: Iterable[Task | LateTask], **options: Unpack[SubmitFields]
    ) -> list[AsyncTask]:
        """Submit many tasks with the same options."""
        handles = await asyncio.to_thread(self.client.submit_many, tasks, **options)
        return [AsyncTask(handle) for handle in handles]

    async def map(
        self,
        app: str | Callable[..., Any],
        *iterables: Iterable[Any],
        **options: Unpack[SubmitFields],
    ) -> AsyncGenerator[Any, None]:
        """Run a task for each group of arguments; iterate over the results in order.

        As `Client.map`: tasks whose results are no longer awaited are cancelled.
        """
        tasks = tasks_of(self.client.path, app, iterables)
        submitted = await self.submit_many(tasks, **options)
        try:
            for task in submitted:
                yield await task.result()
        finally:
            left = [task.id for task in submitted if not task.done()]
            if left:
                await asyncio.to_thread(self.client.cancel, *left)

    async def as_completed(
        self, tasks: Iterable[AsyncTask]
    ) -> AsyncGenerator[AsyncTask, None]:
        """Iterate over tasks in the order in which they end."""
        left = {asyncio.ensure_future(task.wait()): task for task in tasks}
        try:
            while left:
                done, _ = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for future in done:
                    yield left.pop(future)
        finally:
            for future in left:
                future.cancel()

    async def tasks(self, selection: Selection | None = None) -> list[TaskInfo]:
        return await asyncio.to_thread(self.client.tasks, selection)

    async def devices(self) -> list[DeviceInfo]:
        return await asyncio.to_thread(self.client.devices)

    async def watch(
        self, *ids: int, progress: bool = True
    ) -> AsyncGenerator[TaskChanged, None]:
        """Iterate over the changes of these tasks (none named: all visible) from now on."""
        loop = asyncio.get_running_loop()
        changes: asyncio.Queue[Any] = asyncio.Queue()

        def sink(item: Any) -> None:
            loop.call_soon_threadsafe(changes.put_nowait, item)

        watch = watch_of(*ids, progress=progress)
        subscription = await asyncio.to_thread(
            Subscription, self.client.path, watch, sink, self._patience
        )
        try:
            while True:
                yield _checked(await changes.get())
        finally:
            await _closed(subscription)


async def _closed(subscription: Subscription) -> None:
    await asyncio.to_thread(subscription.close)


def _checked(item: TaskChanged | HetError) -> TaskChanged:
    if isinstance(item, HetError):
        raise item
    return item
