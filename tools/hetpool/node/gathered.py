"""Between the agent's event loop and threads, in groups: many short things at one wake-up.

A group of 50 short jobs makes 50 requests to hetd in one turn of the loop, and their ends come
within milliseconds. A thread for each request, and a wake-up of the loop for each end, would
cost several times what hetd and its client do.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from libtask.errors import DaemonUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future

Returned = TypeVar("Returned")

MOST = 16
"""Calls in one thread: a group is spread over some of them, as each call waits for hetd."""


class GatheredCalls:
    """Short calls that block: those of one turn of the loop share threads.

    Args:
        threads: in which they are made, `MOST` after each other.

    """

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._due: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []

    def __call__(
        self, call: Callable[..., Returned], *arguments: Any
    ) -> asyncio.Future[Returned]:
        """Return the future of a call; the caller is in the loop."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Returned] = loop.create_future()
        if not self._due:
            loop.call_soon(self._send, loop)
        self._due.append((answer, partial(call, *arguments)))
        return answer

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        due, self._due = self._due, []
        for at in range(0, len(due), MOST):
            self._threads.submit(_make, loop, due[at : at + MOST])


def _make(
    loop: asyncio.AbstractEventLoop,
    due: list[tuple[asyncio.Future[Any], Callable[[], Any]]],
) -> None:
    """Make calls, in a thread; where hetd is lost for one, it is for those after it."""
    made: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
    lost: BaseException | None = None
    for answer, call in due:
        value, error = None, lost
        if lost is None and not answer.cancelled():
            try:
                value = call()
            except BaseException as caught:  # noqa: BLE001  the caller's, wherever it is raised
                error = caught
                lost = caught if isinstance(caught, DaemonUnreachableError) else None
        made.append((answer, value, error))
    _tell(loop, _answer, made)


def _answer(made: list[tuple[asyncio.Future[Any], Any, BaseException | None]]) -> None:
    for answer, value, error in made:
        if answer.done():  # cancelled
            continue
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)


class GatheredEnds:
    """Futures of threads that end: those that end before the loop's next turn wake it once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: list[tuple[asyncio.Future[None], BaseException | None]] = []

    def of(self, future: Future[Any]) -> asyncio.Future[None]:
        """Return a future of the loop that ends with another one, and with its error."""
        loop = asyncio.get_running_loop()
        end: asyncio.Future[None] = loop.create_future()
        future.add_done_callback(lambda ended: self._heard(loop, end, ended))
        return end

    def _heard(
        self,
        loop: asyncio.AbstractEventLoop,
        end: asyncio.Future[None],
        future: Future[Any],
    ) -> None:
        error = CancelledError() if future.cancelled() else future.exception()
        with self._lock:
            self._ended.append((end, error))
            if len(self._ended) > 1:
                return  # the loop knows that there are some
        _tell(loop, self._pass_on)

    def _pass_on(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        for end, error in ended:
            if end.done():  # nobody waits any more
                continue
            if error is None:
                end.set_result(None)
            else:
                end.set_exception(error)


def _tell(
    loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: Any
) -> None:
    with suppress(RuntimeError):  # the loop was closed: nobody waits any more
        loop.call_soon_threadsafe(call, *arguments)
