"""`concurrent.futures.Executor` over hetd: calls run as tasks, in the user's workers."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from concurrent.futures import CancelledError, Executor, Future
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from libtask.client.call import Call, cleaned, collected, prepared, raised
from libtask.client.handles import outcome
from libtask.client.subscription import as_change
from libtask.endpoint import run_directory
from libtask.errors import HetError, InputError
from libtask.inputs import TaskReference
from libtask.messages import Kind
from libtask.parameters import converted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from libtask.client.handles import TaskHandle
    from libtask.messages import TaskChanged
    from libtask.task import Task

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")


class CallFuture(Future[Any], TaskReference):
    """The future of one call; as an argument of another call it stands for the value.

    A call can be cancelled until it runs, as in the standard library.
    """

    def __init__(self, task: Call) -> None:
        super().__init__()
        self.task = task
        self.handle: TaskHandle | None = None
        """None: not submitted yet."""
        self.inputs: list[CallFuture] = [
            each for each in task.inputs if isinstance(each, CallFuture)
        ]
        """Calls whose values it takes."""
        self._users = 1
        """This call itself, until it has ended, and the calls that take its value."""
        self._users_lock = threading.Lock()
        self._on_submitted: list[Callable[[], None]] = []
        self._started: bool | None = None
        self._start_lock = threading.Lock()

    @property
    def input_id(self) -> int:
        if self.handle is None:
            raise InputError("a call that is not submitted yet has no result to pass")
        return self.handle.id

    def reserve(self) -> bool:
        with self._users_lock:
            failed = self.cancelled() or (self.done() and self.exception() is not None)
            here = self._users == 0 and not failed
            self._users += not here
        return not here

    def when_submitted(self, call: Callable[[], None]) -> None:
        """Call a function once this call is submitted, or will never be."""
        with self._users_lock:
            waits = self.handle is None
            if waits:
                self._on_submitted.append(call)
        self.add_done_callback(lambda _future: call())
        if not waits:
            call()

    @property
    def ready(self) -> bool:
        """Whether the calls whose values it takes are submitted."""
        return all(each.handle is not None for each in self.inputs)

    @property
    def doomed(self) -> bool:
        """Whether a call whose value it takes ended before it was submitted."""
        return any(each.handle is None and each.done() for each in self.inputs)

    def release(self) -> None:
        """Remove the files if no other call needs them."""
        with self._users_lock:
            self._users -= 1
            needed = self._users > 0
        if not needed:
            cleaned(self.task)

    def cancel(self) -> bool:
        if self.cancelled():
            return True
        if self.running() or not super().cancel():
            return False
        if self.handle is not None:
            self.handle.cancel()
        return True

    def running(self) -> bool:
        """Ask the daemon, which does not push the start of a task."""
        if self.handle is None:
            return super().running()
        if self._started is None and not self.done():
            self._changed(as_change(self.handle.info()))
        return super().running()

    def submitted(self, handle: TaskHandle) -> None:
        """Record the task that runs the call."""
        with self._users_lock:
            self.handle = handle
            waiting, self._on_submitted = self._on_submitted, []
        for call in waiting:
            call()
        if self.cancelled():  # while it was submitted
            handle.cancel()

    def conclude(self) -> None:
        """Set the value or the exception of the ended task."""
        try:
            if self._start() and self.handle is not None:
                self._conclude(self.handle)
        finally:
            self._release_all()

    def fail(self, error: BaseException) -> None:
        """Set an error: the call could not be submitted."""
        try:
            if self._start():
                self.set_exception(error)
        finally:
            self._release_all()

    def discard(self) -> None:
        """Remove its files: it will not be submitted."""
        self._release_all()

    def _release_all(self) -> None:
        for each in (self, *self.inputs):
            each.release()
        self.inputs = []

    def _changed(self, change: TaskChanged) -> None:
        if change.state == "running":
            self._start()

    def _start(self) -> bool:
        """Determine once whether the caller cancelled it before it ran."""
        with self._start_lock:
            if self._started is None:
                self._started = self.set_running_or_notify_cancel()
            return self._started

    def _conclude(self, handle: TaskHandle) -> None:
        try:
            value = collected(outcome(handle.ended.result()))
        except CancelledError as error:
            self.set_exception(error)
        except Exception as error:  # noqa: BLE001  the caller receives any exception
            self.set_exception(raised(self.task) or error)
        else:
            self.set_result(value)


class Submitter(Protocol):
    """The interface of a client that an executor uses."""

    def submit_many(self, tasks: Iterable[Task]) -> list[TaskHandle]: ...


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
        self._client = client
        self._most = max_workers
        self._kind: Kind = converted("kind", kind, Kind)
        self._folder = run_directory() / "calls"
        self._lock = threading.Lock()
        self._closed = False
        self._pending: set[CallFuture] = set()
        self._waiting: deque[CallFuture] = deque()
        """Calls of `_pending` that are not submitted yet."""
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
            self._waiting.extend(futures)
        for each in {each for future in futures for each in future.inputs}:
            if each.handle is None:
                each.when_submitted(partial(self._ended.put, None))
        self._send()
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
        except BaseException:
            for each in futures:
                each.discard()
            raise
        return futures

    def _send(self) -> None:
        """Submit waiting calls up to the maximum.

        Raises:
            HetError: they cannot be submitted; their futures get the error, too.

        """
        some = self._next()
        while some:
            self._send_all(some)
            some = self._next()

    def _send_all(self, some: list[CallFuture]) -> None:
        try:
            handles = self._client.submit_many([each.task for each in some])
        except BaseException as error:
            for each in some:
                each.fail(error)
            with self._lock:
                self._pending.difference_update(some)
            raise
        for future, handle in zip(some, handles, strict=True):
            future.submitted(handle)
            handle.ended.add_done_callback(partial(self._note_end, future))

    def _next(self) -> list[CallFuture]:
        """Return the calls to submit now; drop those that will never be submitted."""
        with self._lock:
            gone = [each for each in self._waiting if each.cancelled() or each.doomed]
            self._pending.difference_update(gone)
            self._waiting = deque(
                each for each in self._waiting if each in self._pending
            )
            room = len(self._waiting)
            if self._most is not None:
                under_way = len(self._pending) - room
                room = min(room, self._most - under_way)
            ready = (each for each in self._waiting if each.ready)
            some = list(islice(ready, max(room, 0)))
            taken = set(some)
            self._waiting = deque(each for each in self._waiting if each not in taken)
        for each in gone:
            if each.cancelled():
                each.conclude()
            else:
                each.fail(
                    CancelledError("a call whose value it takes was not submitted")
                )
        return some

    def _note_end(self, future: CallFuture, _change: Future[TaskChanged]) -> None:
        self._ended.put(future)

    def _conclude_all(self) -> None:
        """Unpickle and run callbacks in a separate thread: they may submit more calls."""
        while not (self._closed and not self._pending):
            future = self._ended.get()
            if future is not None:
                future.conclude()
                with self._lock:
                    self._pending.discard(future)
            del future  # do not keep a value that is no longer needed
            with contextlib.suppress(HetError):  # the futures have the error
                self._send()


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
