"""Submission of an executor's calls: a thread sends what waits, many in one message.

A program that submits one call after the other does not wait for hetd's replies: what it
submits meanwhile goes in the next message. The thread ends when there is nothing to send, and
keeps the interpreter from exiting before.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from libtask.client.batches import BATCH
from libtask.errors import own_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from libtask.client.call_future import CallFuture
    from libtask.client.handles import TaskHandle
    from libtask.messages import TaskChanged, TaskSpec
    from libtask.task import Task


class Submitter(Protocol):
    """The interface of a client that `Submissions` uses."""

    def described(self, tasks: Iterable[Task]) -> list[TaskSpec]: ...

    def submit_described(self, specs: Iterable[TaskSpec]) -> list[TaskHandle]: ...


class Submissions:
    """Calls that wait to be submitted, and how many run.

    A call waits until those whose values it takes are submitted, and while the maximum runs. It
    is described when it is submitted, if it does not wait for others: what the program changes
    afterwards, as its folder or environment, is for later calls.

    Args:
        client: the connection to hetd.
        most: maximum number of submitted calls that have not ended; None: unlimited.
        on_end: called with each call that has ended, was cancelled before it was submitted or
            could not be submitted; from any thread, must not wait.

    """

    def __init__(
        self,
        client: Submitter,
        most: int | None,
        on_end: Callable[[CallFuture], None],
    ) -> None:
        self._client = client
        self._most = most
        self._on_end = on_end
        self._lock = threading.Lock()
        self._waiting: deque[CallFuture] = deque()
        self._blocked: set[CallFuture] = set()
        """Calls that take values of calls which are not submitted yet."""
        self._under_way: set[CallFuture] = set()
        """Calls that are being submitted or have not ended since."""
        self._sending = False
        """Whether a thread sends: it goes on while there is anything to send."""

    def describe(self, futures: Iterable[CallFuture]) -> None:
        """Describe calls for `add`, but those that wait for others.

        Raises:
            InputError: one of them is invalid.

        """
        ready = [each for each in futures if each.ready]
        specs = self._client.described([each.task for each in ready])
        for future, spec in zip(ready, specs, strict=True):
            future.spec = spec

    def add(self, futures: Iterable[CallFuture]) -> None:
        """Submit calls, each as soon as possible; does not wait."""
        ready = []
        for future in futures:
            future.ahead = self.under_way
            if future.spec is not None:
                ready.append(future)
            else:
                self._block(future)
        with self._lock:
            self._waiting.extend(ready)
        self._start_sending()

    def under_way(self) -> list[CallFuture]:
        with self._lock:
            return list(self._under_way)

    def _block(self, future: CallFuture) -> None:
        """Keep a call back until those whose values it takes are submitted."""
        with self._lock:
            self._blocked.add(future)
        review = partial(self._review, future)
        for each in future.inputs:
            each.when_submitted(review)
        future.add_done_callback(lambda _cancelled: review())

    def _review(self, future: CallFuture) -> None:
        if not (future.ready or future.doomed or future.cancelled()):
            return
        with self._lock:
            if future not in self._blocked:
                return
            self._blocked.discard(future)
            self._waiting.append(future)
        self._start_sending()

    def _start_sending(self) -> None:
        """Start the thread unless it runs, if there is anything to send."""
        with self._lock:
            if self._sending or not self._may_send():
                return
            self._sending = True
        try:
            threading.Thread(target=self._send_waiting, name="hetd-submits").start()
        except RuntimeError:  # the interpreter exits
            self._sending = False
            raise

    def _may_send(self) -> bool:
        has_room = self._most is None or len(self._under_way) < self._most
        return has_room and bool(self._waiting)

    def _send_waiting(self) -> None:
        while some := self._next():
            self._send(some)  # raises nothing: another thread would not be started

    def _next(self) -> list[CallFuture]:
        """Take the next calls that fit into one message; none: this thread ends."""
        some: list[CallFuture] = []
        with self._lock:
            while self._may_send() and len(some) < BATCH:
                future = self._waiting.popleft()
                if not self._drop_if_void(future):
                    some.append(future)
                    self._under_way.add(future)
            self._sending = bool(some)
        return some

    def _drop_if_void(self, future: CallFuture) -> bool:
        """Report the end of a call that will never be submitted; return whether it is one."""
        if future.doomed:
            text = "a call whose value it takes was not submitted"
            future.refuse(CancelledError(text))
        elif not future.cancelled():
            return False
        self._on_end(future)
        return True

    def _send(self, some: list[CallFuture]) -> None:
        described = [each for each in some if self._describe_blocked(each)]
        specs = [each.spec for each in described if each.spec is not None]
        try:
            handles = self._client.submit_described(specs)
        except BaseException as error:  # noqa: BLE001  the futures raise it
            self._refuse(described, error)
            return
        for future, handle in zip(described, handles, strict=True):
            future.submitted(handle)
            handle.ended.add_done_callback(partial(self._note_end, future))

    def _describe_blocked(self, future: CallFuture) -> bool:
        """Describe a call that has waited for others; return False if it was refused."""
        if future.spec is None:
            try:
                (future.spec,) = future.context.run(
                    self._client.described, [future.task]
                )
            except BaseException as error:  # noqa: BLE001  its future raises it
                self._refuse([future], error)
                return False
        return True

    def _refuse(self, futures: Iterable[CallFuture], error: BaseException) -> None:
        for each in futures:
            each.refuse(own_copy(error))
            self._end(each)

    def _note_end(self, future: CallFuture, _change: Future[TaskChanged]) -> None:
        self._end(future)
        with suppress(RuntimeError):  # the interpreter exits, and nobody waits for more
            self._start_sending()

    def _end(self, future: CallFuture) -> None:
        with self._lock:
            self._under_way.discard(future)
        self._on_end(future)
