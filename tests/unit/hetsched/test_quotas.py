"""Quotas: how much of the node one user's tasks take, and whose turn it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from builders import Harness, a_resource, a_task, ran_on
from hetsched import events as e
from hetsched.actions import Abort, Preempt, Run, SetTimer
from hetsched.ids import TaskId
from hetsched.limits import Limits, Quota, Quotas
from hetsched.planning.explain import explain
from hetsched.policy import Drop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hetsched.actions import Action
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.policy import Decision
    from hetsched.system import System

ANN, BOB = 1000, 2000
CPU = a_resource("cpu", slots=4)
GPU = a_resource("gpu")


def a_node(quotas: Quotas, slots: int = 4, policy: str = "affinity") -> Harness:
    resources = [a_resource("cpu", slots=slots), GPU]
    seconds = {"any": {"cpu": 1.0, "gpu0": 9.0}, "to-gpu": {"cpu": 9.0, "gpu0": 1.0}}
    return Harness(resources, seconds, policy, Limits(stage=0, quotas=quotas))


def started(actions: Iterable[Action]) -> list[int]:
    return [each.task for each in actions if isinstance(each, Run)]


def submit(node: Harness, *owners: int, first: int = 1, **fields: Any) -> list[int]:
    """Submit a task of each owner, all at once; return those that start."""
    tasks = [a_task(first + n, owner=o, **fields) for n, o in enumerate(owners)]
    return started(node.handle_all(*tasks))


def finish(node: Harness, task: int, at: float = 0.0) -> list[int]:
    record = node.scheduler.system.tasks[TaskId(task)]
    return started(node.handle(e.TaskFinished(record.id, record.epoch), at))


def test_tasks_beyond_the_quota_wait_for_others_of_their_owner() -> None:
    node = a_node(Quotas(Quota(running=2)))

    assert sorted(submit(node, ANN, ANN, ANN, ANN, BOB)) == [1, 2, 5]
    assert finish(node, 5) == []
    assert finish(node, 1) == [3]
    assert finish(node, 3) == [4]


def test_a_single_user_may_have_a_quota_of_his_own() -> None:
    node = a_node(Quotas(Quota(running=1), {BOB: Quota(running=3)}))

    assert submit(node, ANN, ANN, BOB, BOB, BOB, BOB) == [1, 3, 4, 5]


def test_a_quota_of_none_lets_nothing_run() -> None:
    node = a_node(Quotas(single={ANN: Quota(running=0)}))

    assert submit(node, ANN, BOB) == [2]


def test_the_highest_priority_comes_in_first() -> None:
    node = a_node(Quotas(Quota(running=1)))
    submit(node, ANN, ANN)
    submit(node, ANN, first=3, priority=5)

    assert finish(node, 1) == [3]


def test_a_task_that_fails_makes_room() -> None:
    node = a_node(Quotas(Quota(running=1)))
    submit(node, ANN, ANN)

    assert started(node.handle(e.TaskFailed(TaskId(1), 1, "failed"))) == [2]


def test_a_task_that_begins_again_stays_in() -> None:
    node = a_node(Quotas(Quota(running=1)))
    submit(node, ANN, ANN)

    assert started(node.handle(e.WorkerLost(TaskId(1), 1, "killed"))) == [1]


def test_a_held_task_leaves_room_and_waits_for_it_again() -> None:
    node = a_node(Quotas(Quota(running=1)))
    submit(node, ANN, ANN)
    node.handle(e.TaskHeld(TaskId(1)))

    assert started(node.handle(e.TaskYielded(TaskId(1), 1, 0.5))) == [2]
    assert started(node.handle(e.TaskReleased(TaskId(1)))) == []
    assert finish(node, 2) == [1]


def test_a_task_outside_can_be_cancelled_held_and_moved() -> None:
    node = a_node(Quotas(Quota(running=1)))
    submit(node, ANN, ANN, ANN, ANN)

    node.handle(e.TaskCancelled(TaskId(2)))
    node.handle(e.TaskHeld(TaskId(3)))
    node.handle(e.TaskMoved(TaskId(4), "gpu0"))

    assert list(node.scheduler.system.tasks) == [1, 3, 4]
    (run,) = [
        each
        for each in node.handle(e.TaskFinished(TaskId(1), 1))
        if isinstance(each, Run)
    ]
    assert (run.task, run.resource) == (4, "gpu0")


def test_a_task_no_resource_can_run_keeps_no_other_out() -> None:
    node = a_node(Quotas(Quota(running=1)))
    node.handle(e.ResourceDrained("gpu0"))

    assert submit(node, ANN, kinds={"gpu"}) == []
    assert submit(node, ANN, ANN, first=2) == [2]
    assert started(node.handle(e.ResourceReturned("gpu0"))) == []
    assert finish(node, 2) == [1]


@pytest.mark.parametrize(
    ("gone", "back"),
    [
        (e.ResourceLost("gpu0"), e.ResourceRecovered("gpu0")),
        (e.SlotsBlocked("gpu0", 1), e.SlotsBlocked("gpu0", 0)),
    ],
)
def test_a_task_comes_in_when_its_resource_works_again(
    gone: e.Event, back: e.Event
) -> None:
    node = a_node(Quotas(Quota(running=1)))
    node.handle(gone)

    assert submit(node, ANN, kinds={"gpu"}) == []
    assert started(node.handle(back)) == [1]


def test_a_task_whose_resource_is_drained_makes_room() -> None:
    node = a_node(Quotas(Quota(running=1), {BOB: Quota()}))
    submit(node, BOB, kinds={"gpu"})
    submit(node, ANN, first=2, kinds={"gpu"})
    submit(node, ANN, first=3)

    assert started(node.handle(e.ResourceDrained("gpu0"))) == [3]


def test_other_quotas_hold_from_then_on() -> None:
    node = a_node(Quotas())
    submit(node, ANN, ANN, ANN)

    lowered = node.handle(e.QuotasChanged(Quotas(Quota(running=2))))
    more = submit(node, ANN, ANN, first=4)
    raised = node.handle(e.QuotasChanged(Quotas(Quota(running=4))))

    assert [each for each in lowered if isinstance(each, Preempt | Abort)] == []
    assert more == []
    assert started(raised) == [4]
    assert finish(node, 1) == [5]


def test_a_restored_task_counts() -> None:
    node = a_node(Quotas(Quota(running=1)))
    node.restart((a_task(1, owner=ANN), ran_on("cpu", 7)))

    assert submit(node, ANN, first=2) == []
    assert started(node.handle(e.TaskFinished(TaskId(1), 7))) == [2]


class DropsPlaced:
    """Places tasks on the CPU, and gives up the first that waits there."""

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        for task in list(system.unplaced):
            yield Drop(task.id, "no")


def test_a_policy_that_gives_a_task_up_is_told_of_the_next() -> None:
    node = a_node(Quotas(Quota(running=1)))
    node.change_policy(DropsPlaced())

    actions = node.handle_all(a_task(1, owner=ANN), a_task(2, owner=ANN))

    assert isinstance(actions[-1], SetTimer)
    node.handle(e.TimerFired(), at=1.0)
    assert list(node.scheduler.system.tasks) == []


def test_users_are_told_why_a_task_is_kept_outside() -> None:
    node = a_node(Quotas(Quota(running=1)))
    submit(node, ANN, ANN)
    system = node.scheduler.system

    why = explain(system, system.tasks[TaskId(2)]).why

    assert why == "waits until other tasks of its owner end: they use the whole quota"


def test_stopping_takes_every_task_to_a_checkpoint_and_starts_none() -> None:
    node = a_node(Quotas(), slots=1)
    submit(node, ANN, BOB)
    submit(node, ANN, first=3, kinds={"gpu"})

    asked = node.handle(e.NodeStopping())

    assert [each for each in asked if isinstance(each, Preempt)] == [
        Preempt(TaskId(1), 1),
        Preempt(TaskId(3), 2),
    ]
    assert started(node.handle(e.TaskYielded(TaskId(1), 1, 0.5))) == []
    assert started(node.handle(e.TaskYielded(TaskId(3), 2, 0.5))) == []


# ---------------------------------------------------------------- whose turn it is


def order(node: Harness, *tasks: int) -> list[int]:
    """Let these end, each after a second, and then what follows; return what starts."""
    begun: list[int] = []
    waiting = list(tasks)
    now = 0.0
    while waiting:
        now += 1.0
        follows = finish(node, waiting.pop(0), now)
        begun += follows
        waiting += follows
    return begun


def test_alike_tasks_of_two_users_take_turns() -> None:
    node = a_node(Quotas(), slots=1)
    submit(node, ANN, ANN, ANN, ANN)
    submit(node, BOB, BOB, first=5)

    assert order(node, 1) == [5, 2, 6, 3, 4]


def test_a_share_of_three_gets_three_turns_of_four() -> None:
    node = a_node(Quotas(single={BOB: Quota(share=3.0)}), slots=1)
    submit(node, *[ANN] * 9)
    submit(node, *[BOB] * 9, first=10)

    first = [1, *order(node, 1)][:8]

    assert len([task for task in first if task >= 10]) == 6
