"""The executor of a pool: cancellations in few requests, calls in chunks."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from hetpool.client.executor import PoolExecutor
from hetpool.errors import PoolUnreachableError
from hetpool.outcomes import completed


class HeldPool:
    """A pool that runs nothing; cancels are answered once `answering` is set.

    Attributes:
        jobs: calls that were submitted, as (function, arguments).
        tasks: what `submit` returned.
        cancels: ids of each request to cancel.

    """

    def __init__(self) -> None:
        self.jobs: list[tuple[Any, tuple[Any, ...]]] = []
        self.tasks: list[Any] = []
        self.cancels: list[list[str]] = []
        self.answering = threading.Event()
        self.asked = threading.Event()
        self.is_lost = False

    def submit(self, app: Any, *arguments: Any, **_options: Any) -> Any:
        self.jobs.append((app, arguments))
        task = SimpleNamespace(id=f"job {len(self.jobs)}", ended=Future())
        self.tasks.append(task)
        return task

    def cancel(self, *ids: str) -> list[str]:
        self.cancels.append(list(ids))
        self.asked.set()
        assert self.answering.wait(30)
        if self.is_lost:
            raise PoolUnreachableError("no scheduler answers")
        return list(ids)


def test_calls_that_are_cancelled_meanwhile_go_in_one_request() -> None:
    pool = HeldPool()
    executor = PoolExecutor(pool)
    futures = [executor.submit(abs, number) for number in range(300)]

    assert futures[0].cancel()
    assert pool.asked.wait(30)
    assert all(each.cancel() for each in futures[1:])
    assert not futures[1].cancel()
    pool.answering.set()
    executor.shutdown()

    first, others = pool.cancels
    assert first == ["job 1"]
    assert others == [f"job {number}" for number in range(2, 301)]


def test_a_lost_scheduler_does_not_end_cancelling() -> None:
    pool = HeldPool()
    pool.answering.set()
    executor = PoolExecutor(pool)
    first, second = executor.submit(abs, 1), executor.submit(abs, 2)

    pool.is_lost = True
    first.cancel()
    assert pool.asked.wait(30)
    second.cancel()
    executor.shutdown()

    assert pool.cancels == [["job 1"], ["job 2"]]


def test_chunks_of_calls_are_one_job_each() -> None:
    pool = HeldPool()

    PoolExecutor(pool).map(divmod, range(5), range(1, 6), chunksize=2)

    assert [function.__name__ for function, _ in pool.jobs] == ["divmod"] * 3
    values = [function(*arguments) for function, arguments in pool.jobs]
    assert values == [[(0, 0), (0, 1)], [(0, 2), (0, 3)], [(0, 4)]]


def test_a_map_takes_no_more_arguments_than_its_buffer_holds() -> None:
    pool = HeldPool()
    pool.answering.set()
    executor = PoolExecutor(pool)
    taken = itertools.count()

    found: Any = executor.map(abs, taken, buffersize=3)
    assert len(pool.jobs) == 3
    pool.tasks[0].ended.set_result(completed("n1", 1, 0))
    assert next(found) == 0
    assert [arguments for _, arguments in pool.jobs] == [(0,), (1,), (2,), (3,)]

    found.close()
    executor.shutdown()
    assert list(itertools.chain(*pool.cancels)) == ["job 2", "job 3", "job 4"]
    assert next(taken) == 4


def test_a_buffer_holds_at_least_one_call() -> None:
    with pytest.raises(ValueError, match="buffersize must be None or > 0"):
        PoolExecutor(HeldPool()).map(abs, [1], buffersize=0)


def test_a_chunk_has_at_least_one_call() -> None:
    with pytest.raises(ValueError, match="chunksize must be >= 1"):
        PoolExecutor(HeldPool()).map(abs, [1], chunksize=0)
