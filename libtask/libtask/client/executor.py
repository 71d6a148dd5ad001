"""`concurrent.futures.Executor` over hetd: calls run as tasks, in the user's workers."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import CancelledError, Executor, Future
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from libtask.client.call import Call, cleaned, collected, prepared, raised
from libtask.client.handles import as_change, outcome
from libtask.endpoint import run_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from libtask.client.client import Client
    from libtask.client.handles import TaskHandle
    from libtask.messages import Kind, TaskChanged

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")


class CallFuture(Future[Any]):
    """The future of one call.

    Cancelling works until the call runs, as the standard has it.
    """

    def __init__(self, task: Call, handle: TaskHandle) -> None:
        super().__init__()
        self.task = task
        self.handle = handle
        self._started: bool | None = None
        self._start_lock = threading.Lock()

    def cancel(self) -> bool:
        if self.cancelled():
            return True
        if self.running() or not super().cancel():
            return False
        self.handle.cancel()
        return True

    def running(self) -> bool:
        """Ask the daemon, which does not tell by itself when a task starts."""
        if self._started is None and not self.done():
            self._changed(as_change(self.handle.info()))
        return super().running()

    def conclude(self) -> None:
        """Take the value or the exception over from the task, which has ended."""
        try:
            if self._start():
                self._conclude()
        finally:
            cleaned(self.task)

    def _changed(self, change: TaskChanged) -> None:
        if change.state == "running":
            self._start()

    def _start(self) -> bool:
        """Settle, once, whether the caller cancelled it before it ran."""
        with self._start_lock:
            if self._started is None:
                self._started = self.set_running_or_notify_cancel()
            return self._started

    def _conclude(self) -> None:
        try:
            value = collected(self.task, outcome(self.handle.ended.result()))
        except CancelledError as error:
            self.set_exception(error)
        except Exception as error:  # noqa: BLE001  whatever it is, the caller gets it
            self.set_exception(raised(self.task) or error)
        else:
            self.set_result(value)


class TaskExecutor(Executor):
    """An executor whose calls are scheduled by hetd.

    Args:
        client: the connection to hetd; it stays open when the executor shuts down.
        kind: kind of resource that each call holds; `libtask.client.call.current_device`
            gives it to the function.

    """

    def __init__(self, client: Client, kind: Kind = "cpu") -> None:
        self._client = client
        self._kind = kind
        self._folder = run_directory() / "calls"
        self._lock = threading.Lock()
        self._closed = False
        self._pending: set[CallFuture] = set()
        self._ended: queue.SimpleQueue[CallFuture | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._conclude_all, name="hetd-results", daemon=True
        )
        self._thread.start()

    def submit(
        self,
        fn: Callable[Arguments, Value],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Future[Value]:
        """Submit one call."""
        return self._submit([(fn, args, kwargs)])[0]

    def map(
        self,
        fn: Callable[..., Value],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Value]:
        """Submit a call for each group of arguments, in few messages; yield in order."""
        futures = self._submit(
            [(fn, arguments, {}) for arguments in zip(*iterables, strict=False)]
        )
        return _results(futures, timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  the standard's signature
        """Take no more calls; with `wait`, until those submitted have ended."""
        with self._lock:
            self._closed = True
            pending = list(self._pending)
        if cancel_futures:
            for future in pending:
                future.cancel()
        self._ended.put(None)
        if wait:
            self._thread.join()

    def _submit(
        self, calls: list[tuple[Callable[..., Any], Any, Any]]
    ) -> list[Future[Any]]:
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
        tasks = [prepared(self._kind, self._folder, call) for call in calls]
        try:
            handles = self._client.submit_many(tasks)
        except BaseException:
            for task in tasks:
                cleaned(task)
            raise
        return [self._future(*pair) for pair in zip(tasks, handles, strict=True)]

    def _future(self, task: Call, handle: TaskHandle) -> CallFuture:
        future = CallFuture(task, handle)
        with self._lock:
            self._pending.add(future)
        handle.ended.add_done_callback(lambda _: self._ended.put(future))
        return future

    def _conclude_all(self) -> None:
        """Unpickle and call back in a thread of its own: callbacks may submit more."""
        while not (self._closed and not self._pending):
            future = self._ended.get()
            if future is not None:
                future.conclude()
                self._pending.discard(future)


def _results(futures: list[Future[Value]], timeout: float | None) -> Iterator[Value]:
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        for future in futures:
            yield future.result(
                None if deadline is None else deadline - time.monotonic()
            )
    finally:
        for future in futures:
            future.cancel()
