"""Calls in threads and ends from threads, gathered: each gets its own answer."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from hetpool.node.gathered import MOST, GatheredCalls, GatheredEnds
from libtask.errors import DaemonUnreachableError, InputError

if TYPE_CHECKING:
    from collections.abc import Coroutine


def ran(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def raised(error: Exception) -> Any:
    raise error


class CountingThreads(ThreadPoolExecutor):
    """Counts what it is given."""

    given = 0

    def submit(self, *arguments: Any, **options: Any) -> Any:
        self.given += 1
        return super().submit(*arguments, **options)


def test_calls_of_one_turn_share_threads() -> None:
    async def work() -> tuple[list[int], int]:
        with CountingThreads(4) as threads:
            calls = GatheredCalls(threads)
            found = await asyncio.gather(
                *(calls(abs, -each) for each in range(2 * MOST + 1))
            )
            return found, threads.given

    found, given = ran(work())

    assert found == list(range(2 * MOST + 1))
    assert given == 3


def test_the_error_of_one_call_is_its_own() -> None:
    async def work() -> list[Any]:
        with ThreadPoolExecutor(1) as threads:
            calls = GatheredCalls(threads)
            found = await asyncio.gather(
                calls(abs, -1),
                calls(raised, InputError("no")),
                calls(abs, -3),
                return_exceptions=True,
            )
            return list(found)

    one, two, three = ran(work())

    assert (one, three) == (1, 3)
    assert isinstance(two, InputError)


def test_calls_after_one_that_found_no_daemon_do_not_wait_for_it_too() -> None:
    made: list[int] = []

    async def work() -> list[Any]:
        with ThreadPoolExecutor(1) as threads:
            calls = GatheredCalls(threads)
            found = await asyncio.gather(
                calls(made.append, 1),
                calls(raised, DaemonUnreachableError("gone")),
                calls(made.append, 3),
                return_exceptions=True,
            )
            return list(found)

    _, two, three = ran(work())

    assert made == [1]
    assert isinstance(two, DaemonUnreachableError)
    assert isinstance(three, DaemonUnreachableError)


def test_a_cancelled_call_is_not_made() -> None:
    made: list[int] = []

    async def work() -> None:
        with ThreadPoolExecutor(1) as threads:
            calls = GatheredCalls(threads)
            given_up = calls(made.append, 1)
            wanted = calls(made.append, 2)
            given_up.cancel()
            await wanted

    ran(work())

    assert made == [2]


def test_an_end_is_heard_whenever_and_however_it_comes() -> None:
    async def work() -> list[Any]:
        ends = GatheredEnds()
        before: Future[None] = Future()
        before.set_result(None)
        lost: Future[None] = Future()
        cancelled: Future[None] = Future()
        later: list[Future[None]] = [Future() for _ in range(100)]
        heard = [ends.of(each) for each in (before, lost, cancelled, *later)]

        def end() -> None:
            lost.set_exception(DaemonUnreachableError("gone"))
            cancelled.cancel()
            for each in later:
                each.set_result(None)

        threading.Thread(target=end).start()
        return list(await asyncio.gather(*heard, return_exceptions=True))

    before, lost, cancelled, *later = ran(work())

    assert before is None
    assert isinstance(lost, DaemonUnreachableError)
    assert isinstance(cancelled, CancelledError)
    assert later == [None] * 100


@pytest.mark.parametrize("ended", ["call", "end"])
def test_a_closed_loop_is_no_failure_of_the_thread(ended: str) -> None:
    late: Future[None] = Future()
    over = threading.Event()

    async def work(threads: ThreadPoolExecutor) -> None:
        GatheredCalls(threads)(over.wait, 60)
        GatheredEnds().of(late)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    with ThreadPoolExecutor(1) as threads:
        asyncio.run(work(threads))
        if ended == "end":
            late.set_result(None)
        over.set()
