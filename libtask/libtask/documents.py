"""Users' TOML and JSON documents: limits on nesting and on the size of numbers.

The parsers accept numbers that no schedule, store or message can hold, and raise their
own error on deep nesting. `decoded` and `check_numbers` turn both into one line.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Text = TypeVar("Text")

MOST = 1e15
"""The largest number in a document: 30 million years in seconds, a petabyte in bytes."""
LEAST = 1e-200
"""The smallest number above 0: a quotient by a smaller one may be infinite."""
ALL_CORES = -1
"""Number of cores that stands for all of the node's."""
MAX_CORES = 1 << 20
MAX_BYTES = 1 << 60
"""Limits of the cores and of the memory that a task may need."""
MAX_RETRIES = 100
"""Maximum number of retries of a task after failures of its own."""
MAX_AT_ONCE = 1_000_000
"""Maximum of a limit of the tasks of an array that run at once."""
MAX_TIME = 1e10
"""The latest time in seconds since the epoch, in the year 2286: it fits into nanoseconds."""
LARGEST_WHOLE = (1 << 63) - 1
"""The largest whole number that a message or the store can hold."""

SHOWN_BITS = 200


def decoded(parse: Callable[[Text], Any], text: Text) -> Any:
    """Parse a document.

    Raises:
        InputError: the document is nested too deeply. `parse` raises other errors.

    """
    try:
        return parse(text)
    except RecursionError as error:
        raise InputError("nested too deeply") from error


def check_numbers(document: Any, most: float = MOST) -> None:
    """Check that every finite number of a document has a plausible size.

    Raises:
        InputError: a number is too large or too small; names its place.

    """
    for place, number in _numbers(document):
        # math.isfinite fails for very large integers
        if abs(number) > most and number not in (math.inf, -math.inf):
            shown = _shown(number)
            where = f"{place}: " if place else ""
            raise InputError(f"{where}expected a number up to {most:g}, got {shown}")
        if 0 < abs(number) < LEAST:
            where = f"{place}: " if place else ""
            raise InputError(f"{where}expected 0 or a number that is larger")


def _numbers(document: Any) -> Iterator[tuple[str, float]]:
    # iterative: a document may be nested as deeply as its parser allows
    left = [("", document)]
    while left:
        place, value = left.pop()
        if isinstance(value, dict):
            dot = "." if place else ""
            left += [(f"{place}{dot}{key}", each) for key, each in value.items()]
        elif isinstance(value, list):
            left += [(f"{place}[{n}]", each) for n, each in enumerate(value)]
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield place, value


def _shown(number: Any) -> str:
    """Format a number; Python refuses to format integers of many thousand digits."""
    if isinstance(number, float):
        return f"{number:.6g}"
    bits = number.bit_length()
    return str(number) if bits <= SHOWN_BITS else f"about 2**{bits}"
