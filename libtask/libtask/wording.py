"""Words of error messages: reasons, values, types, and the word that was probably meant."""

from __future__ import annotations

import difflib
import sys
import types
import typing
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)` for the nearest known word; empty: none is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def one_line(error: BaseException) -> str:
    """Return the text of an error in one line, never empty."""
    text = " ".join(str(error).split())
    return text or type(error).__name__


def cause(error: Exception) -> str:
    """Return the reason of an error without its number and file name."""
    why = error.strerror if isinstance(error, OSError) else None
    return why or one_line(error)


def lacking(what: str, package: str) -> str:
    """Return an error text: the missing package, and the command that installs it."""
    return f"{what} {package}: {sys.executable} -m pip install {package}"


def shown(value: Any) -> str:
    """Return a value as messages show it, cut to 80 characters."""
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."  # noqa: PLR2004  one line on a screen


def type_name(kind: Any) -> str:
    """Name a declared type as a user would: `int`, `one of 'a', 'b'`, `int or none`."""
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return "one of " + ", ".join(repr(choice) for choice in typing.get_args(kind))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_name(part) for part in typing.get_args(kind))
    if origin is typing.Annotated:
        return type_name(typing.get_args(kind)[0])
    if origin is not None:
        parts = ", ".join(
            "..." if part is ... else type_name(part) for part in typing.get_args(kind)
        )
        return f"{getattr(origin, '__name__', origin)}[{parts}]"
    return _simple_name(kind)


def _simple_name(kind: Any) -> str:
    if kind in (None, types.NoneType):
        return "none"
    if isinstance(kind, type):
        return "path" if issubclass(kind, PurePath) else kind.__name__
    return str(kind).replace("typing.", "").lower()
