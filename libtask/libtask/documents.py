"""Documents of users: what a TOML or JSON file may hold before anybody reads it.

The parsers allow numbers that no schedule, store or message can hold, and give up on
deep nesting with an error of their own. `decoded` makes both a line for the user.
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
"""The smallest number but 0: what is divided by a smaller one may be infinite."""
LARGEST_WHOLE = (1 << 63) - 1
"""The largest whole number that a message or the store can hold."""

SHOWN_BITS = 200


def decoded(parse: Callable[[Text], Any], text: Text) -> Any:
    """Parse a document.

    Raises:
        InputError: it is nested too deeply. What else is wrong, `parse` raises.

    """
    try:
        return parse(text)
    except RecursionError as error:
        raise InputError("nested too deeply") from error


def check_numbers(document: Any, most: float = MOST) -> None:
    """Demand of every finite number of a document that it is of a size that can be meant.

    Raises:
        InputError: one is not; names its place.

    """
    for place, number in _numbers(document):
        # a whole number may be too large to be asked whether it is finite
        if abs(number) > most and number not in (math.inf, -math.inf):
            shown = _shown(number)
            where = f"{place}: " if place else ""
            raise InputError(f"{where}expected a number up to {most:g}, got {shown}")
        if 0 < abs(number) < LEAST:
            where = f"{place}: " if place else ""
            raise InputError(f"{where}expected 0 or a number that is larger")


def _numbers(document: Any) -> Iterator[tuple[str, float]]:
    # no recursion: a document may be nested as deeply as its parser allows
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
    """Write a number; of whole ones, Python writes only those of some thousand digits."""
    if isinstance(number, float):
        return f"{number:.6g}"
    bits = number.bit_length()
    return str(number) if bits <= SHOWN_BITS else f"about 2**{bits}"
