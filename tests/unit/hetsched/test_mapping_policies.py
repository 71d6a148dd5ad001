"""Policies that go by deadlines: which events they heed, and which they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import Harness, a_resource, a_task
from hetsched import actions as a
from hetsched import events as e
from hetsched.decision_checks import SOONEST_WAKE
from hetsched.ids import TaskId
from hetsched.policies import make_policy
from hetsched.policy import Wake
from hetsched.system import SECOND
from hetsched.tasks import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.events import Event
    from hetsched.policy import Decision
    from hetsched.system import System

LATE = 10**15
SECONDS = {"any": {"cpu": 1.0, "gpu0": 4.0}}


@pytest.mark.parametrize("policy", ["mm", "msd", "mmu", "elare", "felare"])
def test_tasks_that_arrive_together_are_mapped_as_if_one_by_one(policy: str) -> None:
    kept: dict[str, list[tuple[int, str | None]]] = {}
    for way in ("together", "one by one"):
        node = Harness(
            [a_resource("cpu"), a_resource("gpu")], SECONDS, policy, places=2
        )
        tasks = [a_task(number, deadline=LATE) for number in range(1, 9)]
        if way == "together":
            node.handle_all(*tasks)
        else:
            for task in tasks:
                node.handle(task)
        known = node.scheduler.system.tasks
        kept[way] = [(each.id, each.resource) for each in known.values()]

    assert kept["together"] == kept["one by one"]
    # a slot and two places each
    places = [resource for _, resource in kept["together"]]
    assert (places.count("cpu"), places.count("gpu0")) == (3, 3)


def test_fair_deadline_ignores_the_yield_of_a_worker_that_has_lost_the_task() -> None:
    node = Harness([a_resource("cpu")], {"any": {"cpu": 1.0}})
    node.handle(a_task(1, deadline=SECOND))
    task = node.scheduler.system.tasks[TaskId(1)]
    lost = task.epoch
    node.change_policy(make_policy("fair-deadline", {}), at=0.1)
    node.handle(e.TaskAborted(TaskId(1), lost), at=0.1)
    assert task.state is State.QUEUED, "it may hardly make its deadline, and waits"

    node.handle(e.TaskYielded(TaskId(1), lost, 0.75), at=0.2)

    assert task.state is State.QUEUED


class WakesInThePast:
    """Wakes at an instant that has passed, as a deadline may have."""

    def react(self, event: Event, system: System, now: int) -> Iterator[Decision]:
        yield Wake(now - 5)


@pytest.mark.parametrize(
    ("module", "soonest"), [("hetsched.policies.some", 1), ("some", SOONEST_WAKE)]
)
def test_a_wake_in_the_past_is_due_at_once(
    monkeypatch: pytest.MonkeyPatch, module: str, soonest: int
) -> None:
    monkeypatch.setattr(WakesInThePast, "__module__", module)
    node = Harness([a_resource("cpu")], {"any": {"cpu": 1.0}})
    node.change_policy(WakesInThePast(), at=1.0)

    actions = node.handle(a_task(1), at=2.0)

    assert a.SetTimer(2 * SECOND + soonest) in actions
