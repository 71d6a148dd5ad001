"""What users name, with its parameters: a policy, or a planner of batches.

Both are frozen dataclasses whose fields are their parameters, in a table by name.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from libtask.errors import InputError, NotFoundError
from libtask.parameters import suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


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
        return msgspec.convert(parameters, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{what} {name}: {error}") from error


def parameter_names(kind: type) -> list[str]:
    """List the parameters of what a table holds."""
    return [field.name for field in fields(kind)]
