"""Tasks that fail by themselves and are run again after growing pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import a_task
from hetsched import events as e
from hetsched.actions import Record, Run
from hetsched.beginnings import pause
from hetsched.planning.explain import explain
from hetsched.system import SECOND
from hetsched.tasks import State, TaskRuntime
from unit.hetsched.scheduler.expected_actions import CPU, GPU, ONE, TWO, ran

if TYPE_CHECKING:
    from builders import Harness, Start


def test_pauses_double_up_to_a_minute() -> None:
    seconds = [pause(failures) / SECOND for failures in (*range(1, 9), 100)]

    assert seconds == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_failed_task_runs_again_after_a_pause(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, retries=1), at=1.0)

    fails = node.handle(e.TaskFailed(ONE, 1, "exit status 3"), at=2.0)
    early = node.handle(e.BeginningDue(), at=2.9)
    runs = node.handle(e.BeginningDue(), at=3.0)
    ends = node.handle(e.TaskFailed(ONE, 2, "exit status 4"), at=4.0)

    assert fails == [Record(ONE, State.WAITING, "retried", None, "exit status 3")]
    assert early == []
    assert runs == [Record(ONE, State.QUEUED, "queued"), *ran(ONE, 2, "cpu")]
    assert ends == [Record(ONE, State.FAILED, "failed", "cpu", "exit status 4")]
    assert node.scheduler.next_beginning() is None


def test_others_run_in_the_pause(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, retries=1))
    node.handle(a_task(2))

    fails = node.handle(e.TaskFailed(ONE, 1, "no"), at=1.0)

    assert [each.task for each in fails if isinstance(each, Run)] == [TWO]
    assert node.scheduler.next_beginning() == 2 * SECOND


def test_each_pause_is_longer_than_the_last(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, retries=3))

    pauses = []
    for epoch in (1, 2, 3):
        now = node.scheduler.system.now
        node.handle(e.TaskFailed(ONE, epoch, "no"), at=now / SECOND)
        due = node.scheduler.next_beginning()
        assert due is not None
        pauses.append((due - now) / SECOND)
        node.handle(e.BeginningDue(), at=due / SECOND)

    assert pauses == [1.0, 2.0, 4.0]


def test_a_pause_can_be_cancelled(a_scheduler: Start) -> None:
    node = _paused(a_scheduler)

    ends = node.handle(e.TaskCancelled(ONE, "why not"), at=1.5)

    assert ends == [Record(ONE, State.CANCELLED, "cancelled", None, "why not")]
    assert node.scheduler.next_beginning() is None


@pytest.mark.parametrize(("released", "state"), [(1.5, "waiting"), (2.5, "running")])
def test_a_pause_goes_on_after_a_hold(
    a_scheduler: Start, released: float, state: str
) -> None:
    node = _paused(a_scheduler)

    node.handle(e.TaskHeld(ONE), at=1.25)
    held = node.scheduler.next_beginning()
    node.handle(e.TaskReleased(ONE), at=released)

    assert held is None
    assert node.scheduler.system.tasks[ONE].state == state


def test_a_task_that_is_moved_in_its_pause_runs_there(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU])
    node.handle(a_task(1, retries=1))
    node.handle(e.TaskFailed(ONE, 1, "no"), at=1.0)

    node.handle(e.TaskMoved(ONE, "gpu0"), at=1.5)
    runs = node.handle(e.BeginningDue(), at=2.0)

    assert runs == [Record(ONE, State.QUEUED, "queued"), *ran(ONE, 2, "gpu0")]


def test_a_task_that_fails_as_it_is_to_be_held_is_held(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, retries=1))
    node.handle(e.TaskHeld(ONE), at=0.5)

    node.handle(e.TaskFailed(ONE, 1, "no"), at=1.0)

    assert node.scheduler.system.tasks[ONE].state is State.HELD


def test_a_task_that_was_cancelled_is_not_run_again(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, retries=5))
    node.handle(e.TaskCancelled(ONE), at=0.5)

    node.handle(e.TaskFailed(ONE, 1, "no"), at=1.0)

    assert not node.scheduler.system.tasks


def test_a_program_that_serves_its_own_task_is_not_waited_for(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, retries=5, served=True))

    (ends, *_) = node.handle(e.TaskFailed(ONE, 1, "its program ended"), at=1.0)

    assert ends == Record(ONE, State.FAILED, "failed", "cpu", "its program ended")


def test_a_pause_begins_anew_with_a_restart(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    task = a_task(1, retries=5)
    paused = TaskRuntime(State.WAITING, retried=3)

    node.scheduler.restore([(task, paused)], 0)
    node.handle(e.NodeStarted())

    assert node.scheduler.system.tasks[ONE].state is State.WAITING
    assert node.scheduler.next_beginning() == 4 * SECOND


def test_the_explanation_tells_when_it_runs_again(a_scheduler: Start) -> None:
    node = _paused(a_scheduler)
    system = node.scheduler.system

    found = explain(system, system.tasks[ONE])

    assert found.why == "retries in 1 s, for time 1 of 2"


def test_tasks_that_do_not_wait_any_more_take_no_memory(a_scheduler: Start) -> None:
    node = _paused(a_scheduler)

    for _ in range(500):
        node.handle(e.TaskHeld(ONE), at=1.0)
        node.handle(e.TaskReleased(ONE), at=1.0)

    assert len(node.scheduler.system.beginnings._heap) < 100


def _paused(a_scheduler: Start) -> Harness:
    """Task 1 failed at 1 s, and begins again at 2 s."""
    node = a_scheduler([CPU])
    node.handle(a_task(1, retries=2))
    node.handle(e.TaskFailed(ONE, 1, "no"), at=1.0)
    return node
