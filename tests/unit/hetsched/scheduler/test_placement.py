"""Which task runs where and when: slots, order, and restored tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builders import a_resource, a_task, ran_on
from hetsched import events as e
from hetsched.actions import Abort, Record, Stage
from hetsched.breaker import Fault, Pair
from hetsched.ids import TaskId
from hetsched.limits import Limits
from hetsched.policies import make_policy
from hetsched.tasks import Cancel, State
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


def test_a_free_slot_takes_a_task_at_once(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)

    actions = node.handle(a_task(1))

    assert actions == [
        Record(ONE, State.QUEUED, "submitted", "gpu0"),
        *ran(ONE, 1, "gpu0"),
    ]


def test_a_finished_task_makes_room_for_the_next(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))
    queued = node.handle(a_task(2))

    actions = node.handle(e.TaskFinished(ONE, 1))

    assert queued == [
        Record(TWO, State.QUEUED, "submitted", "cpu"),
    ]
    assert actions == [
        Record(ONE, State.COMPLETED, "completed", "cpu"),
        *ran(TWO, 2, "cpu"),
    ]


def test_slots_run_tasks_side_by_side(a_scheduler: Start) -> None:
    node = a_scheduler([a_resource("cpu", slots=2)])

    actions = node.handle_all(a_task(1), a_task(2), a_task(3))

    assert actions == [
        *(Record(TaskId(n), State.QUEUED, "submitted", "cpu") for n in (1, 2, 3)),
        *ran(ONE, 1, "cpu"),
        *ran(TWO, 2, "cpu"),
    ]


def test_a_higher_priority_goes_first(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    for number, priority in ((1, 0), (2, 0), (3, 1)):
        node.handle(a_task(number, priority=priority))

    actions = node.handle(e.TaskFinished(ONE, 1))

    assert actions[1:] == ran(THREE, 2, "cpu")


def test_tasks_that_arrive_together_are_placed_together(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])

    actions = node.handle_all(a_task(1), a_task(2, priority=1))

    assert actions == [
        Record(ONE, State.QUEUED, "submitted", "cpu"),
        Record(TWO, State.QUEUED, "submitted", "cpu"),
        *ran(TWO, 1, "cpu"),
    ]


def test_the_next_long_task_of_a_busy_resource_is_staged(a_scheduler: Start) -> None:
    seconds = {"long": {"cpu": 1.0}, "short": {"cpu": 0.001}}
    node = a_scheduler([CPU], seconds, limits=Limits(stage=1))
    node.handle(a_task(1, "long"))

    long = node.handle(a_task(2, "long"))
    short = node.handle(a_task(3, "short", priority=1))

    assert long == [
        Record(TWO, State.QUEUED, "submitted", "cpu"),
        Stage(TWO, 2),
    ]
    assert short == [
        Record(THREE, State.QUEUED, "submitted", "cpu"),
    ]
    node.handle(e.TaskFinished(ONE, 1))
    assert node.handle(e.TaskFinished(THREE, 3))[1:] == ran(TWO, 2, "cpu")


def test_staged_tasks_that_others_have_overtaken_leave_their_workers(
    a_scheduler: Start,
) -> None:
    """Else each task that was next for a moment keeps a process."""
    node = a_scheduler([CPU], {"long": {"cpu": 1.0}}, limits=Limits(stage=1))
    node.handle(a_task(1, "long"))
    staged: set[int] = set()

    for number in range(2, 50):
        for action in node.handle(a_task(number, "long", priority=number)):
            if isinstance(action, Stage):
                staged.add(action.task)
            elif isinstance(action, Abort):
                staged.remove(action.task)
        assert number in staged
        assert len(staged) <= 3

    running = node.scheduler.system.states["cpu"].running
    order = []
    while running:
        [task] = running.values()
        order.append(task.id)
        node.handle(e.TaskFinished(task.id, task.epoch))
    assert order == [1, *range(49, 1, -1)]


def test_a_new_policy_places_all_waiting_tasks_again(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    node.handle(a_task(2))

    actions = node.change_policy(make_policy("work-conserving", {}))

    assert actions == ran(TWO, 2, "cpu")


# ---------------------------------------------------------------- restarts


def test_a_restored_task_continues_in_its_worker(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])

    restored = node.restart((a_task(1), ran_on("cpu", 7, 0.25)))
    finished = node.handle(e.TaskFinished(ONE, 7))

    assert restored == [Record(ONE, State.RUNNING, "restored", "cpu")]
    assert finished == [Record(ONE, State.COMPLETED, "completed", "cpu")]


def test_a_restored_task_without_a_slot_starts_again(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])

    actions = node.restart((a_task(1), ran_on("gpu0", 7, 0.25)))

    assert actions == [Abort(ONE, 7), *ran(ONE, 1, "cpu")]


def test_a_task_is_restored_that_ran_on_a_resource_which_is_gone(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU])
    fault = Fault("", "crash", "another application failed")
    node.scheduler.system.breaker.fail(Pair(0, "other", "cpu"), fault, 0, 0)
    stored = ran_on("gone0", 7)
    stored.pinned, stored.intent = "gone0", Cancel("no more")

    actions = node.restart((a_task(1), stored))

    assert Abort(ONE, 7) in actions
    record = node.scheduler.system.tasks[ONE]
    assert (record.pinned, record.intent, record.row.resources) == (
        None,
        None,
        frozenset(),
    )


def test_restored_tasks_are_recorded_once_and_placed_together(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU])

    actions = node.restart(a_task(1, hold=True), a_task(2), a_task(3, after=(ONE,)))

    assert actions == [
        Record(ONE, State.HELD, "restored"),
        Record(THREE, State.WAITING, "restored"),
        *ran(TWO, 1, "cpu"),
    ]


def test_no_waiting_task_takes_the_slot_of_a_restored_one(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])

    actions = node.restart((a_task(2), ran_on("cpu", 7, 0.25)), a_task(1))

    assert actions == [
        Record(TWO, State.RUNNING, "restored", "cpu"),
        Record(ONE, State.QUEUED, "placed", "cpu"),
    ]
