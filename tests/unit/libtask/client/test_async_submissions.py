"""What coroutines submit at once goes to hetd in few messages."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from libtask.client.asynchronous import AsyncSubmissions
from libtask.client.batches import ROOM
from libtask.errors import DaemonUnreachableError, InputError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

UNLUCKY = 13


class HeldClient:
    """A client that accepts all but messages with the task 13.

    Attributes:
        messages: the tasks of each message, here numbers or texts.
        asked: set with the first message.
        answering: the first message is answered once this is set.
        is_lost: whether the daemon is gone.

    """

    def __init__(self) -> None:
        self.messages: list[list[Any]] = []
        self.asked = threading.Event()
        self.answering = threading.Event()
        self.is_lost = False

    def submit_specs(self, numbers: list[Any]) -> list[Any]:
        self.messages.append(numbers)
        self.asked.set()
        assert self.answering.wait(30)
        if self.is_lost:
            raise DaemonUnreachableError("the daemon is gone")
        if UNLUCKY in numbers:
            raise InputError("13 is refused")
        return [SimpleNamespace(id=number) for number in numbers]


def submitted(
    client: HeldClient,
    numbers: Iterable[Any],
    meanwhile: Callable[[list[asyncio.Task[Any]]], Awaitable[None]] | None = None,
) -> list[Any]:
    """Submit numbers at once, the first alone; return ids and errors."""

    async def story() -> list[Any]:
        submissions: Any = AsyncSubmissions(client)  # type: ignore[arg-type]
        tasks = []
        for number in numbers:
            tasks.append(asyncio.create_task(submissions.submit(number)))
            await asyncio.to_thread(client.asked.wait, 30)
        await asyncio.sleep(0)
        if meanwhile is not None:
            await meanwhile(tasks)
        client.answering.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        return [getattr(each, "id", each) for each in found]

    return asyncio.run(asyncio.wait_for(story(), 60))


def test_what_comes_while_a_message_is_under_way_goes_in_the_next() -> None:
    client = HeldClient()

    assert submitted(client, range(100, 700)) == list(range(100, 700))
    assert client.messages == [[100], list(range(101, 601)), list(range(601, 700))]


def test_a_message_is_no_larger_than_hetd_takes() -> None:
    client = HeldClient()
    large = ["x" * (ROOM // 5 * 2)] * 5

    assert submitted(client, ["first", *large]) == ["first", *large]
    assert [len(each) for each in client.messages] == [1, 2, 2, 1]


def test_a_refusal_reaches_the_task_that_is_refused_only() -> None:
    client = HeldClient()

    found = submitted(client, range(10, 16))

    assert [str(each) for each in found] == ["10", "11", "12", "13 is refused", "14", "15"]  # fmt: skip
    assert client.messages == [[10], [11, 12, 13, 14, 15], [11], [12], [13], [14], [15]]


def test_a_lost_daemon_is_asked_once() -> None:
    client = HeldClient()
    client.is_lost = True

    found = submitted(client, range(4))

    assert [type(each) for each in found] == [DaemonUnreachableError] * 4
    assert client.messages == [[0], [1, 2, 3]]


def test_what_is_cancelled_before_it_is_sent_is_not_submitted() -> None:
    client = HeldClient()

    async def cancel(tasks: list[asyncio.Task[Any]]) -> None:
        tasks[2].cancel()

    found = submitted(client, range(4), cancel)

    assert isinstance(found[2], asyncio.CancelledError)
    assert client.messages == [[0], [1, 3]]


def test_all_that_were_to_be_sent_may_be_cancelled() -> None:
    client = HeldClient()

    async def cancel(tasks: list[asyncio.Task[Any]]) -> None:
        tasks[1].cancel()

    submitted(client, range(2), cancel)

    assert client.messages == [[0]]


@pytest.mark.parametrize("count", [1, 3])
def test_submits_after_a_pause_are_sent_too(count: int) -> None:
    client = HeldClient()
    client.answering.set()

    async def story() -> list[int]:
        submissions: Any = AsyncSubmissions(client)  # type: ignore[arg-type]
        return [(await submissions.submit(number)).id for number in range(count)]

    assert asyncio.run(story()) == list(range(count))
    assert client.messages == [[number] for number in range(count)]
