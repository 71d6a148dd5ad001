"""The deadlines: how long a task may be silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.workers.deadlines import Deadlines
from hetsched.system import SECOND

if TYPE_CHECKING:
    from hetd.workers.deadlines import WatchedTask


class Watched:
    """A task that is watched from instant 0 on."""

    def __init__(self, deadlines: Deadlines, state_bytes: int = 0) -> None:
        self.deadlines = deadlines
        self.task = deadlines.begin(state_bytes, 0)

    def progress(self, at: float, mean: float = 0.1, *, complete: bool = False) -> None:
        now = int(at * SECOND)
        self.deadlines.progressed(self.task, mean, complete=complete, now=now)

    def complaint(self, seconds: float) -> str:
        """Return what is wrong at this instant; empty: nothing."""
        return complaint(self.deadlines, self.task, seconds)


def complaint(deadlines: Deadlines, task: WatchedTask, seconds: float) -> str:
    late = task.deadline <= int(seconds * SECOND)
    return deadlines.complaint(task) if late else ""


def a_task(state_bytes: int = 0) -> Watched:
    return Watched(Deadlines(strip_s=10.0, setup_s=50.0), state_bytes)


def test_set_up_may_take_longer_than_a_strip() -> None:
    task = a_task()
    assert task.complaint(49.0) == ""
    assert task.complaint(51.0) == "no strip was finished in 50 s"

    task.progress(at=45.0)  # what the next strips need may still be compiled
    assert task.complaint(94.0) == ""
    task.progress(at=60.0)
    assert task.complaint(71.0) == "no checkpoint was reached in 10 s"


def test_long_strips_and_large_states_have_their_time() -> None:
    task = a_task(state_bytes=500_000_000)  # 10 s to copy at the worst
    for at in (2.0, 4.0):
        task.progress(at, mean=2.0)

    assert task.complaint(53.0) == ""
    assert task.complaint(55.0) == "no checkpoint was reached in 50 s"


def test_no_report_and_no_size_buys_more_time_than_has_gone_by() -> None:
    deadlines = Deadlines(strip_s=10.0, setup_s=50.0, memory=500_000_000)
    task = Watched(deadlines, 1 << 62)
    for at in (1.0, 2.0):
        task.progress(at, mean=1e9)

    assert task.complaint(31.0) == ""
    assert task.complaint(33.0) == "no checkpoint was reached in 30 s"


def test_a_worker_has_to_come_sooner_than_set_up_ends() -> None:
    deadlines = Deadlines(strip_s=10.0, setup_s=500.0)
    task = deadlines.await_worker(0)

    assert complaint(deadlines, task, 89.0) == ""
    assert complaint(deadlines, task, 91.0) == "no worker came for it in 90 s"


def test_saving_may_take_as_long_as_set_up() -> None:
    task = a_task()
    for at in (1.0, 2.0):
        task.progress(at)

    task.progress(at=3.0, complete=True)

    assert task.complaint(52.0) == ""
    assert task.complaint(54.0)


def test_reports_put_nothing_off_for_a_task_that_is_to_yield() -> None:
    task = a_task()
    for at in (1.0, 2.0):
        task.progress(at)

    task.deadlines.ordered(task.task, 3 * SECOND)
    task.progress(at=12.0)

    assert task.complaint(12.9) == ""
    assert task.complaint(13.1) == "did not yield within 10 s"
