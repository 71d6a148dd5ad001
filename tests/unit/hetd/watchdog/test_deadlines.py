"""The deadlines: how long a task may be silent."""

from __future__ import annotations

from hetd.workers.watchdog import Deadlines
from hetsched.ids import TaskId
from hetsched.system import SECOND

TASK = TaskId(1)


def _complaints(deadlines: Deadlines, seconds: float) -> list[str]:
    return [why for _, _, why in deadlines.overdue(int(seconds * SECOND))]


def _deadlines(state_bytes: int = 0) -> Deadlines:
    deadlines = Deadlines(strip_s=10.0, setup_s=50.0)
    deadlines.begin(TASK, 1, state_bytes, 0)
    return deadlines


def _progress(deadlines: Deadlines, at: float, mean: float = 0.1, **how: bool) -> None:
    complete = how.get("complete", False)
    deadlines.progressed(TASK, mean, complete=complete, now=int(at * SECOND))


def test_set_up_may_take_longer_than_a_strip() -> None:
    deadlines = _deadlines()
    assert _complaints(deadlines, 49.0) == []
    assert _complaints(deadlines, 51.0) == ["no strip was finished in 50 s"]

    _progress(deadlines, at=45.0)  # what the next strips need may still be compiled
    assert _complaints(deadlines, 94.0) == []
    _progress(deadlines, at=60.0)
    assert _complaints(deadlines, 71.0) == ["no checkpoint was reached in 10 s"]


def test_long_strips_and_large_states_have_their_time() -> None:
    deadlines = _deadlines(state_bytes=500_000_000)  # 10 s to copy at the worst
    for at in (2.0, 4.0):
        _progress(deadlines, at, mean=2.0)

    assert _complaints(deadlines, 53.0) == []
    assert _complaints(deadlines, 55.0) == ["no checkpoint was reached in 50 s"]


def test_no_report_and_no_size_buys_more_time_than_has_gone_by() -> None:
    deadlines = Deadlines(strip_s=10.0, setup_s=50.0, memory=500_000_000)
    deadlines.begin(TASK, 1, 1 << 62, 0)
    for at in (1.0, 2.0):
        _progress(deadlines, at, mean=1e9)

    assert _complaints(deadlines, 31.0) == []
    assert _complaints(deadlines, 33.0) == ["no checkpoint was reached in 30 s"]


def test_a_worker_has_to_come_sooner_than_set_up_ends() -> None:
    deadlines = Deadlines(strip_s=10.0, setup_s=500.0)
    deadlines.await_worker(TASK, 1, 0)
    deadlines.await_worker(TASK, 1, 80 * SECOND)  # asked for again: it waits no longer

    assert _complaints(deadlines, 89.0) == []
    assert _complaints(deadlines, 91.0) == ["no worker came for it in 90 s"]
    deadlines.begin(TASK, 1, 0, 91 * SECOND)
    assert _complaints(deadlines, 92.0) == []


def test_saving_may_take_as_long_as_set_up() -> None:
    deadlines = _deadlines()
    for at in (1.0, 2.0):
        _progress(deadlines, at)

    _progress(deadlines, at=3.0, complete=True)

    assert _complaints(deadlines, 52.0) == []
    assert len(_complaints(deadlines, 54.0)) == 1


def test_reports_put_nothing_off_for_a_task_that_is_to_yield() -> None:
    deadlines = _deadlines()
    for at in (1.0, 2.0):
        _progress(deadlines, at)

    deadlines.ordered(TASK, 3 * SECOND)
    _progress(deadlines, at=12.0)

    assert _complaints(deadlines, 12.9) == []
    assert _complaints(deadlines, 13.1) == ["did not yield within 10 s"]
    deadlines.forget(TASK)
    assert deadlines.tasks() == []
