"""The interface of policies: one method that turns an event into decisions.

A policy states what it wants; the scheduler works out what to change. Decisions are
applied one by one as they are yielded, so that a `react` written as a generator sees the
effects of its own earlier decisions. One for a task that an earlier decision of the same call
has ended changes nothing: the parts of a task end with it.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from libtask.errors import BugError
from libtask.wording import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hetsched.events import Event
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.system import Objective, System

FRONT = -1.0
"""Rank of a task that goes to the front of its run queue."""


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


# ---------------------------------------------------------------- of other packages

SOONEST_WAKE = 1_000_000
"""Nanoseconds until such a policy is woken at the earliest: it may always ask for now."""
DECISIONS_OF_A_TASK, DECISIONS_BESIDE = 10, 1000
"""Most decisions of one reaction: for each live task, and in addition."""

EXPECTED: dict[str, tuple[type, ...]] = {
    "task": (Integral,),
    "resource": (str,),
    "destination": (str, type(None)),
    "rank": (Real,),
    "limit": (Real,),
    "rule": (str,),
    "reason": (str,),
    "makes_way": (bool,),
    "at": (Integral,),
}
"""Types of the fields of decisions; type checkers of other packages may not have run."""

NAMES: dict[type, str] = {
    Integral: "a whole number",
    Real: "a number",
    str: "a text",
    type(None): "None",
}


def checked(decisions: Any, system: System) -> Iterator[Decision]:
    """Yield the decisions of another package's policy after checking each.

    Raises:
        BugError: `react` returned something else, named what is not there, or does not end.

    """
    if not hasattr(decisions, "__iter__"):
        raise BugError(f"react returned {shown(decisions)}; expected decisions")
    most = DECISIONS_BESIDE + DECISIONS_OF_A_TASK * len(system.tasks)
    for number, decision in enumerate(decisions):
        if number == most:
            raise BugError(f"react made more than {most} decisions at once")
        yield _checked(decision, system)


def _checked(decision: Any, system: System) -> Decision:
    if not isinstance(decision, Place | Preempt | Split | Drop | Wake):
        kinds = "Place, Preempt, Split, Drop or Wake"
        raise BugError(f"react yielded {shown(decision)}; expected {kinds}")
    numbers: dict[str, float] = {}
    for name in decision.__struct_fields__:
        value: Any = getattr(decision, name)
        place = f"{type(decision).__name__}.{name}"
        _check_field(place, value, EXPECTED[name])
        # NumPy's scalars cannot be stored
        if Integral in EXPECTED[name]:
            numbers[name] = int(value)
        elif Real in EXPECTED[name]:
            numbers[name] = float(value)
    for name in ("resource", "destination"):
        where = getattr(decision, name, None)
        if where is not None and where not in system.resources:
            there = ", ".join(system.resources)
            raise BugError(f"there is no resource {shown(where)}; there are: {there}")
    return msgspec.structs.replace(decision, **numbers)


def _check_field(place: str, value: Any, expected: tuple[type, ...]) -> None:
    if not isinstance(value, expected) or value != value:  # noqa: PLR0124  NaN has no order
        names = " or ".join(NAMES.get(each, each.__name__) for each in expected)
        raise BugError(f"{place}: expected {names}, got {shown(value)}")
