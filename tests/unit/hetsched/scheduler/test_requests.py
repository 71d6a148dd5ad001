"""Requests of users for their tasks: order, hold, cancel, move, amend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import a_task
from hetsched import events as e
from hetsched.actions import Abort, Preempt, Record, Run
from hetsched.ids import TaskId
from hetsched.limits import Limits
from hetsched.system import SECOND
from hetsched.tasks import State
from unit.hetsched.scheduler.expected_actions import (
    BOTH,
    CPU,
    GPU,
    ONE,
    THREE,
    TWO,
    ran,
)

if TYPE_CHECKING:
    from builders import Start


def test_a_task_runs_after_its_dependencies(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))

    waits = node.handle(a_task(2, after=[1]))
    runs = node.handle(e.TaskFinished(ONE, 1))

    assert waits == [Record(TWO, State.WAITING, "submitted")]
    assert runs == [
        Record(ONE, State.COMPLETED, "completed", "cpu"),
        Record(TWO, State.QUEUED, "queued"),
        *ran(TWO, 2, "cpu"),
    ]


def test_a_task_runs_after_whatever_end_of_others(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, hold=True))
    node.handle(a_task(2, after=[1], after_any=[1]))

    actions = node.handle(e.TaskCancelled(ONE, "why not"))

    assert actions == [
        Record(ONE, State.CANCELLED, "cancelled", None, "why not"),
        Record(TWO, State.QUEUED, "queued"),
        *ran(TWO, 1, "cpu"),
    ]


def test_a_task_runs_if_one_of_several_did_not_complete(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, hold=True))
    node.handle(a_task(2))
    node.handle(a_task(3, after=[1, 2], after_notok=[1, 2]))

    node.handle(e.TaskCancelled(ONE, "why not"))
    actions = node.handle(e.TaskFinished(TWO, 1))

    assert actions == [
        Record(TWO, State.COMPLETED, "completed", "cpu"),
        Record(THREE, State.QUEUED, "queued"),
        *ran(THREE, 2, "cpu"),
    ]


def test_a_task_for_failures_is_cancelled_if_there_are_none(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))
    node.handle(a_task(2, after=[1], after_notok=[1]))
    node.handle(a_task(3, after=[2], after_any=[2]))

    actions = node.handle(e.TaskFinished(ONE, 1))

    assert actions == [
        Record(ONE, State.COMPLETED, "completed", "cpu"),
        Record(TWO, State.CANCELLED, "cancelled", None, "not needed: task 1 completed"),
        Record(THREE, State.QUEUED, "queued"),
        *ran(THREE, 2, "cpu"),
    ]


def test_a_failure_before_the_submission_counts(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(2))
    node.handle(a_task(3, after=[1, 2], after_notok=[2], notok_met=True))

    actions = node.handle(e.TaskFinished(TWO, 1))

    assert actions[1:] == [
        Record(THREE, State.QUEUED, "queued"),
        *ran(THREE, 2, "cpu"),
    ]


def test_dependents_of_a_cancelled_task_are_cancelled(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, hold=True))
    node.handle(a_task(2, after=[1]))
    node.handle(a_task(3, after=[1, 2]))

    actions = node.handle(e.TaskCancelled(ONE, "not needed"))

    comes_after = "task 1, which it comes after, ended as cancelled: not needed"
    assert actions == [
        Record(ONE, State.CANCELLED, "cancelled", None, "not needed"),
        Record(TWO, State.CANCELLED, "cancelled", None, comes_after),
        Record(THREE, State.CANCELLED, "cancelled", None, comes_after),
    ]


def test_a_long_chain_of_dependents_is_cancelled(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, hold=True))
    for number in range(2, 3001):
        node.scheduler.handle(a_task(number, after=[number - 1]), 0)

    actions = node.handle(e.TaskCancelled(ONE, "not needed"))

    assert [type(action) for action in actions] == [Record] * 3000
    assert node.scheduler.system.tasks == {}
    # the last one names the task before it, and where the chain was broken
    before = "task 2999, which it comes after, ended as cancelled: "
    broken = "task 1, which it comes after, ended as cancelled: not needed"
    assert actions[-1] == Record(
        TaskId(3000), State.CANCELLED, "cancelled", None, before + broken
    )


def test_a_dependent_repeats_a_part_of_a_long_reason(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, hold=True))
    node.handle(a_task(2, after=[1]))

    actions = node.handle(e.TaskCancelled(ONE, "no " * 1000))

    (_, dependent) = actions
    assert isinstance(dependent, Record)
    assert len(dependent.reason or "") < 300


# ---------------------------------------------------------------- hold and cancel


def test_a_held_task_waits_until_it_is_released(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])

    held = node.handle(a_task(1, hold=True))
    released = node.handle(e.TaskReleased(ONE))

    assert held == [Record(ONE, State.HELD, "submitted")]
    assert released == [Record(ONE, State.QUEUED, "released"), *ran(ONE, 1, "cpu")]


def test_a_held_task_that_its_worker_aborts_starts_again(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))
    node.handle(e.TaskHeld(ONE))
    node.handle(e.TaskYielded(ONE, 1, 0.5))

    failed = node.handle(e.TaskFailed(ONE, 1, "out of memory"))
    released = node.handle(e.TaskReleased(ONE))

    assert failed == []
    assert released == [Record(ONE, State.QUEUED, "released"), *ran(ONE, 2, "cpu")]
    assert node.scheduler.system.tasks[ONE].progress == 0.0


def test_a_released_task_still_waits_for_others(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))
    node.handle(a_task(2, after=[1], hold=True))

    actions = node.handle(e.TaskReleased(TWO))

    assert actions == [Record(TWO, State.WAITING, "released")]


def test_a_running_task_is_held_at_its_next_checkpoint(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))

    asked = node.handle(e.TaskHeld(ONE))
    held = node.handle(e.TaskYielded(ONE, 1, 0.5))
    released = node.handle(e.TaskReleased(ONE))

    assert asked == [Preempt(ONE, 1)]
    assert held == [Record(ONE, State.HELD, "held")]
    # Its worker has kept it: the epoch is the same.
    assert released == [Record(ONE, State.QUEUED, "released"), *ran(ONE, 1, "cpu")]


def test_a_cancelled_running_task_is_aborted_once(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))

    asked = node.handle(e.TaskCancelled(ONE, "enough"))
    again = node.handle(e.TaskCancelled(ONE, "enough"))
    gone = node.handle(e.TaskAborted(ONE, 1))

    assert asked == [Abort(ONE, 1)]
    assert again == []
    assert gone == [Record(ONE, State.CANCELLED, "cancelled", "cpu", "enough")]


def test_a_cancelled_task_may_yield_first(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))
    node.handle(e.TaskHeld(ONE))
    node.handle(e.TaskCancelled(ONE, "enough"))

    actions = node.handle(e.TaskYielded(ONE, 1, 0.5))

    assert actions == [Record(ONE, State.CANCELLED, "cancelled", "cpu", "enough")]


def test_a_cancelled_staged_task_leaves_its_worker(a_scheduler: Start) -> None:
    node = a_scheduler([CPU], limits=Limits(stage=1))
    node.handle(a_task(1))
    node.handle(a_task(2))

    actions = node.handle(e.TaskCancelled(TWO, "enough"))

    assert actions == [
        Abort(TWO, 2),
        Record(TWO, State.CANCELLED, "cancelled", "cpu", "enough"),
    ]


# ---------------------------------------------------------------- move and amend


def test_a_running_task_moves_to_the_resource_that_its_owner_chose(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))

    asked = node.handle(e.TaskMoved(ONE, "cpu"))
    moved = node.handle(e.TaskYielded(ONE, 1, 0.5))

    assert asked == [Preempt(ONE, 1)]
    assert moved == [
        Record(ONE, State.PREEMPTED, "preempted", "cpu"),
        *ran(ONE, 1, "cpu"),
    ]


@pytest.mark.parametrize("policy", ["affinity", "migration", "finish-time"])
def test_a_held_task_that_is_moved_stays_there_after_its_release(
    a_scheduler: Start, policy: str
) -> None:
    # it waits for the CPU, and runs there to its end, though the GPU is idle and better
    node = a_scheduler([CPU, GPU], BOTH, policy)
    node.handle(a_task(1, resources=["cpu"]))
    node.handle(a_task(2, hold=True))

    moved = node.handle(e.TaskMoved(TWO, "cpu"))
    released = node.handle(e.TaskReleased(TWO))
    started = node.handle(e.TaskFinished(ONE, 1))
    runs_on = node.handle(e.StripsDone(TWO, 2, 0.1), at=5.0)

    assert moved == []
    assert released == [
        Record(TWO, State.QUEUED, "released"),
        Record(TWO, State.QUEUED, "placed", "cpu"),
    ]
    assert started[1:] == ran(TWO, 2, "cpu")
    assert runs_on == []


def test_a_task_held_and_moved_while_running_continues_where_it_was_moved(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU, GPU], BOTH, "finish-time")
    node.handle(a_task(1))

    asked = node.handle(e.TaskHeld(ONE))
    moved = node.handle(e.TaskMoved(ONE, "cpu"))
    node.handle(e.TaskYielded(ONE, 1, 0.5))
    released = node.handle(e.TaskReleased(ONE))

    assert (asked, moved) == ([Preempt(ONE, 1)], [])
    assert released == [Record(ONE, State.QUEUED, "released"), *ran(ONE, 1, "cpu")]


def test_a_waiting_task_is_moved_to_the_front(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    for number, name in ((1, "cpu"), (2, "cpu"), (3, "gpu0"), (4, "gpu0")):
        node.handle(a_task(number, resources=[name]))

    node.handle(a_task(5))
    moved = node.handle(e.TaskMoved(TaskId(5), "cpu"))
    next_run = node.handle(e.TaskFinished(ONE, 1))

    assert moved == [Record(TaskId(5), State.QUEUED, "moved", "cpu")]
    assert next_run[1:] == ran(TaskId(5), 3, "cpu")


def test_a_task_moved_to_where_it_runs_stays_there(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))

    assert node.handle(e.TaskMoved(ONE, "gpu0")) == []
    assert node.handle(e.ResourceDrained("gpu0")) == []


def test_an_amended_task_goes_first_from_now_on(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    for number in (1, 2, 3):
        node.handle(a_task(number))

    told = node.handle(e.TaskAmended(TaskId(3), 5, 7 * SECOND))

    assert told == [Record(TaskId(3), State.QUEUED, "amended", "cpu")]
    amended = node.scheduler.system.tasks[TaskId(3)].submitted
    assert (amended.priority, amended.deadline) == (5, 7 * SECOND)
    taken = node.handle(e.TaskFinished(ONE, 1))
    assert Run(TaskId(3), 2, "cpu") in taken


def test_amending_a_running_task_leaves_it_where_it_is(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))

    told = node.handle(e.TaskAmended(ONE, 5, None))

    assert told == [Record(ONE, State.RUNNING, "amended", "cpu")]


@pytest.mark.parametrize(
    "event",
    [
        e.TaskCancelled(ONE),
        e.TaskHeld(ONE),
        e.TaskReleased(ONE),
        e.TaskMoved(ONE, "cpu"),
        e.TaskAmended(ONE, 5, None),
    ],
)
def test_requests_for_an_ended_task_change_nothing(
    a_scheduler: Start, event: e.Event
) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))
    node.handle(e.TaskFinished(ONE, 1))

    assert node.handle(event) == []
