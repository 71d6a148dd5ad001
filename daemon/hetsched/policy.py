"""What a policy is: one method that turns an event into decisions.

A policy states what it wants; the scheduler works out what to change. Decisions are
applied one by one as they are yielded, so that `react` written as a generator sees the
system as its own earlier decisions have left it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hetsched.events import Event
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.system import Objective, System

FRONT = -1.0
"""Rank of a task that goes to the front of its run queue."""


class Place(msgspec.Struct, frozen=True):
    """Put a waiting task into the run queue of a resource; lower ranks go first.

    `rule` tells users why; it decides nothing.
    """

    task: TaskId
    resource: str
    rank: float = 0.0
    rule: str = ""


class Preempt(msgspec.Struct, frozen=True):
    """Stop a running task at its next checkpoint, to wait first in `destination`'s queue.

    Without a destination the policy places it when it has yielded. With `makes_way` its
    slot is meant for the task that waits first there, which no other resource takes then.
    """

    task: TaskId
    destination: str | None = None
    rule: str = ""
    makes_way: bool = False


class Drop(msgspec.Struct, frozen=True):
    """Give a waiting task up, for a reason that its owner sees."""

    task: TaskId
    reason: str


class Wake(msgspec.Struct, frozen=True):
    """Call `react` with `TimerFired` at this instant."""

    at: Nanoseconds


def objective_of(policy: Policy) -> Objective:
    """Return what a policy wants affinity to be measured by."""
    objective: Objective = getattr(policy, "objective", "performance")
    return objective


def reacts_to_each(policy: Policy) -> bool:
    """Return whether a policy decides once for each of several like events of an instant."""
    return bool(getattr(policy, "each_event", False))


def arrival_rule_of(policy: Policy) -> str:
    """Return the rule by which tasks that arrive go at once where they fit best.

    Empty: the policy is to see each of them before it waits for a resource.
    """
    rule: str = getattr(policy, "arrival_rule", "")
    return rule


Decision: TypeAlias = Place | Preempt | Drop | Wake


class Policy(Protocol):
    """Decides which task goes where, and when one is preempted, moved or dropped.

    One with a parameter `objective` has affinity measured by that. One with `each_event`
    set is called for each of several events of one type at one instant, as long as it
    decides something; any other once for them, with the last. `TaskYielded` is told of
    each task. One with an `arrival_rule` would place each task that arrives where its
    affinity is highest, with that rule, before anything else: the scheduler does it at once.
    """

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterable[Decision]:
        """Decide after `event` has been taken into `system`.

        `system` is read-only.
        """
        ...
