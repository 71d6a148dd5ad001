"""Errors of the store, with hints for their repair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libtask.errors import HetError

if TYPE_CHECKING:
    from pathlib import Path

SQLITE_HEAD = "*** in database main ***"
"""Header line of SQLite before its findings."""
CURE = "look with `hetctl daemon check`; `hetctl daemon restore FILE` brings a backup"


class StoreError(HetError):
    """The database cannot be trusted, read or written; hetd ends or does not start."""

    code = "store"


class StoreFullError(HetError):
    """The database has no room to grow; a refused change may succeed later."""

    code = "store-full"
    retry = True


def refusal(path: Path, what: str, cure: str = CURE) -> StoreError:
    """Return the error that keeps hetd from starting, with a hint, in one line."""
    told = " ".join(what.replace(SQLITE_HEAD, "").split())
    return StoreError(f"{path}: {told}; hetd does not start without it: {cure}")
