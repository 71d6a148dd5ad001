"""Makes what users name, with its parameters, from a table: policies and batch planners.

Both are frozen dataclasses. The fields that `__init__` takes are their parameters.
"""

from __future__ import annotations

import math
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import msgspec

from libtask.complaints import described, quoted
from libtask.errors import InputError, NotFoundError
from libtask.wording import one_line, suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

SHARES = frozenset(
    {"least_affinity", "least_chance", "least_gain", "short_share", "hopeless", "known"}
)
"""Parameters, of whatever has them, that are parts of a whole."""

LEAST = {
    "most_tasks": 1,
    "look": 1,
    "futures": 1,
    "probes": 1,
    "groups": 1,
    "tasks": 0,
    "places": 0,
    "look_ahead": 0,
    "deferrals": -1,
}
"""Least values of parameters that are whole numbers: with fewer, no task would be decided on."""

MOST = 1e15
"""Greatest value of the others: products of two, in nanoseconds, are still numbers."""


def make_named(
    what: str, table: Mapping[str, type[T]], name: str, parameters: dict[str, Any]
) -> T:
    """Make what the table has under `name`; text values are converted.

    Args:
        what: what the table holds, for complaints.

    Raises:
        NotFoundError: the table has none of that name.
        InputError: no such parameter, or a value of the wrong type.

    """
    kind = table.get(name)
    if kind is None:
        offered = f"{suggestion(name, table)}; there are: {', '.join(table)}"
        raise NotFoundError(f"no {what} {name!r}{offered}")
    known = parameter_names(kind)
    for parameter in parameters:
        if parameter not in known:
            raise InputError(
                f"{what} {name} has no parameter {parameter!r}"
                f"{suggestion(parameter, known)}; it has: {', '.join(known) or 'none'}"
            )
    values = {
        parameter: _converted(f"{what} {name}: {parameter}", kind, parameter, value)
        for parameter, value in parameters.items()
    }
    try:
        made = kind(**values)
    except Exception as error:  # those that `__post_init__` raises, too
        kind_of = (
            "" if isinstance(error, TypeError | ValueError) else type(error).__name__
        )
        text = f"{kind_of}: {one_line(error)}" if kind_of else one_line(error)
        raise InputError(f"{what} {name}: {text}") from error
    for parameter in known:
        _demand_sense(
            f"{what} {name}: {parameter}", parameter, getattr(made, parameter)
        )
    return made


def _converted(place: str, kind: type, parameter: str, value: object) -> object:
    """Return a parameter's value as the type that the data class declares."""
    declared = _types_of(kind)[parameter]
    try:
        return msgspec.convert(value, declared, strict=False)
    except ValueError as error:
        expected, got = described(declared), quoted(value)
        raise InputError(f"{place}: expected {expected}, got {got}") from error


@cache
def _types_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _demand_sense(place: str, parameter: str, value: object) -> None:
    """Refuse numbers with which nothing can be decided: no factor or time is below 0."""
    least = LEAST.get(parameter)
    if isinstance(value, int) and least is not None and value < least:
        raise InputError(f"{place}: expected a whole number from {least}, got {value}")
    if not isinstance(value, float):
        return
    if not 0 <= value < math.inf:
        raise InputError(f"{place}: expected a number from 0, got {value:g}")
    if value > MOST:
        raise InputError(f"{place}: expected a number up to {MOST:g}, got {value:g}")
    if parameter in SHARES and value > 1:
        raise InputError(f"{place}: expected a share from 0 to 1, got {value:g}")


def parameter_names(kind: type) -> list[str]:
    """List the parameters of what a table holds; its other fields are its state."""
    return [field.name for field in fields(kind) if field.init]
