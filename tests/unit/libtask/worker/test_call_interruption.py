"""When the running call of a function is interrupted, and when it is not."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from libtask.worker import call_interruption
from libtask.worker.call_interruption import CallInterruption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from libtask.worker.call_interruption import RunningCall

CALL, OTHER = (7, 2), (8, 3)
PATIENCE = 30.0


class Link:
    """Brings the command to abort a call.

    Attributes:
        ends: what the main thread does between a look of the thread and its use of the link.

    """

    def __init__(self) -> None:
        self.aborts: list[RunningCall] = []
        self.looks = 0
        self.ends: Callable[[], None] = lambda: None
        self.ran: list[bool] = []

    def take_abort(self, task: int, epoch: int, runs: Callable[[], bool]) -> bool:
        self.looks += 1
        self.ends()
        self.ran.append(runs())
        if (task, epoch) not in self.aborts:
            return False
        self.aborts.remove((task, epoch))
        return True


@pytest.fixture
def link() -> Link:
    return Link()


@pytest.fixture
def interruption(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CallInterruption]:
    monkeypatch.setattr(call_interruption, "LOOK_S", 0.002)
    before = signal.getsignal(signal.SIGINT)
    yield CallInterruption(link)  # type: ignore[arg-type]  # a stand-in
    signal.signal(signal.SIGINT, before)


def await_signal(link: Link) -> None:
    """Wait until the command is taken; the signal comes at the latest meanwhile."""
    deadline = time.monotonic() + PATIENCE
    while link.aborts:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(0.01)


@pytest.mark.parametrize("wait", [time.sleep, threading.Event().wait])
def test_a_call_that_is_aborted_is_interrupted(
    interruption: CallInterruption, link: Link, wait: Callable[[float], object]
) -> None:
    interruption.begin(*CALL)
    link.aborts.append(CALL)

    with pytest.raises(KeyboardInterrupt):
        wait(PATIENCE)

    assert interruption.interrupted


def test_another_one_is_not(interruption: CallInterruption, link: Link) -> None:
    interruption.begin(*CALL)
    link.aborts.append(OTHER)
    looks = link.looks
    while link.looks < looks + 3:
        time.sleep(0.001)
    interruption.end()

    assert (interruption.interrupted, link.aborts) == (False, [OTHER])


def test_the_link_is_not_used_for_a_call_that_has_just_ended(
    interruption: CallInterruption, link: Link
) -> None:
    link.ends = interruption.end
    interruption.begin(*CALL)
    while not link.ran:
        time.sleep(0.001)

    assert link.ran == [False]


def test_it_is_interrupted_once(interruption: CallInterruption, link: Link) -> None:
    interruption.begin(*CALL)
    link.aborts.append(CALL)
    with pytest.raises(KeyboardInterrupt):
        time.sleep(PATIENCE)

    link.aborts.append(CALL)
    time.sleep(0.05)

    assert link.aborts == [CALL]


def test_it_is_interrupted_after_the_link_was_used(
    interruption: CallInterruption, link: Link
) -> None:
    sent = []

    def send() -> None:
        with interruption:
            link.aborts.append(CALL)
            await_signal(link)
            sent.append("whole")
        sent.append("goes on")

    interruption.begin(*CALL)
    with pytest.raises(KeyboardInterrupt):
        send()

    assert (sent, interruption.interrupted) == (["whole"], True)


def test_a_signal_that_comes_late_does_not_concern_the_next_call(
    interruption: CallInterruption, link: Link
) -> None:
    interruption.begin(*CALL)
    with interruption:
        link.aborts.append(CALL)
        await_signal(link)
        interruption.end()
        interruption.begin(*OTHER)
    interruption.end()

    assert not interruption.interrupted


def test_a_function_that_replaces_the_handler_replaces_it_for_itself(
    interruption: CallInterruption, link: Link
) -> None:
    interruption.begin(*CALL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interruption.end()
    interruption.begin(*OTHER)
    link.aborts.append(OTHER)

    with pytest.raises(KeyboardInterrupt):
        time.sleep(PATIENCE)


def test_a_signal_of_others_is_no_abort(interruption: CallInterruption) -> None:
    interruption.begin(*CALL)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)

    assert not interruption.interrupted


def test_nothing_looks_for_commands_when_no_call_runs(
    interruption: CallInterruption, link: Link
) -> None:
    interruption.begin(*CALL)
    interruption.end()
    time.sleep(0.1)
    looks = link.looks
    time.sleep(0.1)

    assert link.looks == looks
    thread = interruption._thread
    assert not thread._needed.is_set()
