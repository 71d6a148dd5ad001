"""Tasks that begin at an instant that their owner asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import a_task
from hetsched import events as e
from hetsched.actions import Record
from hetsched.planning.explain import explain
from hetsched.policies import POLICIES
from hetsched.system import SECOND
from hetsched.tasks import State
from unit.hetsched.scheduler.expected_actions import CPU, ONE, TWO, ran

if TYPE_CHECKING:
    from builders import Start

AT_5 = 5 * SECOND


@pytest.mark.parametrize("policy", POLICIES)
def test_a_task_begins_at_its_instant_under_every_policy(
    a_scheduler: Start, policy: str
) -> None:
    node = a_scheduler([CPU], {"any": {"cpu": 1.0}}, policy)

    waits = node.handle(a_task(1, begin=AT_5), at=1.0)
    early = node.handle(e.BeginningDue(), at=4.9)
    node.handle(e.BeginningDue(), at=5.0)
    while node.scheduler.system.tasks[ONE].state is not State.RUNNING:
        node.handle(e.TimerFired(), at=node.scheduler.system.now / SECOND + 10)

    assert waits == [Record(ONE, State.WAITING, "submitted")]
    assert early == []


def test_others_run_before_it(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])

    node.handle(a_task(1, begin=AT_5))

    assert node.handle(a_task(2))[1:] == ran(TWO, 1, "cpu")
    assert node.scheduler.next_beginning() == AT_5


def test_a_begin_in_the_past_means_now(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])

    actions = node.handle(a_task(1, begin=AT_5), at=6.0)

    assert actions[1:] == ran(ONE, 1, "cpu")
    assert node.scheduler.next_beginning() is None


def test_it_begins_at_the_later_of_its_instant_and_the_end_of_others(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))
    node.handle(a_task(2, after=[1], begin=AT_5))

    node.handle(e.TaskFinished(ONE, 1), at=2.0)
    between = node.scheduler.system.tasks[TWO].state
    runs = node.handle(e.BeginningDue(), at=5.0)

    assert between is State.WAITING
    assert runs == [Record(TWO, State.QUEUED, "queued"), *ran(TWO, 2, "cpu")]


@pytest.mark.parametrize(("released", "state"), [(4.0, "waiting"), (6.0, "running")])
def test_a_hold_does_not_change_its_instant(
    a_scheduler: Start, released: float, state: str
) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, hold=True, begin=AT_5))

    node.handle(e.TaskReleased(ONE), at=released)

    assert node.scheduler.system.tasks[ONE].state == state


def test_a_task_is_run_again_after_its_pause_and_not_at_its_instant(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, begin=AT_5, retries=1))
    node.handle(e.BeginningDue(), at=5.0)

    node.handle(e.TaskFailed(ONE, 1, "no"), at=7.0)
    node.handle(e.TimeStepped(100 * SECOND), at=7.5)

    assert node.scheduler.next_beginning() == 8 * SECOND


@pytest.mark.parametrize(("later", "due"), [(-2, 3), (10, 15)])
def test_a_jump_of_the_time_of_day_moves_its_instant(
    a_scheduler: Start, later: int, due: int
) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, begin=AT_5))

    node.handle(e.TimeStepped(later * SECOND), at=1.0)

    assert node.scheduler.next_beginning() == due * SECOND


def test_a_jump_past_its_instant_lets_it_begin(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, begin=AT_5))

    runs = node.handle(e.TimeStepped(-10 * SECOND), at=1.0)

    assert runs == [Record(ONE, State.QUEUED, "queued"), *ran(ONE, 1, "cpu")]


def test_a_jump_moves_the_instant_of_a_held_task(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, hold=True, begin=AT_5))

    node.handle(e.TimeStepped(-3 * SECOND), at=1.0)
    node.handle(e.TaskReleased(ONE), at=3.0)

    assert node.scheduler.system.tasks[ONE].state is State.RUNNING


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(4, "4 s"), (119, "119 s"), (150, "2 min"), (18_394, "5 h 07 min")],
)
def test_the_explanation_tells_when_it_begins(
    a_scheduler: Start, seconds: int, told: str
) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1, begin=(1 + seconds) * SECOND), at=1.0)
    system = node.scheduler.system

    why = explain(system, system.tasks[ONE]).why
    assert why == f"begins in {told}, as its owner asked"
