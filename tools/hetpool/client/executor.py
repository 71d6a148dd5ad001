"""An executor of `concurrent.futures` whose calls run in a pool."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hetpool.outcomes import result_of
from libtask.client.call import InChunks, chunks_of, flattened, values_in_order
from libtask.errors import HetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hetpool.client.pool_task import PoolTask
    from hetpool.outcomes import JobOutcome

Returned = TypeVar("Returned")


class Submits(Protocol):
    """The part of `Pool` that the executor uses."""

    def submit(self, app: Any, *arguments: Any, **options: Any) -> PoolTask: ...

    def cancel(self, *ids: str) -> list[str]: ...


class PoolFuture(Future[Any]):
    """The future of a call in a pool; `cancel` reaches the node that runs it."""

    def __init__(self, task: PoolTask, cancellations: Cancellations) -> None:
        super().__init__()
        self.task = task
        self._cancellations = cancellations

    def cancel(self) -> bool:
        """Cancel the call, also one that runs; return whether it had not ended."""
        if self.done():
            return False
        self._cancellations.add(self.task.id)
        return super().cancel()


class Cancellations:
    """Jobs to be cancelled: a thread sends them; those that come meanwhile go in one request.

    Callbacks of futures may cancel others, where nothing may wait.
    """

    def __init__(self, pool: Submits) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._jobs: list[str] = []
        self._thread: threading.Thread | None = None

    def add(self, job: str) -> None:
        with self._lock:
            self._jobs.append(job)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._send_all, daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Wait until all have been sent."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _send_all(self) -> None:
        while jobs := self._next():
            with suppress(HetError):  # they go on if the scheduler is lost
                self._pool.cancel(*jobs)

    def _next(self) -> list[str]:
        """Return the jobs to be cancelled; if there are none, the thread ends."""
        with self._lock:
            jobs, self._jobs = self._jobs, []
            if not jobs:
                self._thread = None
            return jobs


class PoolExecutor(Executor):
    """Submits each call as a job.

    Args:
        pool: whose nodes run them.

    """

    def __init__(self, pool: Submits) -> None:
        self._pool = pool
        self._cancellations = Cancellations(pool)
        self._open: set[PoolFuture] = set()
        self._lock = threading.Lock()
        self._closed = False

    def submit(
        self, fn: Callable[..., Returned], /, *args: Any, **kwargs: Any
    ) -> Future[Returned]:
        """Submit a call.

        Raises:
            RuntimeError: after `shutdown`.

        """
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            call = partial(fn, **kwargs) if kwargs else fn
            future = PoolFuture(self._pool.submit(call, *args), self._cancellations)
            self._open.add(future)
        future.add_done_callback(self._open.discard)
        future.task.ended.add_done_callback(partial(_hand_over, future))
        return future

    def map(
        self,
        fn: Callable[..., Returned],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[Returned]:
        """Submit a call for each group of arguments; yield in order.

        Args:
            fn: the function.
            iterables: as for the built-in `map`.
            timeout: seconds from this call within which each value must be available.
            chunksize: number of calls in one job, one after the other. One that raises ends
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
        if chunksize == 1:
            calls = (self.submit(fn, *each) for each in groups)
            return _results(calls, buffersize, deadline)
        chunk = InChunks(fn)
        chunks = (self.submit(chunk, each) for each in chunks_of(groups, chunksize))
        return flattened(_results(chunks, buffersize, deadline))

    def shutdown(
        self,
        wait: bool = True,  # noqa: FBT001, FBT002  the signature of `Executor`
        *,
        cancel_futures: bool = False,
    ) -> None:
        """Take no further calls."""
        with self._lock:
            self._closed = True
            left = list(self._open)
        if cancel_futures:
            _cancel(left)
        if wait:
            _wait_for(left)
            self._cancellations.wait()


def _results(
    calls: Iterator[Future[Any]], most: int | None, deadline: float | None
) -> Iterator[Any]:
    """Submit calls now; return an iterator over their values.

    Args:
        calls: submits one more call each time.
        most: maximum number of those whose values are not taken yet; None: unlimited.
        deadline: deadline of each value, monotonic seconds.

    """
    futures: deque[Future[Any]] = deque()
    try:
        futures.extend(islice(calls, most))
    except BaseException:
        _cancel(futures)
        raise
    return values_in_order(futures, calls, deadline, _cancel)


def _cancel(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.cancel()


def _wait_for(futures: list[PoolFuture]) -> None:
    wait(futures)


def _hand_over(future: PoolFuture, ended: Future[JobOutcome]) -> None:
    """Give a future its result; one that was cancelled meanwhile stays so."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(result_of(ended.result(), future.task.id))
    except Exception as error:  # noqa: BLE001  the future's owner gets it
        future.set_exception(error)
