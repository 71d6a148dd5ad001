"""An executor of `concurrent.futures` whose calls run in a pool."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hetpool.outcomes import result_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetpool.client.pool_task import PoolTask
    from hetpool.outcomes import JobOutcome

Returned = TypeVar("Returned")


class Submits(Protocol):
    """The part of `Pool` that the executor uses."""

    def submit(self, app: Any, *arguments: Any, **options: Any) -> PoolTask: ...


class PoolFuture(Future[Any]):
    """The future of a call in a pool; `cancel` reaches the node that runs it."""

    def __init__(self, task: PoolTask) -> None:
        super().__init__()
        self.task = task

    def cancel(self) -> bool:
        """Cancel the call, also one that runs; return whether it had not ended."""
        if self.done():
            return False
        # in a thread: callbacks of futures may call this where nothing may wait
        threading.Thread(target=self.task.cancel, daemon=True).start()
        return super().cancel()


class PoolExecutor(Executor):
    """Submits each call as a job.

    Args:
        pool: whose nodes run them.

    """

    def __init__(self, pool: Submits) -> None:
        self._pool = pool
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
            future = PoolFuture(self._pool.submit(call, *args))
            self._open.add(future)
        future.add_done_callback(self._open.discard)
        future.task.ended.add_done_callback(partial(_hand_over, future))
        return future

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
            for future in left:
                future.cancel()
        if wait:
            _wait_for(left)


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
