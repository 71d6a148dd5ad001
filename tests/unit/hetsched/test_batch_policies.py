"""Batch planners as policies: batches, order, and corrections by migration."""

from __future__ import annotations

import pytest

from builders import Harness, a_resource, a_task
from hetsched import actions as a
from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.planning.batch.live import BatchPolicy
from hetsched.planning.batch.planners import PLANNERS, make_planner
from hetsched.policies import POLICIES, make_policy

NAMES = ("sct", "mmi", "mttf-lp", "sjf", "ljf", "cim", "nim", "ncjm")
SECONDS = {
    "long": {"cpu": 8.0, "gpu0": 4.0},
    "short": {"cpu": 1.0, "gpu0": 1.0},
}


def a_node(policy: str, window_s: float, *, correct: bool = True) -> Harness:
    resources = [a_resource("cpu"), a_resource("gpu")]
    return Harness(resources, SECONDS, policy, window_s=window_s, correct=correct)


def runs(actions: list[a.Action]) -> dict[int, str]:
    return {x.task: x.resource for x in actions if isinstance(x, a.Run)}


@pytest.mark.parametrize("policy", NAMES)
def test_a_batch_is_planned_when_its_window_is_over(policy: str) -> None:
    node = a_node(policy, window_s=0.5)

    early = node.handle(a_task(1, "long"), at=1.0)
    more = node.handle(a_task(2, "short"), at=1.2)
    closed = node.handle(e.TimerFired(), at=1.5)

    assert a.SetTimer(1_500_000_000) in early
    assert runs(early + more) == {}
    assert 1 in runs(closed) or 2 in runs(closed)


def test_a_late_timer_does_not_change_the_batch() -> None:
    node = a_node("cim", window_s=0.5, correct=False)
    node.handle(a_task(1, "long"), at=1.0)

    late = node.handle(a_task(2, "short"), at=1.7)

    assert list(runs(late)) == [1]
    assert a.SetTimer(2_200_000_000) in late


def test_what_has_waited_for_longer_than_a_window_is_one_batch() -> None:
    node = a_node("cim", window_s=0.5, correct=False)
    for number in range(1, 7):
        node.handle(a_task(number, "long"), at=float(number))
        node.handle(e.TimerFired(), at=number + 0.5)

    node.handle(e.PolicyChanged(), at=9.0)

    waiting = [t for name in ("cpu", "gpu0") for t in node.scheduler.system.queue(name)]
    assert {task.rule for task in waiting} == {
        f"planned by cim in a batch of {len(waiting)}"
    }


def test_cim_balances_what_sct_piles_up() -> None:
    tasks = [a_task(number, "long") for number in range(1, 4)]
    made = {}
    for policy in ("sct", "cim"):
        node = a_node(policy, window_s=0.0, correct=False)
        node.handle_all(*tasks)
        made[policy] = [
            len(node.scheduler.system.queue(name))
            + len(node.scheduler.system.running(name))
            for name in ("cpu", "gpu0")
        ]

    assert made == {"sct": [0, 3], "cim": [1, 2]}


def test_later_batches_wait_behind_earlier_ones() -> None:
    node = a_node("sct", window_s=0.0, correct=False)
    node.handle_all(*(a_task(number, "long") for number in (1, 2, 3)))
    node.handle(a_task(4, "long"), at=1.0)

    waiting = [task.id for task in node.scheduler.system.queue("gpu0")]

    assert waiting == [2, 3, 4]


def test_an_idle_resource_takes_a_waiting_task() -> None:
    node = a_node("sct", window_s=0.0)
    actions = node.handle_all(*(a_task(number, "long") for number in range(1, 7)))

    assert set(runs(actions).values()) == {"cpu", "gpu0"}


def test_an_idle_resource_takes_a_running_task_that_it_does_sooner() -> None:
    node = a_node("cim", window_s=0.0)
    started = node.handle_all(*(a_task(number, "long") for number in (1, 2, 3)))
    on_cpu = next(t for t, name in runs(started).items() if name == "cpu")
    first, second = (t for t in (1, 2, 3) if t != on_cpu)

    node.handle(_finished(node, first), at=0.4)
    actions = node.handle(_finished(node, second), at=0.8)

    assert [x.task for x in actions if isinstance(x, a.Preempt)] == [on_cpu]
    assert node.scheduler.system.tasks[TaskId(on_cpu)].destination == "gpu0"


def _finished(node: Harness, task: int) -> e.TaskFinished:
    record = node.scheduler.system.tasks[TaskId(task)]
    return e.TaskFinished(record.id, record.epoch)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_policy_has_the_planner_of_its_name(name: str) -> None:
    policy = POLICIES[name]()
    assert isinstance(policy, BatchPolicy)

    planner = make_planner(policy.planner, policy.planner_parameters())

    assert policy.planner == name
    assert type(planner) is PLANNERS[name]


def test_parameters_that_a_batch_policy_adds_go_to_its_planner() -> None:
    policy = make_policy("mttf-lp", {"window_s": 0.5, "solver_seconds": "2.5"})
    assert isinstance(policy, BatchPolicy)

    assert policy.planner_parameters() == {"solver_seconds": 2.5}


@pytest.mark.parametrize("policy", NAMES)
def test_a_task_with_no_work_left_is_not_sent_where_it_cannot_run(policy: str) -> None:
    node = a_node(policy, window_s=0.0)
    node.handle(a_task(1, "long", kinds={"cpu"}))
    node.handle(e.TaskHeld(TaskId(1)), at=1.0)
    node.handle(e.StripsDone(TaskId(1), 1, 1.0, 1.0, 8.0), at=8.0)
    node.handle(e.TaskReleased(TaskId(1)), at=8.1)

    yielded = node.handle(e.TaskYielded(TaskId(1), 1, 1.0), at=8.2)

    assert runs(yielded) == {1: "cpu"}
