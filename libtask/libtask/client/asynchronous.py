"""The client for asyncio: the same session, awaited.

Short requests go through a thread, long waits through futures, so that one event
loop follows any number of tasks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Self, Unpack

from libtask.client.batches import chunks, tasks_of
from libtask.client.client import Client, Selection
from libtask.client.handles import outcome
from libtask.client.options import SubmitFields
from libtask.client.subscription import Subscription, watch_of
from libtask.errors import HetError, InputError
from libtask.inputs import TaskReference
from libtask.messages import TaskChanged
from libtask.results import has_pickled

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        Callable,
        Iterable,
        Iterator,
        Sequence,
    )
    from pathlib import Path
    from types import TracebackType

    from libtask.apps import LateTask
    from libtask.client.handles import TaskHandle
    from libtask.messages import DeviceInfo, TaskInfo, TaskSpec
    from libtask.task import Task

    Waiting = tuple[TaskSpec, asyncio.Future[TaskHandle]]
    """A task, and what its coroutine waits for."""


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
        ended = asyncio.wrap_future(self.handle.ended)
        ended.add_done_callback(_take_note)
        return await asyncio.shield(ended)

    async def cancel(self) -> None:
        await asyncio.to_thread(self.handle.cancel)

    async def info(self) -> TaskInfo:
        return await asyncio.to_thread(self.handle.info)


class AsyncSubmissions:
    """Submits of coroutines: those that come while a message is under way go in the next one.

    Args:
        client: the connection to hetd.

    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: deque[Waiting] = deque()
        self._taken: deque[Waiting] = deque()
        """Those that are about to be sent."""
        self._sending: asyncio.Task[None] | None = None

    async def submit(self, spec: TaskSpec) -> TaskHandle:
        """Submit a task that was described.

        Raises:
            HetError: why it is refused.

        """
        accepted: asyncio.Future[TaskHandle]
        accepted = asyncio.get_running_loop().create_future()
        self._waiting.append((spec, accepted))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
        return await accepted

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                for part in chunks(self._wanted()):
                    await self._send([self._taken.popleft() for _ in part])
        finally:
            self._sending = None

    def _wanted(self) -> Iterator[TaskSpec]:
        """Take what waits, but for tasks whose coroutines were cancelled."""
        while self._waiting:
            spec, accepted = self._waiting.popleft()
            if not accepted.done():
                self._taken.append((spec, accepted))
                yield spec

    async def _send(self, some: list[Waiting]) -> None:
        """Send tasks that fit into one message, which hetd accepts or refuses as a whole."""
        specs = [spec for spec, _ in some]
        replies: Sequence[TaskHandle | Exception]
        try:
            replies = await asyncio.to_thread(self._client.submit_specs, specs)
        except Exception as error:  # noqa: BLE001  who waits for them gets it
            if len(some) > 1 and isinstance(error, InputError):
                for each in some:
                    await self._send([each])
                return
            replies = [error] * len(some)
        for (_, accepted), reply in zip(some, replies, strict=True):
            _settle(accepted, reply)


def _settle(
    accepted: asyncio.Future[TaskHandle], reply: TaskHandle | Exception
) -> None:
    if accepted.done():  # its coroutine was cancelled
        return
    if isinstance(reply, Exception):
        accepted.set_exception(reply)
    else:
        accepted.set_result(reply)


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
        self._opened: tuple[Client, AsyncSubmissions] | None = None

    async def __aenter__(self) -> Self:
        client = await asyncio.to_thread(
            Client, self._socket, timeout=self._timeout, patience=self._patience
        )
        self._opened = client, AsyncSubmissions(client)
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
        return self._entered()[0]

    def _entered(self) -> tuple[Client, AsyncSubmissions]:
        if self._opened is None:
            raise RuntimeError("AsyncClient: enter it first, with `async with`")
        return self._opened

    async def submit(
        self,
        app: Task | str | Callable[..., Any],
        *arguments: Any,
        **options: Unpack[SubmitFields],
    ) -> AsyncTask:
        """Submit a task, as `Client.submit`; what coroutines submit at once goes together."""
        client, submissions = self._entered()
        if "key" in options:
            handle = await asyncio.to_thread(client.submit, app, *arguments, **options)
            return AsyncTask(handle)
        spec = await asyncio.to_thread(client.spec_for_submit, app, arguments, options)
        return AsyncTask(await submissions.submit(spec))

    async def cancel(self, *ids: int) -> list[int]:
        """Cancel tasks, as `Client.cancel`."""
        return await asyncio.to_thread(self.client.cancel, *ids)

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


def _take_note(ended: asyncio.Future[TaskChanged]) -> None:
    """Look at an error for which nobody waits any more: else asyncio complains."""
    if not ended.cancelled():
        ended.exception()


async def _closed(subscription: Subscription) -> None:
    await asyncio.to_thread(subscription.close)


def _checked(item: TaskChanged | HetError) -> TaskChanged:
    if isinstance(item, HetError):
        raise item
    return item
