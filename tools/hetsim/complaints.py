"""Errors in a document, as text: `tasks[3].deadline: expected a number, got "soon"`.

msgspec finds the fault; this module names the place as users write it and shows what
stands there.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import msgspec

_PLACE = re.compile(r" - at `\$\.?(.*)`$")
_EXPECTED = re.compile(r"Expected `([^`]+)`(?:, got `[^`]+`)?(.*)$")
_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|([^.\[\]]+)")

_WORDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}

_CHOICES = {
    "overrun": '"continue" or "stop_at_deadline"',
    "sharing": '"processor"',
}
_LONGEST = 60


def complaint_of(error: msgspec.ValidationError, raw: Any) -> str:
    """Word a fault that msgspec found in `raw`, the document as decoded."""
    text = str(error)
    found = _PLACE.search(text)
    place, value = _follow(found.group(1) if found else "", raw)
    fault = text[: found.start()] if found else text
    missing = _MISSING.match(fault)
    if missing:
        inside = f"{place}.{missing.group(1)}" if place else missing.group(1)
        return f"{inside}: is missing"
    complaint = f"expected {_expected(fault, place)}, got {_shown(value)}"
    return f"{place}: {complaint}" if place else complaint


def _expected(fault: str, place: str) -> str:
    """Return a description of the expected value."""
    name = place.rpartition(".")[2]
    if fault.startswith("Invalid enum value"):
        return _CHOICES.get(name, "another value")
    found = _EXPECTED.match(fault)
    if found is None:
        return fault
    kinds = [kind for kind in found.group(1).split(" | ") if kind != "null"]
    words = " or ".join(_WORDS.get(kind, kind) for kind in kinds)
    return words + found.group(2)


def _follow(path: str, raw: Any) -> tuple[str, Any]:
    """Walk to the place; msgspec leaves out the keys of maps, which are looked for."""
    place, value = "", raw
    for index, name in _STEP.findall(path):
        step = index or name
        if step == "...":
            step = _bad_key(value)
        if isinstance(value, list):
            place, value = f"{place}[{step}]", value[int(step)]
        else:
            place = f"{place}.{step}" if place else step
            value = value.get(step) if isinstance(value, dict) else None
    return place, value


def _bad_key(table: Any) -> str:
    """Find the entry of a map of seconds that is neither null nor a number >= 0."""
    for key, value in table.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and value >= 0):
            return str(key)
    return "..."


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
