"""`PoolTask`: a job as its client holds it, and tasks in the order in which they end."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import as_completed as futures_as_completed
from typing import TYPE_CHECKING, Any, Protocol

from hetpool.jobs import JobStatus
from hetpool.outcomes import JobOutcome, result_of, status_after

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hetpool.jobs import JobState, PoolJob


class TaskOwner(Protocol):
    """The pool of a task."""

    def tasks(self, ids: Sequence[str] = ()) -> list[JobStatus]: ...
    def cancel(self, *ids: str) -> list[str]: ...
    def move(self, job: str, node: str) -> None: ...


class PoolTask:
    """A job of a pool. The same object follows it over moves, losses and restarts.

    Attributes:
        id: of the job in the pool.
        job: its description.
        ended: future of its outcome; callbacks run in the pool's thread.
        placed_on: the node of the plan with which it was started; empty: it waited for one.
        started: its errand was started, so that a node may have it.

    """

    __slots__ = ("_owner", "ended", "id", "job", "placed_on", "started")

    def __init__(self, owner: TaskOwner, job: PoolJob) -> None:
        self._owner = owner
        self.id = job.id
        self.job = job
        self.ended: Future[JobOutcome] = Future()
        self.placed_on = ""
        self.started = False

    def __repr__(self) -> str:
        return (
            f"<PoolTask {self.id[:12]} {self.job.app} on {self.placed_on or 'no node'}>"
        )

    def status(self) -> JobStatus:
        """Return its present state; asks its node while it has not ended."""
        if self.ended.done():
            return self._last_status()
        found = self._owner.tasks([self.id])
        return found[0] if found else JobStatus(self.id, self.job.app, "waiting")

    def _last_status(self) -> JobStatus:
        if self.ended.exception() is not None:
            reason = str(self.ended.exception())
            return JobStatus(self.id, self.job.app, "failed", reason=reason)
        return status_after(self.ended.result(), self.job)

    @property
    def state(self) -> JobState:
        """Its present state; see `hetpool.jobs.JobState`."""
        return self.status().state

    @property
    def progress(self) -> float:
        """Share done, 0 to 1."""
        return self.status().progress

    @property
    def node(self) -> str:
        """Name of its node; empty: it has none yet."""
        return self.status().node

    def done(self) -> bool:
        return self.ended.done()

    def wait(self, timeout: float | None = None) -> str:
        """Wait for the end; return the state.

        Raises:
            TimeoutError: it has not ended within `timeout` seconds.

        """
        self._outcome(timeout)
        return self._last_status().state

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end; return the result.

        Raises:
            TaskFailedError: it failed; gives the reason and the last lines of its output.
            CancelledError: it was cancelled.
            InputError: its node refused it.
            TimeoutError: it has not ended within `timeout` seconds.

        """
        return result_of(self._outcome(timeout), self.id)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end; return the error, or None.

        Raises:
            TimeoutError: it has not ended within `timeout` seconds.

        """
        outcome = self._outcome(timeout)
        try:
            result_of(outcome, self.id)
        except Exception as error:  # noqa: BLE001  that is what is asked for
            return error
        return None

    def _outcome(self, timeout: float | None) -> JobOutcome:
        try:
            return self.ended.result(timeout)
        except TimeoutError:
            if self.ended.done():
                raise
            text = f"job {self.id[:12]} has not ended after {timeout:g} s"
            raise TimeoutError(text) from None

    def cancel(self) -> None:
        """Cancel it, on its node at its next checkpoint."""
        self._owner.cancel(self.id)

    def move(self, node: str) -> None:
        """Move it to another node, with its snapshot if it has begun.

        Raises:
            InputError: the node cannot take it.

        """
        self._owner.move(self.id, node)


def as_completed(
    tasks: Iterable[PoolTask], timeout: float | None = None
) -> Iterator[PoolTask]:
    """Iterate over tasks in the order in which they end.

    Raises:
        TimeoutError: not all have ended `timeout` seconds after the call.

    """
    by_future = {task.ended: task for task in tasks}
    for future in futures_as_completed(by_future, timeout):
        yield by_future[future]
