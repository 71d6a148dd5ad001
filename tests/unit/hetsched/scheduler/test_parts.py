"""A task that is split: what its worker is asked, what becomes a part, who merges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from builders import Harness, a_resource, a_task, ran_on
from hetsched import actions as a
from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.planning.explain import explain
from hetsched.system import SECOND
from hetsched.tasks import State, TaskRuntime
from libtask.errors import BugError

if TYPE_CHECKING:
    from hetsched.tasks import TaskRecord

WHOLE, PART = TaskId(1), TaskId(2)
SECONDS = {"any": {"cpu": 30.0, "gpu0": 10.0}}


def a_part(start: float = 0.75) -> e.TaskSubmitted:
    return a_task(PART, kinds={"cpu", "gpu"}, part_of=WHOLE, start=start, parallel=True)


@pytest.fixture
def harness() -> Harness:
    """A task that runs on the GPU, whose worker was asked for the last quarter."""
    harness = Harness([a_resource("cpu"), a_resource("gpu")], SECONDS)
    harness.handle(a_task(WHOLE, kinds={"cpu", "gpu"}, parallel=True))
    harness.scheduler.state.split(WHOLE, "cpu", 0.75)
    return harness


def record(harness: Harness, task: TaskId) -> TaskRecord:
    return harness.scheduler.system.tasks[task]


def split(harness: Harness) -> None:
    harness.handle(e.StripsGiven(WHOLE, 1, a_part()), 1)


def test_the_worker_is_asked_once(harness: Harness) -> None:
    state = harness.scheduler.state
    state.split(WHOLE, "cpu", 0.5)

    asked = [action for action in state.actions if isinstance(action, a.Split)]
    assert asked == [a.Split(WHOLE, 1, 0.75)]


def test_only_parallel_tasks_are_split() -> None:
    harness = Harness([a_resource("gpu")], SECONDS)
    harness.handle(a_task(WHOLE))

    with pytest.raises(BugError, match="task 1 cannot be split"):
        harness.scheduler.state.split(WHOLE, "gpu0", 0.5)


def test_the_part_starts_when_the_strips_are_given(harness: Harness) -> None:
    actions = harness.handle(e.StripsGiven(WHOLE, 1, a_part()), 1)

    assert actions == [
        a.Record(PART, State.QUEUED, "submitted", "cpu"),
        a.Record(WHOLE, State.RUNNING, "split", "gpu0"),
        a.Run(PART, 2, "cpu"),
        a.Record(PART, State.RUNNING, "dispatched", "cpu"),
    ]
    assert record(harness, WHOLE).left == 0.75
    assert record(harness, PART).left == 0.25
    assert harness.scheduler.system.left(record(harness, PART)) == 0.25


def test_nothing_is_split_where_no_strips_were_left(harness: Harness) -> None:
    assert harness.handle(e.StripsGiven(WHOLE, 1), 1) == []
    assert record(harness, WHOLE).left == 1.0
    assert record(harness, WHOLE).splits_for is None


@pytest.mark.parametrize("wish", [e.TaskHeld(WHOLE), e.TaskCancelled(WHOLE)])
def test_strips_given_by_a_task_that_is_to_leave_stay_its_own(
    harness: Harness, wish: e.Event
) -> None:
    harness.handle(wish)

    harness.handle(e.StripsGiven(WHOLE, 1, a_part()), 1)

    assert record(harness, WHOLE).limit == 1.0
    assert PART not in harness.scheduler.system.tasks


def test_the_task_waits_for_its_part_and_merges(harness: Harness) -> None:
    split(harness)

    yielded = harness.handle(e.TaskYielded(WHOLE, 1, 0.75), 8)
    finished = harness.handle(e.TaskFinished(PART, 2), 9)
    harness.handle(e.TaskFinished(WHOLE, 1), 10)

    assert yielded == [a.Record(WHOLE, State.WAITING, "waiting")]
    assert a.Run(WHOLE, 1, "gpu0") in finished
    assert not harness.scheduler.system.tasks


def test_a_task_that_waits_for_its_part_says_so(harness: Harness) -> None:
    split(harness)
    harness.handle(e.TaskYielded(WHOLE, 1, 0.75), 8)

    why = explain(harness.scheduler.system, record(harness, WHOLE)).why

    assert why == "waits for its parts: 2"


def test_the_task_goes_on_at_once_if_its_part_is_done(harness: Harness) -> None:
    split(harness)
    harness.handle(e.TaskFinished(PART, 2), 7)

    assert a.Run(WHOLE, 1, "gpu0") in harness.handle(e.TaskYielded(WHOLE, 1, 0.75), 8)


def test_a_lost_part_starts_again_where_it_started(harness: Harness) -> None:
    split(harness)
    harness.handle(e.StripsDone(PART, 2, 0.9), 2)

    harness.handle(e.WorkerLost(PART, 2, "killed"), 3)

    assert record(harness, PART).state is State.QUEUED
    assert record(harness, PART).progress == 0.75


def test_a_lost_worker_of_a_waiting_task_has_its_strips_done_again(
    harness: Harness,
) -> None:
    split(harness)
    harness.handle(e.SnapshotTaken(WHOLE, 1, 0.5), 4)
    harness.handle(e.TaskYielded(WHOLE, 1, 0.75), 8)

    actions = harness.handle(e.WorkerLost(WHOLE, 1, "killed"), 9)

    assert a.Run(WHOLE, 3, "gpu0") in actions
    assert record(harness, WHOLE).left == 0.25


@pytest.mark.parametrize("task", [WHOLE, PART])
def test_all_are_cancelled_together(harness: Harness, task: TaskId) -> None:
    split(harness)

    actions = harness.handle(e.TaskCancelled(task), 2)
    harness.handle_all(e.TaskAborted(WHOLE, 1), e.TaskAborted(PART, 2), at=3)

    assert {action for action in actions if isinstance(action, a.Abort)} == {
        a.Abort(WHOLE, 1),
        a.Abort(PART, 2),
    }
    assert not harness.scheduler.system.tasks


def test_all_are_held_and_released_together(harness: Harness) -> None:
    split(harness)
    harness.handle(e.TaskHeld(WHOLE), 2)
    harness.handle(e.TaskYielded(WHOLE, 1, 0.75), 3)
    harness.handle(e.TaskYielded(PART, 2, 0.9), 3)
    held = [record(harness, task).state for task in (WHOLE, PART)]

    harness.handle(e.TaskReleased(WHOLE), 4)

    assert held == [State.HELD, State.HELD]
    assert record(harness, WHOLE).state is State.WAITING
    assert record(harness, PART).state is State.RUNNING


def test_a_task_fails_with_its_part(harness: Harness) -> None:
    split(harness)

    actions = harness.handle(e.TaskFailed(PART, 2, "out of range"), 2)

    reason = "its part ended as failed: out of range"
    assert a.Record(WHOLE, State.FAILED, "failed", "gpu0", reason) in actions
    assert a.Abort(WHOLE, 1) in actions
    assert not harness.scheduler.system.tasks


def test_after_a_restart_the_task_waits_for_its_part_again() -> None:
    harness = Harness([a_resource("cpu"), a_resource("gpu")], SECONDS)
    waits = TaskRuntime(
        State.WAITING, None, 1, bound=True, progress=0.75, limit=0.75, parts=(PART,)
    )
    runs = ran_on("cpu", 2, 0.9)
    runs.kept = 0.75

    harness.restart((a_part(), runs), (a_task(WHOLE, parallel=True), waits))

    assert record(harness, WHOLE).state is State.WAITING
    actions = harness.handle(e.TaskFinished(PART, 2), 1)
    assert any(isinstance(action, a.Run) for action in actions)


def test_a_part_without_its_task_is_cancelled_after_a_restart() -> None:
    harness = Harness([a_resource("cpu")], SECONDS)

    harness.restart((a_part(), TaskRuntime(progress=0.75, kept=0.75)))

    assert not harness.scheduler.system.tasks


@pytest.mark.parametrize(
    ("granule", "asked"), [(0.25, [a.Split(WHOLE, 1, 0.75)]), (1 / 3, []), (1.0, [])]
)
def test_parts_begin_where_the_worker_said_that_they_can(
    granule: float, asked: list[a.Action]
) -> None:
    # at 1 s, 22 % of the work would keep the CPU busy for as long as the rest the GPU
    harness = Harness(
        [a_resource("cpu"), a_resource("gpu")], SECONDS, "finish-time", caution=0
    )
    harness.handle(a_task(WHOLE, kinds={"cpu", "gpu"}, parallel=True))
    harness.handle(e.TimerFired(), 0.1)
    assert record(harness, WHOLE).splits_for == "cpu"

    assert harness.handle(e.StripsGiven(WHOLE, 1, granule=granule), 1) == asked
    assert record(harness, WHOLE).granule == granule


def test_a_part_is_split_where_its_task_can_be(harness: Harness) -> None:
    harness.handle(e.StripsGiven(WHOLE, 1, a_part(), granule=0.25), 1)

    assert record(harness, PART).granule == 0.25


def test_late_parts_are_dropped_with_their_task() -> None:
    """The policy drops all that is late: with the first, those end that it names next."""
    harness = Harness([a_resource("cpu"), a_resource("gpu")], SECONDS, policy="mmu")
    due: dict[str, Any] = {
        "kinds": {"cpu", "gpu"},
        "deadline": 40 * SECOND,
        "parallel": True,
    }
    harness.handle(a_task(WHOLE, **due))
    harness.scheduler.state.split(WHOLE, "cpu", 0.75)
    part = a_task(PART, part_of=WHOLE, start=0.75, **due)
    harness.handle(e.StripsGiven(WHOLE, 1, part), 1)
    for resource in ("cpu", "gpu0"):
        harness.handle(e.ResourceDrained(resource), 2)
    harness.handle(e.TaskYielded(WHOLE, 1, 0.5), 3)
    harness.handle(e.TaskYielded(PART, 2, 0.8), 3)

    actions = harness.handle(e.TimerFired(), 50)

    ended = [each for each in actions if isinstance(each, a.Record)]
    assert [(each.task, each.state) for each in ended] == [
        (WHOLE, State.DROPPED),
        (PART, State.CANCELLED),
    ]
    assert not harness.scheduler.system.tasks
