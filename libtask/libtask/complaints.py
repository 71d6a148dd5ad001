"""Faults in documents of users, as text: `tasks[3].deadline: expected a number, got "soon"`.

msgspec finds a fault; this module names its place as users write it, what is expected there,
and what stands there. Every reader of a configuration, a batch file or a scenario calls it, and
policies describe their parameters in the same words.
"""

from __future__ import annotations

import json
import re
import types
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from libtask.errors import InputError
from libtask.wording import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")

_PLACE = re.compile(r" - at `\$\.?(.*)`$")
_EXPECTED = re.compile(r"Expected `([^`]+)`(?:, got `[^`]+`)?(.*)$")
_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]+)`")
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|([^.\[\]]+)")

TABLE, OBJECT = "a table", "an object"
"""Words for a map in TOML and in JSON."""
_WORDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
}
_LONGEST = 60
UNKNOWN: Any = object()
"""Stands for a type that is not declared."""


def convert(document: Any, kind: type[T], table: str = TABLE) -> T:
    """Return a decoded document as a type.

    Raises:
        InputError: it does not fit; names the place.

    """
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        complaint = complaint_of(error, document, kind, table=table)
        raise InputError(complaint) from error


def complaint_of(
    error: msgspec.ValidationError,
    document: Any,
    kind: Any,
    *,
    root: str = "",
    table: str = TABLE,
) -> str:
    """Word the fault that msgspec found in a document.

    Args:
        error: of `msgspec.convert(document, kind)`.
        document: as decoded.
        kind: the type that it should have.
        root: the place of the document, if it is a part of another one.
        table: the word for a map in the language of the document.

    """
    text = str(error)
    found = _PLACE.search(text)
    fault = text[: found.start()] if found else text
    place = DocumentPlace(root, document, kind)
    for step in _STEP.findall(found[1] if found else ""):
        place = place.inner(step[0] or step[1], is_index=bool(step[0]))
    if missing := _MISSING.match(fault):
        return f"{_joined(place.name, missing[1])}: is missing"
    if unknown := _UNKNOWN.match(fault):
        hint = suggestion(unknown[1], field_names(place.kind))
        return f"{_joined(place.name, unknown[1])}: unknown key{hint}"
    complaint = (
        f"expected {_expected(fault, place.kind, table)}, got {quoted(place.value)}"
    )
    return f"{place.name}: {complaint}" if place.name else complaint


@dataclass(frozen=True, slots=True)
class DocumentPlace:
    """A place in a document: what stands there, and the type that it should have."""

    name: str
    value: Any
    kind: Any

    def inner(self, step: str, *, is_index: bool) -> DocumentPlace:
        """Go one step of msgspec's path: a field, a place in a list, or an entry of a map."""
        if step == "...":
            return self._wrong_entry()
        if is_index:
            inside = _inside(self.kind, int(step))
            return DocumentPlace(f"{self.name}[{step}]", self.value[int(step)], inside)
        value = self.value.get(step) if isinstance(self.value, dict) else None
        return DocumentPlace(_joined(self.name, step), value, _inside(self.kind, step))

    def _wrong_entry(self) -> DocumentPlace:
        """Find the entry of a map that msgspec rejects; it does not tell the key."""
        kind = _inside(self.kind, "...")
        for key, value in self.value.items():
            try:
                msgspec.convert(value, kind)
            except (msgspec.ValidationError, TypeError):
                return DocumentPlace(_joined(self.name, str(key)), value, kind)
        return DocumentPlace(_joined(self.name, "..."), self.value, UNKNOWN)


def described(kind: Any, table: str = TABLE) -> str:
    """Describe the values of a type: `a whole number`, `"leave" or "preempt"`."""
    return _either(
        [each for part in _alternatives(kind) for each in _words(part, table)]
    )


def _words(kind: Any, table: str) -> list[str]:
    """Describe the values of a type that is not a union."""
    origin = typing.get_origin(kind) or kind
    if origin is typing.Literal:
        return [quoted(choice) for choice in typing.get_args(kind)]
    if origin in (list, tuple, set, frozenset):
        return [_WORDS["array"]]
    if origin is dict or field_names(origin):
        return [table]
    return [_WORDS.get(getattr(origin, "__name__", ""), "another value")]


def quoted(value: Any) -> str:
    """Return a value as a document has it, cut to 60 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def field_names(kind: Any) -> list[str]:
    """List the keys of a table of a type; empty: it has no fixed keys."""
    for part in _alternatives(kind):
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            return [field.encode_name for field in msgspec.structs.fields(part)]
    return []


def _alternatives(kind: Any) -> Iterator[Any]:
    """Yield the types of a union, without None; limits of values are left out."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        yield from _alternatives(typing.get_args(kind)[0])
    elif origin in (typing.Union, types.UnionType):
        for part in typing.get_args(kind):
            yield from _alternatives(part)
    elif kind is not types.NoneType:
        yield getattr(kind, "__supertype__", kind)  # of a `NewType`


def _inside(kind: Any, step: str | int) -> Any:
    """Return the declared type of what a list, a map or a table contains."""
    for part in _alternatives(kind):
        origin, arguments = typing.get_origin(part), typing.get_args(part)
        if isinstance(step, int) and origin in (list, tuple) and arguments:
            return arguments[step] if 0 < step < len(arguments) else arguments[0]
        if step == "..." and origin is dict:
            return arguments[1]
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            for field in msgspec.structs.fields(part):
                if field.encode_name == step:
                    return field.type
    return UNKNOWN


def _expected(fault: str, kind: Any, table: str) -> str:
    """Describe the expected value: by its declared type, or by what msgspec says."""
    found = _EXPECTED.match(fault)
    if kind is not UNKNOWN:
        limits = found[2] if found else ""
        return described(kind, table) + limits
    if found is None:
        return "another value" if fault.startswith("Invalid enum value") else fault
    words = _WORDS | {"object": table}
    names = [name for name in found[1].split(" | ") if name != "null"]
    return " or ".join(words.get(name, name) for name in names) + found[2]


def _either(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _joined(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key
