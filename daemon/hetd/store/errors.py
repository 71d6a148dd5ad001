"""What can be wrong with a store, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libtask.errors import HetError

if TYPE_CHECKING:
    from pathlib import Path

SQLITE_HEAD = "*** in database main ***"
"""A line of SQLite's before what it found."""
CURE = "look with `hetctl daemon check`; `hetctl daemon restore FILE` brings a backup"


class StoreError(HetError):
    """The database cannot be trusted, read or written; hetd ends or does not start."""

    code = "store"


class StoreFullError(HetError):
    """The database has no room to grow; what is refused now may be taken later."""

    code = "store-full"
    retry = True


def refusal(path: Path, what: str, cure: str = CURE) -> StoreError:
    """Say in one line why hetd does not start, and what to do."""
    told = " ".join(what.replace(SQLITE_HEAD, "").split())
    return StoreError(f"{path}: {told}; hetd does not start without it: {cure}")
