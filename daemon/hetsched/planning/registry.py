"""Makes what users name, with its parameters, from a table: policies and batch planners.

Both are frozen dataclasses whose fields are their parameters.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import msgspec

from libtask.errors import InputError, NotFoundError
from libtask.wording import suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping
    from dataclasses import Field

T = TypeVar("T")

SHARES = frozenset(
    {"least_affinity", "least_chance", "least_gain", "short_share", "hopeless"}
)
"""Parameters, of whatever has them, that are parts of a whole."""


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
    try:
        structure = structure_of(kind)  # type: ignore[arg-type]  # classes do have hashes
        values = msgspec.convert(parameters, structure, strict=False)
        made = kind(**msgspec.structs.asdict(values))
    except (ValueError, TypeError) as error:  # those that `__post_init__` raises, too
        raise InputError(f"{what} {name}: {error}") from error
    for parameter in known:
        _demand_sense(
            f"{what} {name}: {parameter}", parameter, getattr(made, parameter)
        )
    return made


@cache
def structure_of(kind: type) -> type[msgspec.Struct]:
    """Return a structure with the fields of a data class, into which parameters are read.

    msgspec makes data classes without a call of their `__init__`, which objects of
    compiled classes need.
    """
    hints = get_type_hints(kind)
    return msgspec.defstruct(
        kind.__name__,
        [(field.name, hints[field.name], _default_of(field)) for field in fields(kind)],
    )


def _default_of(field: Field[Any]) -> Any:
    """Return the default of a field, as msgspec wants it; each parameter has one."""
    if field.default_factory is not MISSING:
        return msgspec.field(default_factory=field.default_factory)
    return msgspec.NODEFAULT if field.default is MISSING else field.default


def _demand_sense(place: str, parameter: str, value: object) -> None:
    """Refuse numbers with which nothing can be decided: no factor or time is below 0."""
    if not isinstance(value, float):
        return
    if not 0 <= value < math.inf:
        raise InputError(f"{place}: expected a number from 0, got {value:g}")
    if parameter in SHARES and value > 1:
        raise InputError(f"{place}: expected a share from 0 to 1, got {value:g}")


def parameter_names(kind: type) -> list[str]:
    """List the parameters of what a table holds."""
    return [field.name for field in fields(kind)]
