"""`concurrent.futures.Executor` over hetd: calls run as tasks, in the user's workers."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from concurrent.futures import Executor
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from libtask.client.batches import BATCH
from libtask.client.call import (
    InChunks,
    chunks_of,
    flattened,
    pickled_once,
    prepared,
    values_in_order,
)
from libtask.client.call_future import CallFuture
from libtask.client.submissions import Submissions, Submitter
from libtask.endpoint import run_directory
from libtask.errors import HetError
from libtask.messages import Kind
from libtask.parameters import converted
from libtask.task_waits import current_run, join

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType

    from libtask.messages import TaskInfo

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")
PlainCall = tuple["Callable[..., Any]", tuple[Any, ...], dict[str, Any]]
"""A function, its arguments and its keyword arguments."""


class ExecutorClient(Submitter, Protocol):
    """The interface of a client that an executor uses.

    Attributes:
        path: hetd's socket.

    """

    path: Path

    def listed(self, ids: Iterable[int]) -> list[TaskInfo]: ...

    def cancel(self, *ids: int) -> list[int]: ...


_OPEN: WeakSet[TaskExecutor] = WeakSet()
"""The executors of this process, which a forked child uses without the calls of its parent."""


class TaskExecutor(Executor):
    """An executor whose calls are scheduled by hetd.

    Args:
        client: the connection to hetd; it stays open when the executor shuts down.
        kind: kind of resource that each call uses; `libtask.client.call.current_device`
            returns it in the function.
        max_workers: maximum number of submitted calls, the others wait here; None:
            unlimited, as hetd queues them.

    Raises:
        InputError: there is no such kind.
        ValueError: `max_workers` is less than 1.

    """

    def __init__(
        self, client: ExecutorClient, kind: Kind = "cpu", max_workers: int | None = None
    ) -> None:
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        self._client = client
        self._kind: Kind = converted("kind", kind, Kind)
        self._max_workers = max_workers
        self._folder = run_directory() / "calls"
        self._closed = False
        self._begin()
        _OPEN.add(self)

    def _begin(self) -> None:
        """Begin without any calls: also in a forked child, as those are its parent's."""
        self._lock = threading.Lock()
        self._pending: set[CallFuture] = set()
        self._ended: queue.SimpleQueue[CallFuture | None] = queue.SimpleQueue()
        put = self._ended.put
        self._submissions = Submissions(self._client, self._max_workers, put)
        self._thread: threading.Thread | None = None

    def submit(
        self,
        fn: Callable[Arguments, Value],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Future[Value]:
        """Submit one call, without waiting for hetd; if it is refused, its future says why."""
        return self._submit([(fn, args, kwargs)])[0]

    def map(
        self,
        fn: Callable[..., Value],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[Value]:
        """Submit a call for each group of arguments, in few messages; yield in order.

        The first ones run while others are pickled. If one cannot be pickled, those before it
        are cancelled. The function is pickled once.

        Args:
            fn: the function.
            iterables: as for the built-in `map`.
            timeout: seconds from this call within which each value must be available.
            chunksize: number of calls in one task, one after the other. One that raises ends
                its chunk, whose values are lost.
            buffersize: maximum number of calls, or chunks, whose values are not taken yet: a
                further one is submitted when a value is taken. None: all are submitted now.

        Raises:
            ValueError: `chunksize` or `buffersize` is less than 1.

        """
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        deadline = None if timeout is None else time.monotonic() + timeout
        groups = zip(*iterables, strict=False)
        function = pickled_once(fn)
        if chunksize == 1:
            return self._results(_calls(function, groups), buffersize, deadline)
        chunks = ((each,) for each in chunks_of(groups, chunksize))
        calls = _calls(InChunks(function), chunks)
        return flattened(self._results(calls, buffersize, deadline))

    def _results(
        self, calls: Iterator[PlainCall], most: int | None, deadline: float | None
    ) -> Iterator[Any]:
        """Submit calls now; return an iterator over their values.

        Args:
            calls: the calls.
            most: maximum number of those whose values are not taken yet; None: unlimited.
            deadline: deadline of each value, monotonic seconds.

        """
        futures = deque(self._submit_all(islice(calls, most)))
        further = (self._submit([call])[0] for call in calls)
        return values_in_order(futures, further, deadline, self._give_up)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  the standard's signature
        """Accept no more calls; with `wait`, wait until the submitted ones have ended."""
        with self._lock:
            self._closed, thread = True, self._thread
        if cancel_futures:
            self._cancel(self._unfinished())
        self._ended.put(None)
        if wait and thread is not None:
            join(thread, self._unfinished)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait for the calls; after Ctrl-C cancel them instead, also those that run."""
        interrupted = isinstance(error, KeyboardInterrupt)
        try:
            self.shutdown(wait=not interrupted)
        except KeyboardInterrupt:
            interrupted = True
            raise
        finally:
            if interrupted:
                self._stop_all()

    def _unfinished(self) -> list[CallFuture]:
        with self._lock:
            return list(self._pending)

    def _stop_all(self) -> None:
        """Cancel all calls; they go on if hetd is away."""
        pending = self._unfinished()
        for each in pending:
            each.withdraw()
        handles = [each.handle for each in pending if each.handle is not None]
        with suppress(HetError):
            self._client.cancel(*(handle.id for handle in handles))

    def _submit_all(self, calls: Iterator[PlainCall]) -> list[CallFuture]:
        """Submit calls as they are pickled; give up those before one that cannot be."""
        futures: list[CallFuture] = []
        try:
            while some := list(islice(calls, BATCH)):
                futures += self._submit(some)
        except BaseException:
            self._give_up(futures)
            raise
        return futures

    def _give_up(self, futures: Iterable[CallFuture]) -> None:
        """Cancel the calls for which nobody waits; they go on if hetd is away."""
        with suppress(HetError):
            self._cancel(futures)

    def _cancel(self, futures: Iterable[CallFuture]) -> None:
        """Cancel the calls that do not run yet, in few requests."""
        unfinished = {}
        for future in futures:
            if future.handle is None:
                future.cancel()
            elif not future.done():
                unfinished[future.handle.id] = future
        if unfinished:
            for info in self._client.listed(unfinished):
                unfinished[info.id].note(info)
            chosen = [task for task, each in unfinished.items() if each.withdraw()]
            self._client.cancel(*chosen)

    def _submit(self, calls: list[PlainCall]) -> list[CallFuture]:
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
        futures = self._prepared(calls)
        with self._lock:
            self._pending.update(futures)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._conclude_all, name="hetd-results", daemon=True
                )
                self._thread.start()
        self._submissions.add(futures)
        return futures

    def _prepared(self, calls: list[PlainCall]) -> list[CallFuture]:
        """Prepare all calls, or none: if one fails, the files of the others are removed."""
        futures: list[CallFuture] = []
        caller = current_run(self._client.path)
        try:
            for call in calls:
                task = prepared(self._kind, self._folder, call)
                task.caller = caller
                futures.append(CallFuture(task))
            self._submissions.describe(futures)
        except BaseException:
            for each in futures:
                each.discard()
            raise
        return futures

    def _conclude_all(self) -> None:
        """Unpickle and run callbacks in a separate thread: they may submit more calls."""
        while not (self._closed and not self._pending):
            future = self._ended.get()
            if future is not None:
                future.conclude()
                with self._lock:
                    self._pending.discard(future)
            del future  # do not keep a value that is no longer needed


def _calls(
    function: Callable[..., Any], groups: Iterable[tuple[Any, ...]]
) -> Iterator[PlainCall]:
    return ((function, arguments, {}) for arguments in groups)


def _begin_all() -> None:
    for executor in list(_OPEN):
        executor._begin()  # noqa: SLF001  the same module


os.register_at_fork(after_in_child=_begin_all)
