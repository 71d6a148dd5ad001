"""Waits of a task's code for other tasks: when they are reported, and what of them."""

from __future__ import annotations

import os
import threading
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    CancelledError,
    as_completed,
    wait,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from libtask import task_waits
from libtask.messages import TaskEpoch
from libtask.task_waits import TaskFuture, set_reporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOCKET = Path("/run/hetd/hetd.sock")


class Reporter:
    """Notes what is reported; lets the awaited futures be done after some reports."""

    socket = SOCKET
    run = TaskEpoch(5, 2)

    def __init__(self) -> None:
        self.reports: list[list[int]] = []
        self.then: dict[int, Callable[[], object]] = {}

    def report(self, tasks: list[int]) -> None:
        self.reports.append(tasks)
        self.then.get(len(self.reports), lambda: None)()


class Numbered(TaskFuture[Any]):
    """The future of a task of the hetd that runs the waiting one."""

    def __init__(self, task: int) -> None:
        super().__init__()
        self.task = task

    def awaited(self, socket: Path) -> list[int]:
        assert socket == SOCKET
        return [self.task]


@pytest.fixture
def reporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reporter]:
    """Let this thread be one that runs the code of a task."""
    monkeypatch.setattr(task_waits, "RENEWAL_S", 0.01)
    reporter = Reporter()
    set_reporter(reporter)
    yield reporter
    set_reporter(None)


def test_a_wait_is_reported_until_it_ends(reporter: Reporter) -> None:
    future = Numbered(7)
    reporter.then[3] = lambda: future.set_result("value")

    assert future.result() == "value"
    assert reporter.reports == [[7], [7], [7], []]


def test_what_is_there_already_is_not_waited_for(reporter: Reporter) -> None:
    future = Numbered(7)
    future.set_result(1)

    assert (future.result(), future.exception()) == (1, None)
    assert wait([future]).done == {future}
    assert list(as_completed([future])) == [future]
    assert reporter.reports == []


def test_a_short_wait_is_not_reported(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_waits, "FIRST_S", 60.0)
    future = Numbered(7)
    threading.Timer(0.05, future.set_result, [1]).start()

    assert future.result() == 1
    assert reporter.reports == []


@pytest.mark.parametrize(
    "ask", [TaskFuture.result, TaskFuture.exception], ids=["result", "exception"]
)
def test_a_wait_may_be_given_up(reporter: Reporter, ask: Any) -> None:
    future = Numbered(7)

    with pytest.raises(TimeoutError):
        ask(future, 0.03)
    assert reporter.reports[0] == [7]
    assert reporter.reports[-1] == []
    reporter.reports.clear()
    with pytest.raises(TimeoutError):
        ask(future, 0.0)
    assert reporter.reports == []


def test_errors_are_raised_as_by_other_futures(reporter: Reporter) -> None:
    wrong, own, gone = Numbered(1), Numbered(2), Numbered(3)
    reporter.then[1] = lambda: wrong.set_exception(ValueError("wrong"))
    reporter.then[3] = lambda: own.set_exception(TimeoutError("the task's own"))
    reporter.then[5] = gone.cancel

    with pytest.raises(ValueError, match="wrong"):
        wrong.result()
    with pytest.raises(TimeoutError, match="the task's own"):
        own.result(60)
    with pytest.raises(CancelledError):
        gone.result()
    assert reporter.reports == [[1], [], [2], [], [3], []]


def test_an_interrupted_wait_is_over(reporter: Reporter) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    reporter.then[1] = interrupt
    with pytest.raises(KeyboardInterrupt):
        Numbered(7).result()
    assert reporter.reports == [[7], []]


@pytest.mark.parametrize("when", [FIRST_COMPLETED, ALL_COMPLETED])
def test_waits_for_several_are_reported(reporter: Reporter, when: str) -> None:
    one, other = Numbered(1), Numbered(2)
    reporter.then[1] = lambda: one.set_result(1)
    reporter.then[2] = lambda: other.set_result(2)

    done, _ = wait([one, other], return_when=when)

    assert one in done
    assert sorted(reporter.reports[0]) == [1, 2]
    assert reporter.reports[-1] == []
    if when == ALL_COMPLETED:
        assert reporter.reports[1:] == [[2], []]


def test_the_code_goes_on_between_tasks_as_they_end(reporter: Reporter) -> None:
    futures = [Numbered(1), Numbered(2)]
    reporter.then[1] = lambda: futures[0].set_result(1)
    reporter.then[3] = lambda: futures[1].set_result(2)

    ended = as_completed(futures)
    seen = [(future.result(), len(reporter.reports)) for future in ended]

    assert seen == [(1, 2), (2, 4)]
    assert reporter.reports[1:] == [[], [2], []]


def test_futures_of_others_are_waited_for_along_with_them(reporter: Reporter) -> None:
    from concurrent.futures import Future

    own, foreign = Numbered(1), Future[int]()
    reporter.then[1] = lambda: own.set_result(1)
    reporter.then[2] = lambda: foreign.set_result(2)

    assert wait([own, foreign]).not_done == set()
    assert reporter.reports[0] == [1]


def test_other_threads_report_nothing(reporter: Reporter) -> None:
    future = Numbered(7)
    thread = threading.Thread(target=wait, args=([future],))
    thread.start()
    thread.join(0.05)
    future.set_result(1)
    thread.join()

    assert reporter.reports == []


def test_a_forked_child_reports_nothing(reporter: Reporter) -> None:
    future = Numbered(7)
    child = os.fork()
    if child == 0:
        try:
            future.result(0.05)
        except TimeoutError:
            os._exit(len(reporter.reports))
        os._exit(99)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_outside_a_task_nothing_is_reported() -> None:
    future = Numbered(7)
    threading.Timer(0.05, future.set_result, [1]).start()

    assert wait([future], 10).done == {future}
    assert future.result() == 1
