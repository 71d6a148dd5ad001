"""Limits on the fields of messages from peers, in bytes and entries.

Fields declare their limits (`text_of`, `entries`, `packed_in` in `base`); `check` finds
the declarations by introspection. The limits apply only to messages that arrive at hetd;
hetd reads stored records of any size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from libtask.errors import InputError
from libtask.messages.base import NAME_BYTES, TEXT_BYTES

Check: TypeAlias = Callable[[Any], None]
"""Raises `_ExceededError` if a value exceeds a limit."""


class _ExceededError(Exception):
    """A value exceeds its limit.

    Its place is put together as the error passes through the values that contain it:
    to know the place of every value, which is right nearly always, would take longer
    than all else of a check.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.place = ""

    def within(self, outer: str) -> _ExceededError:
        """Put the name or index of the value that contains the place before it."""
        self.place = outer + self.place
        return self


LONGEST_CHARACTER = 4
"""Most bytes of a character in UTF-8."""


def check(message: msgspec.Struct, size: int) -> None:
    """Check that no field of a message exceeds its limit.

    Args:
        message: the decoded message.
        size: bytes of its frame; no field of a small frame can exceed a limit.

    Raises:
        InputError: a field exceeds its limit; names the field and the limit.

    """
    if size <= NAME_BYTES:
        return
    checker = _of_struct(type(message))
    if checker is None:
        return
    try:
        checker(message)
    except _ExceededError as error:
        raise InputError(f"{error.place.lstrip('.')}: {error.text}") from None


@cache
def _of_struct(kind: type[msgspec.Struct]) -> Check | None:
    """Return the check of a structure's fields; None: no field has a limit."""
    hints = get_type_hints(kind, include_extras=True)
    made = {name: _of_type(hints[name]) for name in kind.__struct_fields__}
    checks = [(name, check) for name, check in made.items() if check is not None]
    if not checks:
        return None

    def look(value: Any) -> None:
        for name, check in checks:
            content = getattr(value, name)
            if not content:
                continue  # nothing is within every limit, and most fields are empty
            try:
                check(content)
            except _ExceededError as error:
                raise error.within(f".{name}") from None

    return look


def _of_type(hint: Any) -> Check | None:
    """Return the check of a type's values; None: the type has no limit."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _of_bounded(arguments[0], arguments[1].extra or {})
    if origin in (Union, UnionType):
        return _of_optional(arguments)
    if origin is list:
        return _of_list(arguments[0], None)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _of_struct(hint)
    return None


def _of_bounded(kind: Any, extra: dict[str, int]) -> Check | None:
    if "bytes" in extra:
        return _text(extra["bytes"])
    if "packed" in extra:
        return _packed(extra["packed"])
    if "most" in extra:
        return _of_list(get_args(kind)[0], extra["most"])
    return None


def _of_optional(kinds: tuple[Any, ...]) -> Check | None:
    found = [check for check in map(_of_type, kinds) if check is not None]
    if not found:
        return None

    def look(value: Any) -> None:
        if value is not None:
            found[0](value)

    return look


def _of_list(kind: Any, most: int | None) -> Check | None:
    inner = _of_type(kind)
    if inner is None and most is None:
        return None

    def look(value: Any) -> None:
        if most is not None and len(value) > most:
            raise _ExceededError(f"{len(value)} entries, at most {most}")
        if inner is None:
            return
        for index, each in enumerate(value):
            try:
                inner(each)
            except _ExceededError as error:
                raise error.within(f"[{index}]") from None

    return look


def _text(limit: int) -> Check:
    def look(value: Any) -> None:
        if len(value) * LONGEST_CHARACTER <= limit:
            return
        size = len(value) if value.isascii() else len(value.encode())
        if size > limit:
            raise _ExceededError(f"{size} bytes, at most {limit}")

    return look


def _packed(limit: int) -> Check:
    def look(value: Any) -> None:
        size = len(msgspec.msgpack.encode(value))
        if size > limit:
            raise _ExceededError(f"{size} bytes, at most {limit}")

    return look


def cut(text: str, limit: int = TEXT_BYTES) -> str:
    """Truncate a text to `limit` bytes; an ellipsis marks a truncated text.

    What UTF-8 has no code for is escaped: names of files may contain it (PEP 383).
    """
    if not text.isascii():
        text = text.encode(errors="backslashreplace").decode()
    if len(text) * 4 <= limit or len(text.encode()) <= limit:
        return text
    mark = " …"
    whole = text.encode()[: limit - len(mark.encode())]
    return whole.decode(errors="ignore") + mark
