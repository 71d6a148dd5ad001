"""Slots that tasks which wait for others lend to these."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from builders import Harness, a_resource, a_task, ran_on
from hetsched import actions as a
from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.limits import Capacity, Limits, Needs, Quota, Quotas
from hetsched.policies import POLICIES

if TYPE_CHECKING:
    from collections.abc import Iterable

PARENT, CHILD, OTHER = TaskId(1), TaskId(2), TaskId(3)
SECONDS = {"any": {"cpu": 10.0, "gpu0": 5.0}}


def on_cpu(task: int, **fields: Any) -> e.TaskSubmitted:
    return a_task(task, kinds={"cpu"}, **fields)


def started(actions: Iterable[a.Action]) -> list[int]:
    return [each.task for each in actions if isinstance(each, a.Run)]


def waits(harness: Harness, task: int, *others: int) -> list[int]:
    """Let a task wait for others; return those that are started at that."""
    epoch = harness.scheduler.system.tasks[TaskId(task)].epoch
    numbers = tuple(TaskId(other) for other in others)
    event = e.OthersAwaited(TaskId(task), epoch, numbers)
    return started(harness.handle(event))


def ends(harness: Harness, task: int) -> list[int]:
    """Let a task complete; return those that are started at that."""
    epoch = harness.scheduler.system.tasks[TaskId(task)].epoch
    return started(harness.handle(e.TaskFinished(TaskId(task), epoch)))


def slots(harness: Harness, name: str = "cpu") -> tuple[int, int]:
    """Return the slots of a resource and how many tasks run there."""
    state = harness.scheduler.system.states[name]
    return state.slots, len(state.running)


@pytest.fixture
def harness() -> Harness:
    """A task that runs in the only slot, one that it has submitted, and another one before it."""
    harness = Harness([a_resource("cpu")], SECONDS)
    for task in (PARENT, OTHER, CHILD):
        harness.handle(on_cpu(task))
    return harness


def test_a_task_that_waits_for_another_lends_it_its_slot(harness: Harness) -> None:
    assert waits(harness, PARENT, CHILD) == [CHILD]
    assert slots(harness) == (2, 2)

    # the slot is lent to that one only: the first of the queue has to wait
    assert ends(harness, CHILD) == []
    assert slots(harness) == (1, 1)
    assert waits(harness, PARENT) == []
    assert ends(harness, PARENT) == [OTHER]


@pytest.mark.parametrize("policy", POLICIES)
def test_calls_that_wait_for_calls_that_wait_end_under_each_policy(policy: str) -> None:
    harness = Harness([a_resource("cpu", slots=2)], SECONDS, policy)
    numbers = range(1, 61)
    for task in numbers:
        harness.handle(on_cpu(task))

    # the first 20 wait for one each of the next 20, and these for one each of the last
    todo, waiting = set(numbers), set[int]()
    for instant in itertools.count(1):  # some policies decide at intervals
        harness.handle(e.TimerFired(), instant)
        running = harness.scheduler.system.states["cpu"].running
        asks = [t for t in running if t + 20 in todo and t not in waiting]
        if asks:
            waiting.add(asks[0])
            waits(harness, asks[0], asks[0] + 20)
            continue
        assert len([t for t in running if t + 20 not in todo]) <= 2
        for able in [t for t in running if t + 20 not in todo][:1]:
            todo.remove(able)
            ends(harness, able)
        if not todo:
            return
        assert instant < 1000


def test_one_that_waits_for_several_has_one_of_them_run_at_a_time(
    harness: Harness,
) -> None:
    harness.handle(on_cpu(4))

    assert waits(harness, PARENT, CHILD, 4) == [CHILD]
    assert ends(harness, CHILD) == [4]
    assert ends(harness, 4) == []


def test_what_an_awaited_task_comes_after_runs_first(harness: Harness) -> None:
    harness.handle(on_cpu(4))
    harness.handle(on_cpu(5, after=(4,)))

    assert waits(harness, PARENT, 5) == [4]
    assert ends(harness, 4) == [5]


def test_a_task_that_becomes_ready_later_gets_the_slot_then(harness: Harness) -> None:
    harness.handle(on_cpu(4, hold=True))

    assert waits(harness, PARENT, 4) == []
    assert started(harness.handle(e.TaskReleased(TaskId(4)))) == [4]


def test_a_slot_is_lent_where_the_task_waits_only() -> None:
    harness = Harness([a_resource("cpu"), a_resource("gpu")], SECONDS)
    harness.handle(on_cpu(PARENT))
    for task in (CHILD, OTHER):
        harness.handle(a_task(task, kinds={"gpu"}))

    assert waits(harness, PARENT, CHILD, OTHER) == []
    assert slots(harness, "gpu0") == (1, 1)


def test_no_slot_is_lent_while_one_is_free() -> None:
    harness = Harness([a_resource("cpu", slots=2)], SECONDS)
    for task in (PARENT, CHILD):
        harness.handle(on_cpu(task))

    assert waits(harness, PARENT, CHILD) == []
    assert slots(harness) == (2, 2)


def test_the_one_that_goes_on_does_not_wait_for_its_slot(harness: Harness) -> None:
    waits(harness, PARENT, CHILD)

    assert waits(harness, PARENT) == []
    assert slots(harness) == (2, 2)
    assert ends(harness, PARENT) == [OTHER]  # in its slot
    assert ends(harness, CHILD) == []
    assert slots(harness) == (1, 1)


@pytest.mark.parametrize(
    "end",
    [
        lambda epoch: e.TaskFailed(PARENT, epoch, "wrong"),
        lambda epoch: e.WorkerLost(PARENT, epoch, "gone"),
        lambda epoch: e.TaskAborted(PARENT, epoch),
        lambda epoch: e.TaskFinished(PARENT, epoch),
    ],
    ids=["fails", "lost", "aborted", "ends"],
)
def test_what_it_waited_for_runs_on_when_it_is_gone(
    harness: Harness,
    end: object,
) -> None:
    waits(harness, PARENT, CHILD)

    harness.handle(end(1))  # type: ignore[operator]  # an event's constructor

    assert CHILD in harness.scheduler.system.states["cpu"].running
    assert harness.scheduler.system.awaited == {}
    ends(harness, CHILD)
    assert slots(harness) == (1, 1)


def test_how_many_slots_are_lent_is_limited() -> None:
    harness = Harness([a_resource("cpu")], SECONDS, limits=Limits(stage=0, lend=2))
    for task in range(1, 6):
        harness.handle(on_cpu(task))

    assert [waits(harness, task, task + 1) for task in (1, 2, 3)] == [[2], [3], []]
    assert slots(harness) == (3, 3)


def test_one_that_needs_more_than_is_free_does_not_start() -> None:
    limits = Limits(stage=0, capacity=Capacity(cores=2))
    harness = Harness([a_resource("cpu")], SECONDS, limits=limits)
    harness.handle(on_cpu(PARENT, needs=Needs(cores=1)))
    harness.handle(on_cpu(CHILD, needs=Needs(cores=2)))
    harness.handle(on_cpu(OTHER, needs=Needs(cores=1)))

    assert waits(harness, PARENT, CHILD) == []
    assert waits(harness, PARENT, CHILD, OTHER) in ([OTHER], [])


def test_one_beyond_its_owners_quota_does_not_start() -> None:
    quotas = Quotas(Quota(running=1))
    harness = Harness(
        [a_resource("cpu")], SECONDS, limits=Limits(stage=0, quotas=quotas)
    )
    for task in (PARENT, CHILD):
        harness.handle(on_cpu(task))

    assert waits(harness, PARENT, CHILD) == []


def test_a_resource_that_is_drained_lends_nothing(harness: Harness) -> None:
    harness.handle(e.ResourceDrained("cpu"))

    assert waits(harness, PARENT, CHILD) == []
    assert started(harness.handle(e.ResourceReturned("cpu"))) == [CHILD]


def test_ended_and_unknown_tasks_are_not_waited_for(harness: Harness) -> None:
    assert waits(harness, PARENT, 77, PARENT) == []
    assert harness.scheduler.system.awaited == {}


def test_among_very_many_the_one_that_may_run_is_found() -> None:
    harness = Harness([a_resource("cpu"), a_resource("gpu")], SECONDS)
    harness.handle(on_cpu(PARENT))
    for task in range(2, 500):
        harness.handle(a_task(task, kinds={"gpu"}))
    harness.handle(on_cpu(500))

    assert waits(harness, PARENT, *range(2, 501)) == []
    begun: list[int] = []
    calls = 0
    while not begun:
        calls += 1
        begun = started(harness.handle(e.TimerFired(), calls / 1000))
    assert (begun, calls) == ([500], 7)


def test_a_timer_is_not_set_again_when_all_were_looked_at() -> None:
    harness = Harness([a_resource("cpu"), a_resource("gpu")], SECONDS)
    harness.handle(on_cpu(PARENT))
    for task in range(2, 100):
        harness.handle(a_task(task, kinds={"gpu"}))
    waits(harness, PARENT, *range(2, 100))

    timers = [harness.handle(e.TimerFired(), n / 1000) for n in range(1, 4)]

    assert [len(actions) for actions in timers] == [0, 0, 0]


def test_a_lent_slot_outlives_a_restart() -> None:
    harness = Harness([a_resource("cpu")], SECONDS)
    child = ran_on("cpu", 2)
    child.lent = True

    harness.restart((on_cpu(PARENT), ran_on("cpu", 1)), (on_cpu(CHILD), child))

    assert slots(harness) == (2, 2)
    assert ends(harness, CHILD) == []
    assert slots(harness) == (1, 1)


def test_the_unstarted_tasks_of_its_train_are_recalled() -> None:
    seconds = {"any": {"cpu": 0.001}}
    harness = Harness([a_resource("cpu")], seconds, limits=Limits(stage=0, train=4))
    harness.handle_all(*(on_cpu(task) for task in (1, 2, 3)))

    actions = harness.handle(e.OthersAwaited(PARENT, 1, (CHILD,)))

    recalled = [each.task for each in actions if isinstance(each, a.Recall)]
    assert recalled == [2, 3]
    assert started(harness.handle(e.TaskAborted(CHILD, 2))) == [CHILD]
