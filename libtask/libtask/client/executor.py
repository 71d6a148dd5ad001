"""`concurrent.futures.Executor` over hetd: calls run as tasks, in the user's workers."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Executor, Future
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from libtask.client.batches import BATCH
from libtask.client.call import prepared
from libtask.client.call_future import CallFuture
from libtask.client.submissions import Submissions
from libtask.endpoint import run_directory
from libtask.messages import Kind
from libtask.parameters import converted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from libtask.client.submissions import Submitter

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")


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
        self, client: Submitter, kind: Kind = "cpu", max_workers: int | None = None
    ) -> None:
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        self._kind: Kind = converted("kind", kind, Kind)
        self._folder = run_directory() / "calls"
        self._lock = threading.Lock()
        self._closed = False
        self._pending: set[CallFuture] = set()
        self._ended: queue.SimpleQueue[CallFuture | None] = queue.SimpleQueue()
        self._submissions = Submissions(client, max_workers, self._ended.put)
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
        """Submit one call, without waiting for hetd; if it is refused, its future says why."""
        return self._submit([(fn, args, kwargs)])[0]

    def map(
        self,
        fn: Callable[..., Value],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Value]:
        """Submit a call for each group of arguments, in few messages; yield in order.

        The first ones run while others are pickled. If one cannot be pickled, those before it
        are cancelled.
        """
        groups = zip(*iterables, strict=False)
        calls: Iterator[Any] = ((fn, arguments, {}) for arguments in groups)
        futures: list[Future[Value]] = []
        try:
            while some := list(islice(calls, BATCH)):
                futures += self._submit(some)
        except BaseException:
            for each in futures:
                each.cancel()
            raise
        return _results(futures, timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  the standard's signature
        """Accept no more calls; with `wait`, wait until the submitted ones have ended."""
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
        futures = self._prepared(calls)
        with self._lock:
            self._pending.update(futures)
        self._submissions.add(futures)
        return list(futures)

    def _prepared(
        self, calls: list[tuple[Callable[..., Any], Any, Any]]
    ) -> list[CallFuture]:
        """Prepare all calls, or none: if one fails, the files of the others are removed."""
        futures: list[CallFuture] = []
        try:
            for call in calls:
                task = prepared(self._kind, self._folder, call)
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


def _results(futures: list[Future[Value]], timeout: float | None) -> Iterator[Value]:
    """Iterate over the values in order without keeping them."""
    deadline = None if timeout is None else time.monotonic() + timeout
    futures.reverse()
    try:
        while futures:
            left = None if deadline is None else deadline - time.monotonic()
            yield futures.pop().result(left)
    finally:
        for future in futures:
            future.cancel()
