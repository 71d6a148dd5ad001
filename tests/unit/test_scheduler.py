"""Events in, actions out: the mechanism, seen through the policy `affinity`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import a_resource, a_task
from hetd.core import events as e
from hetd.core.actions import Abort, Preempt, Record, Run, Stage
from hetd.core.events import TaskId
from hetd.core.ledger import ROWS_KEPT
from hetd.core.scheduler import Limits
from hetd.core.system import SECOND
from hetd.core.tasks import LONGEST_STORY, State
from hetd.policies import make_policy
from libtask.errors import BugError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from builders import Harness
    from hetd.core.actions import Action

    Start: TypeAlias = Callable[..., Harness]

CPU = a_resource("cpu")
GPU = a_resource("gpu")
BOTH = {"any": {"cpu": 2.0, "gpu0": 1.0}}
ONE, TWO, THREE = TaskId(1), TaskId(2), TaskId(3)


def ran(task: TaskId, epoch: int, resource: str) -> list[Action]:
    return [
        Run(task, epoch, resource),
        Record(task, State.RUNNING, "dispatched", resource),
    ]


def test_a_free_slot_takes_a_task_at_once(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)

    actions = node.handle(a_task(1))

    assert actions == [Record(ONE, State.QUEUED, "submitted"), *ran(ONE, 1, "gpu0")]


def test_a_finished_task_makes_room_for_the_next(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))
    queued = node.handle(a_task(2))

    actions = node.handle(e.TaskFinished(ONE, 1))

    assert queued == [
        Record(TWO, State.QUEUED, "submitted"),
        Record(TWO, State.QUEUED, "placed", "cpu"),
    ]
    assert actions == [
        Record(ONE, State.COMPLETED, "completed", "cpu"),
        *ran(TWO, 2, "cpu"),
    ]


def test_slots_run_tasks_side_by_side(a_scheduler: Start) -> None:
    node = a_scheduler([a_resource("cpu", slots=2)])

    actions = node.handle_all(a_task(1), a_task(2), a_task(3))

    assert actions == [
        *(Record(TaskId(n), State.QUEUED, "submitted") for n in (1, 2, 3)),
        *ran(ONE, 1, "cpu"),
        *ran(TWO, 2, "cpu"),
        Record(THREE, State.QUEUED, "placed", "cpu"),
    ]


def test_a_higher_priority_goes_first(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    for number, priority in ((1, 0), (2, 0), (3, 1)):
        node.handle(a_task(number, priority=priority))

    actions = node.handle(e.TaskFinished(ONE, 1))

    assert actions[1:] == ran(THREE, 2, "cpu")


def test_what_arrives_together_is_placed_together(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])

    actions = node.handle_all(a_task(1), a_task(2, priority=1))

    assert actions == [
        Record(ONE, State.QUEUED, "submitted"),
        Record(TWO, State.QUEUED, "submitted"),
        *ran(TWO, 1, "cpu"),
        Record(ONE, State.QUEUED, "placed", "cpu"),
    ]


def test_the_next_long_task_of_a_busy_resource_is_staged(a_scheduler: Start) -> None:
    seconds = {"long": {"cpu": 1.0}, "short": {"cpu": 0.001}}
    node = a_scheduler([CPU], seconds, limits=Limits(stage=1))
    node.handle(a_task(1, "long"))

    long = node.handle(a_task(2, "long"))
    short = node.handle(a_task(3, "short", priority=1))

    assert long == [
        Record(TWO, State.QUEUED, "submitted"),
        Stage(TWO, 2),
        Record(TWO, State.QUEUED, "placed", "cpu"),
    ]
    assert short == [
        Record(THREE, State.QUEUED, "submitted"),
        Record(THREE, State.QUEUED, "placed", "cpu"),
    ]
    node.handle(e.TaskFinished(ONE, 1))
    assert node.handle(e.TaskFinished(THREE, 3))[1:] == ran(TWO, 2, "cpu")


def test_a_task_runs_after_those_it_comes_after(a_scheduler: Start) -> None:
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


def test_dependents_of_a_cancelled_task_are_cancelled(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, hold=True))
    node.handle(a_task(2, after=[1]))
    node.handle(a_task(3, after=[1, 2]))

    actions = node.handle(e.TaskCancelled(ONE, "not needed"))

    comes_after = "task 1, which it comes after, ended as cancelled"
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

    actions = node.handle(e.TaskCancelled(ONE))

    assert [type(action) for action in actions] == [Record] * 3000
    assert node.scheduler.system.tasks == {}


def test_a_held_task_waits_until_it_is_released(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])

    held = node.handle(a_task(1, hold=True))
    released = node.handle(e.TaskReleased(ONE))

    assert held == [Record(ONE, State.HELD, "submitted")]
    assert released == [Record(ONE, State.QUEUED, "released"), *ran(ONE, 1, "cpu")]


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


def test_a_held_task_that_its_worker_gives_up_begins_anew(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))
    node.handle(e.TaskHeld(ONE))
    node.handle(e.TaskYielded(ONE, 1, 0.5))

    failed = node.handle(e.TaskFailed(ONE, 1, "out of memory"))
    released = node.handle(e.TaskReleased(ONE))

    assert failed == []
    assert released == [Record(ONE, State.QUEUED, "released"), *ran(ONE, 2, "cpu")]
    assert node.scheduler.system.tasks[ONE].progress == 0.0


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


def test_a_running_task_moves_where_its_owner_wants(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))

    asked = node.handle(e.TaskMoved(ONE, "cpu"))
    moved = node.handle(e.TaskYielded(ONE, 1, 0.5))

    assert asked == [Preempt(ONE, 1)]
    assert moved == [
        Record(ONE, State.PREEMPTED, "preempted", "cpu"),
        *ran(ONE, 1, "cpu"),
    ]


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


def test_a_lost_worker_is_replaced_and_the_task_begins_anew(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))
    node.handle(e.StripsDone(ONE, 1, 0.5))

    actions = node.handle(e.WorkerLost(ONE, 1, "killed by signal 9"))

    assert actions == [
        Record(ONE, State.QUEUED, "retried", None, "killed by signal 9"),
        *ran(ONE, 2, "cpu"),
    ]
    assert node.scheduler.system.tasks[ONE].progress == 0.0


def test_a_task_fails_when_it_loses_too_many_workers(a_scheduler: Start) -> None:
    node = a_scheduler([CPU], limits=Limits(attempts=2, stage=0))
    node.handle(a_task(1))
    node.handle(e.WorkerLost(ONE, 1, "killed"))

    actions = node.handle(e.WorkerLost(ONE, 2, "killed"))

    reason = "killed; 2 attempts are the limit"
    assert actions == [Record(ONE, State.FAILED, "failed", "cpu", reason)]


@pytest.mark.parametrize(
    "late",
    [
        e.StripsDone(ONE, 1, 0.9),
        e.TaskYielded(ONE, 1, 0.9),
        e.TaskFinished(ONE, 1),
        e.TaskFailed(ONE, 1, "late"),
        e.TaskAborted(ONE, 1),
        e.WorkerLost(ONE, 1, "late"),
    ],
)
@pytest.mark.parametrize("rebound", [True, False])
def test_reports_of_an_older_binding_change_nothing(
    a_scheduler: Start,
    late: e.Event,
    rebound: bool,  # noqa: FBT001  drawn by name
) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))
    if not rebound:  # it waits without a worker, still with its last epoch
        node.handle(e.ResourceDrained("cpu"))
    node.handle(e.WorkerLost(ONE, 1, "killed"))
    before = node.scheduler.system.tasks[ONE].state

    assert node.handle(late) == []
    assert node.scheduler.system.tasks[ONE].state is before
    assert node.scheduler.system.tasks[ONE].progress == 0.0


def test_a_task_that_fails_on_one_resource_tries_another(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))

    retried = node.handle(e.TaskFailed(ONE, 1, "does not compile", elsewhere=True))
    failed = node.handle(e.TaskFailed(ONE, 2, "out of memory", elsewhere=True))

    assert retried == [
        Record(ONE, State.QUEUED, "retried", None, "does not compile"),
        *ran(ONE, 2, "cpu"),
    ]
    assert failed == [Record(ONE, State.FAILED, "failed", "cpu", "out of memory")]


def test_a_task_that_fails_where_its_owner_moved_it_goes_back(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    node.handle(e.TaskMoved(ONE, "cpu"))
    node.handle(e.TaskYielded(ONE, 1, 0.5))

    actions = node.handle(e.TaskFailed(ONE, 1, "no memory", elsewhere=True))

    assert actions == [
        Record(ONE, State.QUEUED, "retried", None, "no memory"),
        *ran(ONE, 2, "gpu0"),
    ]


def test_a_failed_task_waits_for_a_drained_resource(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    node.handle(e.ResourceDrained("cpu"))

    waits = node.handle(e.TaskFailed(ONE, 1, "no memory", elsewhere=True))
    runs = node.handle(e.ResourceReturned("cpu"))

    assert waits == [Record(ONE, State.QUEUED, "retried", None, "no memory")]
    assert runs == ran(ONE, 2, "cpu")


def test_a_restart_elsewhere_is_no_move(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    node.handle(e.TaskFailed(ONE, 1, "does not compile", elsewhere=True))

    task = node.scheduler.system.tasks[ONE]
    assert (task.moves, task.came_from) == (0, None)


def test_tasks_of_a_lost_resource_go_elsewhere(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    node.handle(a_task(2))

    actions = node.handle(e.ResourceLost("gpu0", "fell off the bus"))

    reason = "gpu0 was lost: fell off the bus"
    # Both go to the CPU, in the order of their arrival.
    assert actions == [
        Abort(ONE, 1),
        Record(ONE, State.QUEUED, "retried", None, reason),
        *ran(ONE, 2, "cpu"),
        Record(TWO, State.QUEUED, "placed", "cpu"),
    ]


def test_what_can_run_nowhere_waits_for_the_resource(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1, resources=["gpu0"]))
    node.handle(a_task(2, resources=["gpu0"]))

    lost = node.handle(e.ResourceLost("gpu0"))
    back = node.handle(e.ResourceReturned("gpu0"))

    assert lost == [
        Abort(ONE, 1),
        Record(ONE, State.QUEUED, "retried", None, "gpu0 was lost: "),
        Record(TWO, State.QUEUED, "unplaced"),
    ]
    assert back == [
        *ran(ONE, 2, "gpu0"),
        Record(TWO, State.QUEUED, "placed", "gpu0"),
    ]


def test_a_drained_resource_sends_its_tasks_away(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    node.handle(a_task(2))

    drained = node.handle(e.ResourceDrained("gpu0"))
    node.handle(e.TaskFinished(TWO, 2))
    yielded = node.handle(e.TaskYielded(ONE, 1, 0.5))

    assert drained == [Preempt(ONE, 1), *ran(TWO, 2, "cpu")]
    assert yielded == [
        Record(ONE, State.PREEMPTED, "preempted"),
        *ran(ONE, 1, "cpu"),
    ]
    assert node.scheduler.system.tasks[ONE].moves == 1


def test_a_preempted_task_without_a_destination_waits_first(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    node.handle(a_task(2, resources=["cpu"]))
    node.handle(a_task(3, resources=["cpu"]))
    node.handle(e.ResourceDrained("gpu0"))
    node.handle(e.TaskYielded(ONE, 1, 0.5))

    actions = node.handle(e.TaskFinished(TWO, 2))

    assert actions[1:] == ran(ONE, 1, "cpu")


def test_a_drain_does_not_redirect_what_leaves_already(a_scheduler: Start) -> None:
    gpus = [a_resource("gpu", "gpu0"), a_resource("gpu", "gpu1")]
    node = a_scheduler([CPU, *gpus], {"any": {"cpu": 9.0, "gpu0": 1.0, "gpu1": 2.0}})
    node.handle(a_task(1))
    node.handle(e.TaskMoved(ONE, "cpu"))

    assert node.handle(e.ResourceDrained("gpu0")) == []
    assert node.handle(e.TaskYielded(ONE, 1, 0.5))[1:] == ran(ONE, 1, "cpu")


def test_a_restored_task_goes_on_in_its_worker(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])

    restored = node.restart(e.TaskRestored(a_task(1), "cpu", 7, 0.25))
    finished = node.handle(e.TaskFinished(ONE, 7))

    assert restored == [Record(ONE, State.RUNNING, "restored", "cpu")]
    assert finished == [Record(ONE, State.COMPLETED, "completed", "cpu")]


def test_a_restored_task_without_a_slot_begins_anew(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])

    actions = node.restart(e.TaskRestored(a_task(1), "gpu0", 7, 0.25))

    assert actions == [Abort(ONE, 7), *ran(ONE, 1, "cpu")]


def test_tasks_of_before_the_start_are_told_of_once_and_placed_together(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU])

    actions = node.restart(a_task(1, hold=True), a_task(2), a_task(3, after=(ONE,)))

    assert actions == [
        Record(ONE, State.HELD, "restored"),
        Record(THREE, State.WAITING, "restored"),
        *ran(TWO, 1, "cpu"),
    ]


def test_no_waiting_task_takes_the_slot_of_one_that_runs_on(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])

    actions = node.restart(e.TaskRestored(a_task(2), "cpu", 7, 0.25), a_task(1))

    assert actions == [
        Record(TWO, State.RUNNING, "restored", "cpu"),
        Record(ONE, State.QUEUED, "placed", "cpu"),
    ]


def test_another_policy_places_all_tasks_anew(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    node.handle(a_task(2))

    actions = node.handle(e.PolicyChanged(make_policy("work-conserving", {})))

    assert actions == ran(TWO, 2, "cpu")


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
def test_wishes_for_a_task_that_has_ended_change_nothing(
    a_scheduler: Start, event: e.Event
) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))
    node.handle(e.TaskFinished(ONE, 1))

    assert node.handle(event) == []


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


def test_a_task_submitted_twice_is_a_bug(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))

    with pytest.raises(BugError, match="task 1 was submitted twice"):
        node.handle(a_task(1))


def test_an_impossible_step_tells_the_story(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1), at=2.0)
    task = node.scheduler.system.tasks[ONE]

    with pytest.raises(
        BugError,
        match="task 1: TaskReleased is impossible while running; "
        "its story: 2000000000: queued -Dispatched-> running",
    ):
        task.advance("TaskReleased", 3)


def test_stories_and_rows_do_not_fill_memory(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))
    for _ in range(LONGEST_STORY):
        node.handle(e.TaskHeld(ONE))
        node.handle(e.TaskYielded(ONE, 1, 0.5))
        node.handle(e.TaskReleased(ONE))
    for number in range(2, 4 * ROWS_KEPT):
        node.handle(a_task(number, hold=True, work=float(number)))
        node.handle(e.TaskCancelled(TaskId(number)))

    assert len(node.scheduler.system.tasks[ONE].story) <= LONGEST_STORY
    assert len(node.scheduler.ledger._rows) <= ROWS_KEPT + 2
