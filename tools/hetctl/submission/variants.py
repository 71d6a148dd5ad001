"""Variants of one task: arrays and parameter sweeps.

An array is one task per index; a sweep is one task per combination of values. In texts,
`{index}`, or `{n}` for a swept parameter `n`, is replaced by the variant's value.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from libtask.documents import MAX_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST = 1_000_000
"""Most variants of one task; more are a typing error."""
_PIECE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


def indexes(text: str) -> list[int]:
    """Parse the indexes of an array: `0-99`, `0-99:10`, `3,5,20-29`; each once, in order.

    Raises:
        ValueError: the text has another form; the message shows the expected one.

    """
    found: dict[int, None] = {}
    for piece in text.split(","):
        read = _PIECE.fullmatch(piece.strip())
        first, last, step = (
            (int(part or -1) for part in read.groups()) if read else (0,) * 3
        )
        if read is None or step == 0 or -1 < last < first:
            expected = "indexes such as 0-99, 0-99:10 or 3,5,20-29"
            raise ValueError(f"expected {expected}, got {text!r}")
        if last - first >= MOST:
            raise ValueError(f"more than {MOST} tasks: {text!r}")
        found |= dict.fromkeys(range(first, max(first, last) + 1, max(1, step)))
    return list(found)


def limited(text: str) -> tuple[str, int]:
    """Separate `0-999%8` into the indexes and the number of tasks that run at once; 0: any.

    Raises:
        ValueError: what follows `%` is not a number of tasks.

    """
    indexes_text, percent, most = text.partition("%")
    if not percent:
        return text, 0
    longest = len(str(MAX_AT_ONCE))
    if not (most.isdecimal() and int(most[:longest]) > 0 and len(most) <= longest):
        raise ValueError(f"expected a number of tasks at once after %, got {most!r}")
    return indexes_text, min(int(most), MAX_AT_ONCE)


def combinations(
    sweep: Mapping[str, Sequence[Any]], together: Mapping[str, Sequence[Any]]
) -> list[dict[str, Any]]:
    """Combine values: those of `sweep` in all ways, those of `together` side by side.

    The first key changes slowest. Without any values there is one empty combination.

    Raises:
        ValueError: lists of `together` differ in length, or the combinations are too many.

    """
    lengths = {len(values) for values in together.values()}
    if len(lengths) > 1:
        counts = ", ".join(f"{key} has {len(some)}" for key, some in together.items())
        raise ValueError(f"expected lists of one length: {counts}")
    rows = zip(*together.values(), strict=True) if together else [()]
    side_by_side = [dict(zip(together, row, strict=True)) for row in rows]
    count = len(side_by_side)
    for values in sweep.values():
        count *= len(values)
    if count > MOST:
        raise ValueError(f"{count} combinations; {MOST} are the limit")
    return [
        dict(zip(sweep, values, strict=True)) | row
        for values in itertools.product(*sweep.values())
        for row in side_by_side
    ]


def filled(value: Any, variant: Mapping[str, Any]) -> Any:
    """Replace `{name}` in texts by the variant's value; other braces stay unchanged."""
    if isinstance(value, str):
        for name, one in variant.items():
            value = value.replace("{" + name + "}", str(one))
        return value
    if isinstance(value, dict):
        return {key: filled(one, variant) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, variant) for one in value]
    return value


def member(name: str, variant: Mapping[str, Any], number: object) -> str:
    """Name one variant: by `{…}` in the name, else by a number after a dot."""
    text = filled(name, variant)
    alone = not name or not variant or text != name
    return str(text) if alone else f"{name}.{number}"
