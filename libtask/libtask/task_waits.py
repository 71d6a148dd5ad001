"""Waits of a task's own code for other tasks, which hetd lends the task's slot to meanwhile.

The worker sets the reporter of the thread in which it runs the code of a task. Futures of tasks
tell it while this thread waits for them, by their own methods or by `wait` and `as_completed` of
`concurrent.futures`. Waits of other threads are not reported: the task may compute meanwhile.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from libtask.endpoint import is_same_socket

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from libtask.messages import TaskEpoch

T = TypeVar("T")

FIRST_S = 0.005
"""Seconds of a wait after which it is reported: most slots are not worth lending before."""
RENEWAL_S = 1.0
"""Longest time between two reports of a wait, which hetd, if it was restarted, does not know."""

Wait: TypeAlias = Callable[[float | None], bool]
"""Waits for some seconds, or for ever; returns whether what it waits for has come."""


class WaitReporter(Protocol):
    """Tells hetd what the code of a task waits for."""

    socket: Path
    """That of the hetd which runs the task."""
    run: TaskEpoch
    """The running task, and the epoch of its run."""

    def report(self, tasks: list[int]) -> None:
        """Report the tasks that are waited for now; none: the code goes on."""


class _Reporters(threading.local):
    """The reporter of each thread, and the process in which it was set."""

    reporter: WaitReporter | None = None
    process = 0


_reporters = _Reporters()


def set_reporter(reporter: WaitReporter | None) -> None:
    """Report waits of this thread from now on; None: not any more."""
    _reporters.reporter, _reporters.process = reporter, os.getpid()


def _reporter() -> WaitReporter | None:
    """Return that of this thread; a forked child has none."""
    if _reporters.reporter is None or _reporters.process != os.getpid():
        return None
    return _reporters.reporter


def current_run(socket: Path) -> TaskEpoch | None:
    """Return the run of the task whose code this thread runs; None: of this hetd it runs none."""
    reporter = _reporter()
    if reporter is None or not is_same_socket(reporter.socket, socket):
        return None
    return reporter.run


class TaskFuture(Future[T]):
    """A future that one or more tasks set."""

    def __init__(self) -> None:
        super().__init__()
        self._waiters = _Waiters(self)

    def awaited(self, socket: Path) -> Iterable[int]:
        """Return the tasks of a hetd that this future waits for."""
        raise NotImplementedError

    def result(self, timeout: float | None = None) -> T:
        return super().result(self._report_wait(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return super().exception(self._report_wait(timeout))

    def _report_wait(self, timeout: float | None) -> float | None:
        """Wait in a task until this is done; return the seconds that are left to wait."""
        if self.done() or _reporter() is None:
            return timeout
        _wait(lambda: [self], self._done_within, timeout)
        return 0.0 if timeout is not None else None

    def _done_within(self, seconds: float | None) -> bool:
        try:
            super().exception(seconds)
        except TimeoutError:
            return self.done()
        except CancelledError:
            return True
        return True


class _Waiters(list[Any]):
    """Those that wait for a future among others: `wait` and `as_completed` add themselves."""

    def __init__(self, future: TaskFuture[Any]) -> None:
        super().__init__()
        self._future = weakref.ref(future)  # in a cycle it would live longer

    def append(self, waiter: Any) -> None:
        super().append(waiter)
        if _reporter() is None:
            return
        if type(waiter.event) is threading.Event:  # nobody waits or sets it yet
            waiter.event = _ReportedEvent()
        future = self._future()
        if isinstance(waiter.event, _ReportedEvent) and future is not None:
            waiter.event.futures.append(future)


class _ReportedEvent(threading.Event):
    """An event that futures set; a wait for it is reported."""

    def __init__(self) -> None:
        super().__init__()
        self.futures: list[TaskFuture[Any]] = []

    def wait(self, timeout: float | None = None) -> bool:
        return _wait(lambda: self.futures, super().wait, timeout)


def join(
    thread: threading.Thread, futures: Callable[[], Iterable[TaskFuture[Any]]]
) -> None:
    """Wait for a thread, which ends when futures are done: `futures` returns them."""

    def ends_within(seconds: float | None) -> bool:
        thread.join(seconds)
        return not thread.is_alive()

    _wait(futures, ends_within, None)


def _wait(
    futures: Callable[[], Iterable[TaskFuture[Any]]],
    wait: Wait,
    timeout: float | None,
) -> bool:
    """Wait; report which tasks the futures wait for, if this is the thread of a task."""
    reporter = _reporter()
    if reporter is None:
        return wait(timeout)
    deadline = None if timeout is None else time.monotonic() + timeout
    pause, reported = FIRST_S, False
    try:
        while True:
            left = pause if deadline is None else deadline - time.monotonic()
            if wait(max(0.0, min(pause, left))):
                return True
            if left <= pause and deadline is not None:
                return False
            pending = [each for each in futures() if not each.done()]
            tasks = [task for each in pending for task in each.awaited(reporter.socket)]
            reported = True
            reporter.report(tasks)
            pause = min(2 * pause, RENEWAL_S)
    finally:
        if reported:
            reporter.report([])
