"""An event that concerns many tasks is handled in parts (`Limits.at_once`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import a_resource, a_task
from hetsched import events as e
from hetsched.actions import Record, SetTimer
from hetsched.ids import TaskId
from hetsched.limits import Limits
from hetsched.planning.principles import enqueue_at_best
from hetsched.policies import make_policy
from unit.hetsched.scheduler.expected_actions import ONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from builders import Harness, Start
    from hetsched.actions import Action
    from hetsched.ids import Nanoseconds
    from hetsched.policy import Decision
    from hetsched.system import System

CPU, GPU = a_resource("cpu"), a_resource("gpu")
MANY = 95
AT_ONCE = 10
LIMITS = Limits(stage=0, at_once=AT_ONCE)
TIMES = {"any": {"cpu": 1.0, "gpu0": 2.0}}


def told(actions: list[Action]) -> list[Record]:
    return [each for each in actions if isinstance(each, Record)]


def asked_again(actions: list[Action]) -> bool:
    """Whether the timer is to fire at once."""
    timers = [each.at for each in actions if isinstance(each, SetTimer)]
    return bool(timers) and timers[-1] <= 1


def settle(node: Harness) -> list[int]:
    """Let the timer fire until nothing is left; return the number of records each time."""
    told_of = []
    while node.scheduler.state.unfinished:
        actions = node.handle(e.TimerFired())
        assert asked_again(actions) == node.scheduler.state.unfinished
        told_of.append(len(told(actions)))
        assert len(told_of) < 10 * MANY
    return told_of


def chain(node: Harness, count: int) -> None:
    node.handle(a_task(1, hold=True))
    for number in range(2, count + 1):
        node.handle(a_task(number, after=[number - 1]))


def fan(node: Harness, count: int) -> None:
    node.handle(a_task(1, hold=True))
    for number in range(2, count + 1):
        node.handle(a_task(number, after=[1]))


@pytest.mark.parametrize("grow", [chain, fan])
def test_many_dependents_of_a_cancelled_task_are_cancelled_in_parts(
    a_scheduler: Start, grow: type
) -> None:
    node = a_scheduler([CPU], limits=LIMITS)
    grow(node, MANY)

    first = len(told(node.handle(e.TaskCancelled(ONE))))
    rest = settle(node)

    assert first == AT_ONCE + 1
    assert max(rest) <= AT_ONCE
    assert first + sum(rest) == MANY
    assert not node.scheduler.system.tasks
    assert not node.scheduler.system.ending


def test_many_dependents_of_a_completed_task_are_queued_in_parts(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU], limits=LIMITS)
    fan(node, MANY)
    node.handle(e.TaskReleased(ONE))

    node.handle(e.TaskFinished(ONE, 1))
    assert len(settle(node)) >= MANY // AT_ONCE

    states = {task.state.value for task in node.scheduler.system.tasks.values()}
    assert states == {"running", "queued"}
    assert len(node.scheduler.system.states["cpu"].queue) == MANY - 2


def test_a_dependent_may_be_held_and_released_before_it_is_handled(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU], limits=LIMITS)
    fan(node, MANY)
    node.handle(e.TaskCancelled(ONE))

    last = TaskId(MANY)
    node.handle(e.TaskHeld(last))
    node.handle(e.TaskReleased(last))
    settle(node)

    assert not node.scheduler.system.tasks


@pytest.mark.parametrize(
    "displace",
    [
        lambda node: node.change_policy(make_policy("migration", {})),
        lambda node: node.handle(e.ResourceDrained("cpu")),
        lambda node: node.handle(e.ResourceLost("cpu", "gone")),
    ],
    ids=["another policy", "drained", "lost"],
)
def test_displaced_tasks_are_placed_in_parts(
    a_scheduler: Start, displace: Callable[[Harness], list[Action]]
) -> None:
    node = a_scheduler([CPU, GPU], TIMES, limits=LIMITS)
    for number in range(1, MANY + 1):
        node.handle(a_task(number))
    settle(node)

    first = len(told(displace(node)))
    rest = settle(node)

    assert max([first, *rest]) <= 2 * AT_ONCE
    placed = sum(
        len(s.queue) + len(s.running) for s in node.scheduler.system.states.values()
    )
    assert placed == len(node.scheduler.system.tasks) == MANY


def test_deferred_tasks_are_admitted_in_parts(a_scheduler: Start) -> None:
    node = a_scheduler([CPU], TIMES, limits=LIMITS)
    for number in range(1, MANY + 1):
        node.handle(a_task(number, owner=7))
    settle(node)

    node.handle(e.OwnerUnattended(7))
    settle(node)
    assert len(node.scheduler.system.deferred[7]) == MANY - 1  # one runs
    node.handle(e.OwnerAttended(7))
    settle(node)

    assert not node.scheduler.system.deferred
    assert len(node.scheduler.system.states["cpu"].queue) == MANY - 1


def test_a_task_of_an_owner_without_a_launcher_gets_no_slot(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU], TIMES, limits=LIMITS)
    for number in range(1, MANY + 1):
        node.handle(a_task(number, owner=7))
    settle(node)
    node.handle(e.OwnerUnattended(7))  # most of them have not been kept out yet

    node.handle(e.TaskFinished(ONE, 1))

    assert not node.scheduler.system.states["cpu"].running


class LooksAtEach:
    """Affinity, by a policy that is to see each task before it is placed."""

    def react(
        self, event: e.Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        yield from enqueue_at_best(system)


def test_tasks_submitted_together_are_all_present_before_the_first_is_placed(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU], TIMES, limits=LIMITS)
    node.change_policy(LooksAtEach())

    actions = node.handle_all(*(a_task(number) for number in range(1, MANY + 1)))

    assert len(node.scheduler.system.tasks) == MANY
    assert asked_again(actions)
    settle(node)
    assert len(node.scheduler.system.states["cpu"].queue) == MANY - 1


def test_an_arrival_rule_queues_new_tasks_at_once(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU], TIMES, limits=LIMITS)

    actions = node.handle_all(*(a_task(number) for number in range(1, MANY + 1)))

    assert not asked_again(actions)
    assert [each.resource for each in told(actions)] == ["cpu"] * (MANY + 1)
    assert len(node.scheduler.system.states["cpu"].queue) == MANY - 1


def test_a_start_places_all_tasks_in_one_call(a_scheduler: Start) -> None:
    node = a_scheduler([CPU], TIMES, limits=LIMITS)

    node.restart(*(a_task(number) for number in range(1, MANY + 1)))

    assert not node.scheduler.state.unfinished
    assert len(node.scheduler.system.states["cpu"].queue) == MANY - 1


def test_types_that_no_task_has_any_more_take_up_no_memory(
    a_scheduler: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetsched.system.MOST_TYPES", 5)
    node = a_scheduler([CPU], {}, "felare")
    node.handle(a_task(1, "waits", hold=True))
    tally = node.scheduler.system.tally

    for number in range(2, 22):
        node.handle(a_task(number, f"type {number}"))
        (task,) = node.scheduler.system.states["cpu"].running.values()
        node.handle(e.TaskFinished(task.id, task.epoch))

    newest = {f"type {number}" for number in range(17, 22)}
    assert tally.arrived.keys() == {"waits", *newest}, "the oldest, but no live one"
    assert tally.on_time.keys() == newest
    assert set(tally.rates()) == {"waits", *newest}
