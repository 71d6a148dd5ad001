"""Checks of the decisions of other packages' policies.

A wrong one must fail the policy that made it, before anything is changed or stored. So must
a change to the queues and tables that a policy reads: `invariants` would find it, and could not
name who made it.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import msgspec

from hetsched.policy import Drop, Place, Preempt, Split, StateChangedError, Wake
from libtask.errors import BugError
from libtask.wording import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.events import Event
    from hetsched.policy import Decision, Policy
    from hetsched.system import System

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


END: Any = object()
"""Returned in place of a decision when there are no more."""


def checked(policy: Policy, event: Event, system: System) -> Iterator[Decision]:
    """Ask another package's policy; yield its decisions after checking each.

    Raises:
        BugError: `react` returned something else, named what is not there, or does not end.
        StateChangedError: it changed a queue or a table of `system`.

    """
    most = DECISIONS_BESIDE + DECISIONS_OF_A_TASK * len(system.tasks)
    before = _sizes(system)
    returned: Any
    try:
        returned = policy.react(event, system, system.now)
    finally:
        _demand_unchanged(before, system)
    if not hasattr(returned, "__iter__"):
        raise BugError(f"react returned {shown(returned)}; expected decisions")
    decisions = iter(returned)
    for _ in range(most):
        before = _sizes(system)
        try:
            decision = next(decisions, END)
        finally:
            _demand_unchanged(before, system)
        if decision is END:
            return
        yield _checked(decision, system)
    if next(decisions, END) is not END:
        raise BugError(f"react made more than {most} decisions at once")


def _sizes(system: System) -> dict[str, int]:
    """Return the sizes of what a policy may be tempted to change, by the names it has there."""
    sizes = {
        "tasks": len(system.tasks),
        "unplaced": len(system.unplaced),
        "resources": len(system.resources),
        "states": len(system.states),
        "departing": len(system.departing),
    }
    for name, state in system.states.items():
        sizes[f"queue({name!r})"] = len(state.queue)
        sizes[f"running({name!r})"] = len(state.running)
    return sizes


def _demand_unchanged(before: dict[str, int], system: System) -> None:
    after = _sizes(system)
    if after == before:
        return
    where = next(name for name, size in before.items() if after.get(name) != size)
    raise StateChangedError(f"react changed system.{where}, which it may only read")


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
