"""Arrays of which a limited number of tasks runs at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from builders import a_resource, a_task, ran_on
from hetsched import events as e
from hetsched.actions import Record, Run
from hetsched.ids import TaskId
from hetsched.limits import Limits, Quota, Quotas
from hetsched.planning.explain import explain
from hetsched.policies import POLICIES
from hetsched.system import SECOND
from hetsched.tasks import State
from unit.hetsched.scheduler.expected_actions import ONE, TWO

if TYPE_CHECKING:
    from builders import Harness, Start
    from hetsched.actions import Action
    from hetsched.events import TaskSubmitted

WIDE = a_resource("cpu", slots=8)


def a_member(task: int, at_once: int = 2, **fields: Any) -> TaskSubmitted:
    return a_task(task, array="study", at_once=at_once, **fields)


def _running(node: Harness) -> list[int]:
    tasks = node.scheduler.system.tasks.values()
    return [task.id for task in tasks if task.state is State.RUNNING]


def _runs(actions: list[Action]) -> list[int]:
    return [each.task for each in actions if isinstance(each, Run)]


def _finish(node: Harness, task: int, at: float = 0.0) -> list[Action]:
    epoch = node.scheduler.system.tasks[TaskId(task)].epoch
    return node.handle(e.TaskFinished(TaskId(task), epoch), at)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_runs_more_than_the_limit(a_scheduler: Start, policy: str) -> None:
    node = a_scheduler([WIDE], {"any": {"cpu": 1.0}}, policy)
    ended: list[int] = []
    for number in range(1, 13):
        node.handle(a_member(number, at_once=3))

    while node.scheduler.system.tasks:
        now = node.scheduler.system.now / SECOND + 10
        node.handle(e.TimerFired(), now)
        running = _running(node)
        assert len(running) <= 3
        if running:
            ended.append(running[0])
            _finish(node, running[0], now)

    assert sorted(ended) == list(range(1, 13))


def test_others_fill_the_slots_that_an_array_leaves(a_scheduler: Start) -> None:
    node = a_scheduler([WIDE])
    for number in range(1, 6):
        node.handle(a_member(number))

    node.handle(a_task(6))

    assert _running(node) == [1, 2, 6]


def test_members_follow_in_order_of_priority(a_scheduler: Start) -> None:
    node = a_scheduler([WIDE])
    for number in (1, 2, 3):
        node.handle(a_member(number, at_once=1))
    node.handle(e.TaskAmended(TaskId(3), 1, None))

    first = _runs(_finish(node, 1))
    second = _runs(_finish(node, 3))

    assert (first, second) == ([3], [2])


def test_arrays_of_two_users_with_one_name_are_two(a_scheduler: Start) -> None:
    node = a_scheduler([WIDE])

    for number, owner in enumerate((0, 0, 1, 1), 1):
        node.handle(a_member(number, at_once=1, owner=owner))

    assert _running(node) == [1, 3]


def test_a_member_that_is_held_lets_another_one_run(a_scheduler: Start) -> None:
    node = a_scheduler([WIDE])
    for number in (1, 2):
        node.handle(a_member(number, at_once=1))

    node.handle(e.TaskHeld(ONE))
    runs = node.handle(e.TaskYielded(ONE, 1, 0.5))
    node.handle(e.TaskReleased(ONE))

    assert _runs(runs) == [2]
    assert _running(node) == [2]
    assert _runs(_finish(node, 2)) == [1]


def test_a_member_that_pauses_after_a_failure_lets_another_one_run(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([WIDE])
    for number in (1, 2):
        node.handle(a_member(number, at_once=1, retries=1))

    runs = node.handle(e.TaskFailed(ONE, 1, "no"), at=1.0)
    due = node.handle(e.BeginningDue(), at=2.0)

    assert _runs(runs) == [2]
    assert due == [Record(ONE, State.QUEUED, "queued")]
    assert _runs(_finish(node, 2, at=3.0)) == [1]


def test_members_that_wait_can_be_cancelled(a_scheduler: Start) -> None:
    node = a_scheduler([WIDE])
    for number in (1, 2, 3):
        node.handle(a_member(number, at_once=1))

    for number in (2, 3):
        node.handle(e.TaskCancelled(TaskId(number)))

    assert not node.scheduler.system.arrays
    assert _runs(_finish(node, 1)) == []


def test_a_member_beyond_its_array_uses_none_of_its_owners_quota(
    a_scheduler: Start,
) -> None:
    quotas = Quotas(everybody=Quota(running=2))
    node = a_scheduler([WIDE], limits=Limits(stage=0, quotas=quotas))
    for number in (1, 2, 3):
        node.handle(a_member(number, at_once=1))

    node.handle(a_task(4))
    node.handle(e.QuotasChanged(quotas))

    assert _running(node) == [1, 4]
    assert _runs(_finish(node, 1)) == [2]


def test_tasks_of_a_user_without_a_launcher_keep_their_place_in_the_array(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([WIDE])
    for number in (1, 2):
        node.handle(a_member(number, at_once=1))

    node.handle(e.OwnerUnattended(0))
    ends = _runs(_finish(node, 1))
    again = _runs(node.handle(e.OwnerAttended(0)))

    assert (ends, again) == ([], [2])


def test_a_restart_counts_the_members_that_run(a_scheduler: Start) -> None:
    node = a_scheduler([WIDE])
    running = a_member(3, at_once=1), ran_on("cpu", 7)

    node.restart(running, a_member(1, 1), a_member(2, 1))

    assert _running(node) == [3]
    assert _runs(_finish(node, 3)) == [1]


def test_the_explanation_names_the_limit(a_scheduler: Start) -> None:
    node = a_scheduler([WIDE])
    for number in (1, 2):
        node.handle(a_member(number, at_once=1))
    system = node.scheduler.system

    why = explain(system, system.tasks[TWO]).why

    assert why == "waits for others of its array: at most 1 at once"
