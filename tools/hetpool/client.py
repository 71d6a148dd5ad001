"""The client of a pool: `Pool` and `PoolTask`, named as `libtask.Client` and its handles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from types import TracebackType

    from hetpool.jobs import JobState, JobStatus, PoolNode, PoolPlan
    from hetpool.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class Input:
    """A file of this machine that a job reads; on its node a path takes its place.

    Attributes:
        path: the file here.

    """

    path: str | Path


class PoolTask:
    """A job of a pool. The same object follows it over moves, losses and restarts.

    Attributes:
        id: of the job in the pool.

    """

    id: str

    @property
    def state(self) -> JobState:
        """State in the latest news of it."""
        raise NotImplementedError

    @property
    def progress(self) -> float:
        """Share done, 0 to 1; asks the broker."""
        raise NotImplementedError

    @property
    def node(self) -> str:
        """Name of its node; empty: it has none yet."""
        raise NotImplementedError

    def done(self) -> bool:
        raise NotImplementedError

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end; return the result.

        Raises:
            TaskFailedError: it failed; gives the reason.
            CancelledError: it was cancelled.
            TimeoutError: it has not ended within `timeout` seconds.

        """
        raise NotImplementedError

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end; return the error, or None."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Cancel it, on its node too."""
        raise NotImplementedError

    def move(self, node: str) -> None:
        """Move it to another node, with its snapshot if it has begun; does not wait."""
        raise NotImplementedError


class Pool:
    """A connection to a pool.

    Args:
        scheduler: address; None: `$HETPOOL_SCHEDULER`, else `pool.toml`.
        settings: of the pool; None: those of `pool.toml`.
        timeout: seconds to wait for the scheduler.

    Raises:
        PoolUnreachableError: no scheduler answers.

    """

    def __init__(
        self,
        scheduler: str | None = None,
        *,
        settings: EngineSettings | None = None,
        timeout: float = 10.0,
    ) -> None:
        raise NotImplementedError

    def submit(self, app: Any, *arguments: Any, **options: Any) -> PoolTask:
        """Submit a job: an application with parameters, or a call of a function.

        Args:
            app: a name, class or object of a task, or a function.
            arguments: as for `libtask.Client.submit`; `Input` stands for a file.
            options: those of `libtask.Client.submit`, and `nodes`, `seconds`, `id`.

        """
        raise NotImplementedError

    def map(
        self, app: Any, *iterables: Iterable[Any], **options: Any
    ) -> list[PoolTask]:
        """Submit a job for each group of arguments; they are planned as one batch."""
        raise NotImplementedError

    def batch(
        self, jobs: Sequence[Any], *, planner: str | None = None
    ) -> tuple[PoolPlan, list[PoolTask]]:
        """Plan and submit jobs that `job` described."""
        raise NotImplementedError

    def plan(self, jobs: Sequence[Any], *, planner: str | None = None) -> PoolPlan:
        """Plan jobs without submitting them."""
        raise NotImplementedError

    def executor(self) -> Executor:
        """Return a `concurrent.futures.Executor` whose calls run in the pool."""
        raise NotImplementedError

    def nodes(self) -> list[PoolNode]:
        raise NotImplementedError

    def tasks(self, ids: Sequence[str] = ()) -> list[JobStatus]:
        raise NotImplementedError

    def cancel(self, *ids: str) -> list[str]:
        raise NotImplementedError

    def move(self, job: str, node: str) -> None: ...
    def drain(self, node: str) -> None: ...
    def resume(self, node: str) -> None: ...
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def as_completed(
    tasks: Iterable[PoolTask], timeout: float | None = None
) -> Iterator[PoolTask]:
    """Iterate over tasks in the order in which they end.

    Raises:
        TimeoutError: not all have ended `timeout` seconds after the call.

    """
    raise NotImplementedError
