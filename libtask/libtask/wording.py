"""Words of error messages: the reason of an error, and the word that was probably meant."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

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
