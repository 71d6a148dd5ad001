"""The snapshot root: the snapshot folders of all of a user's tasks of one daemon.

Workers only add to it. Launchers ask hetd, which alone knows for certain that a task
has ended, and remove the folders of ended tasks.
"""

from __future__ import annotations

import re
import shutil
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NAME = re.compile(r"[0-9]{1,19}-[0-9a-f]{1,16}")
ASKED_AT_ONCE = 1000
"""Names in one message."""
ASK_S = 2.0
"""Seconds between two queries for unneeded snapshots."""


class SnapshotRoot:
    """The folder of a user's snapshots.

    Args:
        path: the folder; it may be missing.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ask_at = 0.0
        self._asked = -1
        """Id of the last queried task."""

    def to_ask_for(self) -> list[str]:
        """List the next batch to ask hetd about; empty between two queries."""
        now = time.monotonic()
        if now < self._ask_at:
            return []
        self._ask_at = now + ASK_S
        names = self.names()
        some = [name for name in names if _task(name) > self._asked] or names
        some = some[:ASKED_AT_ONCE]
        self._asked = _task(some[-1]) if some else -1
        return some

    def names(self) -> list[str]:
        """List the names of the folders, oldest task first."""
        try:
            names = [each.name for each in self.path.iterdir()]
        except OSError:
            return []
        known = (name for name in names if NAME.fullmatch(name))
        return sorted(known, key=_task)

    def drop(self, names: Iterable[str]) -> None:
        """Remove the folders of tasks that have ended."""
        for name in names:
            if NAME.fullmatch(name):
                shutil.rmtree(self.path / name, ignore_errors=True)


def _task(name: str) -> int:
    return int(name.partition("-")[0])
