"""The interface of policies: one method that turns an event into decisions.

A policy states what it wants; the scheduler works out what to change. Decisions are
applied one by one as they are yielded, so that a `react` written as a generator sees the
effects of its own earlier decisions. One for a task that an earlier decision of the same call
has ended changes nothing: the parts of a task end with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import msgspec

from libtask.errors import BugError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hetsched.events import Event
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.system import Objective, System

FRONT = -1.0
"""Rank of a task that goes to the front of its run queue."""


class StateChangedError(BugError):
    """A policy of another package changed what it may only read: the state is lost.

    The shell has to make it again from what it has stored.
    """


class Place(msgspec.Struct, frozen=True):
    """Put a waiting task into the run queue of a resource; lower ranks go first.

    `rule` tells users the reason; it has no effect on scheduling.
    """

    task: TaskId
    resource: str
    rank: float = 0.0
    rule: str = ""


class Preempt(msgspec.Struct, frozen=True):
    """Stop a running task at its next checkpoint; it then waits first for `destination`.

    Without a destination the policy places it when it has yielded. With `makes_way` its
    slot is for the task that waits first there, which other resources then do not take.
    """

    task: TaskId
    destination: str | None = None
    rule: str = ""
    makes_way: bool = False


class Split(msgspec.Struct, frozen=True):
    """Let a running parallel task stop at a share of its work, the rest go to a resource.

    The rest becomes a part, a task of its own, when the worker has confirmed the limit.
    """

    task: TaskId
    resource: str
    limit: float
    rule: str = ""


class Drop(msgspec.Struct, frozen=True):
    """End a waiting task as dropped, for a reason that its owner sees."""

    task: TaskId
    reason: str


class Wake(msgspec.Struct, frozen=True):
    """Call `react` with `TimerFired` at this instant; at once if it is past."""

    at: Nanoseconds


def objective_of(policy: Policy) -> Objective:
    """Return the objective by which a policy wants affinity to be measured."""
    objective: Objective = getattr(policy, "objective", "performance")
    return objective


def reacts_to_each(policy: Policy) -> bool:
    """Return whether a policy is asked with each event of a type at one instant."""
    return bool(getattr(policy, "each_event", False))


def uses_belief(policy: Policy) -> bool:
    """Return whether a policy asks for the belief about other programs' load."""
    return bool(getattr(policy, "uses_belief", False))


def arrival_rule_of(policy: Policy) -> str:
    """Return the name of the rule that queues new tasks where they fit best.

    Empty: the policy itself places each new task.
    """
    rule: str = getattr(policy, "arrival_rule", "")
    return rule


Decision: TypeAlias = Place | Preempt | Split | Drop | Wake


class Policy(Protocol):
    """Decides which task runs where, and when one is preempted, moved or dropped.

    Optional attributes:
        objective: what affinity is measured by.
        each_event: if true, `react` is called with each of several events of one type at
            one instant, until it decides nothing; otherwise once, with the last. It is
            always called with each `TaskYielded`.
        arrival_rule: name of a rule. The scheduler then queues each new task where its
            affinity is highest, under that name, before it asks the policy.

    """

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterable[Decision]:
        """Decide after `event` was applied to `system`, which is read-only."""
        ...


@runtime_checkable
class ReadsFiles(Protocol):
    """A policy that needs the contents of files; the shell reads them."""

    def read_files(self, read: Callable[[str], bytes]) -> None:
        """Take files in. Called once, before the first event.

        Raises:
            InputError: one cannot be read, or is not what the policy needs.

        """
        ...


def is_foreign(policy: Policy) -> bool:
    """Return whether a policy comes from another package."""
    return type(policy).__module__.partition(".")[0] != __name__.partition(".")[0]
