"""What a worker reports while the code of its task waits for other tasks."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from libtask.messages import MAX_IDS, Awaits
from libtask.worker.wait_reports import WaitReports

if TYPE_CHECKING:
    from libtask.messages import Message


class Link:
    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.connections = 1
        self.looks = 0

    def renew_if_lost(self) -> None:
        self.looks += 1

    def send(self, message: Message) -> None:
        self.sent.append(message)


class Execution:
    suspended = False

    def suspend(self) -> None:
        self.suspended = True

    def resume(self) -> None:
        self.suspended = False


@pytest.fixture
def link() -> Link:
    return Link()


@pytest.fixture
def execution() -> Execution:
    return Execution()


@pytest.fixture
def reports(link: Link, execution: Execution) -> WaitReports:
    return WaitReports(link, Path("/s"), 5, 2, execution, nullcontext())  # type: ignore[arg-type]  # stand-ins


def test_news_are_sent_once(reports: WaitReports, link: Link) -> None:
    for tasks in ([7, 8], [7, 8], [8], [], []):
        reports.report(tasks)

    assert link.sent == [Awaits(5, 2, [7, 8]), Awaits(5, 2, [8]), Awaits(5, 2, [])]
    assert link.looks == 3


def test_another_daemon_is_told_again(reports: WaitReports, link: Link) -> None:
    reports.report([7])
    link.connections += 1
    reports.report([7])

    assert link.sent == 2 * [Awaits(5, 2, [7])]


def test_the_time_of_the_wait_is_no_computing_time(
    reports: WaitReports, execution: Execution
) -> None:
    reports.report([7])
    assert execution.suspended
    reports.report([])
    assert not execution.suspended


def test_more_tasks_than_a_message_holds_are_left_out(
    reports: WaitReports, link: Link
) -> None:
    reports.report(list(range(MAX_IDS + 5)))

    assert link.sent == [Awaits(5, 2, list(range(MAX_IDS)))]
