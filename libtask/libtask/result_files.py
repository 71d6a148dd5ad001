"""Files with results of tasks, in their owner's folder.

Workers write a result there that is too large to travel with a command to a task that takes
it as a parameter, and pickled values that are too large for a message. Launchers ask hetd,
which alone knows which tasks are forgotten, and remove their files. Only the owner can read
the files.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FOLDER = "results"
"""Name of the folder below the launcher's folder."""
SUFFIX = ".result"
"""Ends the name of a result that another task may take."""
NAME = re.compile(r"([0-9]{1,18})-[0-9a-f]{1,16}(-[0-9]{1,9}\.pickle|\.result)")
YOUNG_S = 3600.0
"""Seconds in which a file is kept: the report with its task's end may be in transit."""
ASK_S = 60.0
"""Seconds between two queries for unneeded results."""
ASKED_AT_ONCE = 500
"""Tasks in one message."""


class ResultFiles:
    """A folder of results.

    Args:
        path: the folder; created with the first file.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ask_at = 0.0
        self._asked = -1
        """The last task of the last query."""

    def write(self, name: str, packed: bytes) -> None:
        """Write an encoded result.

        Raises:
            OSError: it cannot be written.

        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.path / f"{name}{SUFFIX}"
        path.unlink(missing_ok=True)  # of an earlier attempt
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(packed)

    def to_ask_for(self) -> list[int]:
        """List the next tasks to ask hetd about; empty between two queries."""
        now = time.monotonic()
        if now < self._ask_at:
            return []
        self._ask_at = now + ASK_S
        old = sorted({task for task, path in self._files() if _age(path) > YOUNG_S})
        some = [task for task in old if task > self._asked] or old
        some = some[:ASKED_AT_ONCE]
        self._asked = some[-1] if some else -1
        return some

    def drop(self, tasks: Iterable[int]) -> None:
        """Remove the files of tasks."""
        unneeded = set(tasks)
        for task, path in self._files():
            if task in unneeded:
                with contextlib.suppress(OSError):
                    path.unlink()

    def _files(self) -> list[tuple[int, Path]]:
        found: list[tuple[int, Path]] = []
        with contextlib.suppress(OSError):
            for path in self.path.iterdir():
                named = NAME.fullmatch(path.name)
                if named is not None:
                    found.append((int(named[1]), path))
        return found


def _age(path: Path) -> float:
    """Return the seconds since a file was written; 0 if it is gone."""
    try:
        return time.time_ns() / 1e9 - path.stat().st_mtime
    except OSError:
        return 0.0
