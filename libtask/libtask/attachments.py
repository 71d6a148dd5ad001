"""Attachments: files that a task needs to start and that are too private for a message.

A command's environment may hold secrets, so it is a file that only its owner can read,
named by its content: thousands of tasks share it, and what hetd is told, keeps and
lists is that name. Clients write here, workers read; launchers remove what no task
needs any more, which hetd knows.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = "attachments"
"""Where a launcher has its user's, below its own folder."""
NAME = re.compile(r"[0-9a-f]{64}")
YOUNG_S = 3600.0
"""Seconds since its last use in which a file is never removed: its task may be on its way."""
KEPT_S = 14 * 86_400.0
"""Seconds for which a file stays that no task needs, so that one can be submitted again."""
MOST_IDLE = 1000
"""Files that stay so; of more the oldest go."""
ASK_S = 60.0
"""Seconds between two questions for what is not needed any more."""
ASKED_AT_ONCE = 1000


class Attachments:
    """A folder of files by content, which only their owner can read.

    Args:
        path: the folder; it is made with the first file.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ask_at = 0.0

    def keep(self, content: bytes) -> str:
        """Keep a content, on disk when this returns; return its name.

        Raises:
            OSError: it cannot be written.

        """
        name = hashlib.sha256(content).hexdigest()
        if not self._use(name):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(name, content)
        return name

    def read(self, name: str) -> bytes:
        """Return a content.

        Raises:
            InputError: it is gone, or not what was kept.

        """
        path = self.file(name)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"attachment {path}: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != name:
            raise InputError(f"attachment {path}: it was changed")
        self._use(name)
        return content

    def file(self, name: str) -> Path:
        """Return where a content lies.

        Raises:
            InputError: that is no name of one.

        """
        if not NAME.fullmatch(name):
            raise InputError(f"no name of an attachment: {name!r}")
        return self.path / name

    # ------------------------------------------------------------ removing

    def to_ask_for(self) -> list[str]:
        """List those that were not used for long, to ask hetd whether a task needs them."""
        now = time.monotonic()
        if now < self._ask_at:
            return []
        self._ask_at = now + ASK_S
        idle = self._idle()
        old = [name for age, name in idle if age > KEPT_S]
        surplus = [name for _, name in idle[: max(0, len(idle) - MOST_IDLE)]]
        return list(dict.fromkeys([*old, *surplus]))[:ASKED_AT_ONCE]

    def drop(self, names: Iterable[str]) -> None:
        """Remove files that no task needs, but for those used a moment ago."""
        for name in names:
            if NAME.fullmatch(name):
                with contextlib.suppress(OSError):
                    self._drop(self.path / name)

    def _drop(self, path: Path) -> None:
        """Remove a file; one that a client has just used comes back."""
        doomed = path.with_name(f".{path.name}.gone")
        path.rename(doomed)
        if _age(doomed) < YOUNG_S:
            doomed.rename(path)
        else:
            doomed.unlink()

    def _idle(self) -> list[tuple[float, str]]:
        """List (seconds since its last use, name), the oldest first."""
        found: list[tuple[float, str]] = []
        with contextlib.suppress(OSError):
            paths = [each for each in self.path.iterdir() if NAME.fullmatch(each.name)]
            found = [(_age(path), path.name) for path in paths]
        return sorted((each for each in found if each[0] > YOUNG_S), reverse=True)

    def _use(self, name: str) -> bool:
        """Note that a file is used now; False: there is none."""
        try:
            os.utime(self.path / name)
        except OSError:
            return False
        return True

    def _write(self, name: str, content: bytes) -> None:
        handle, draft = tempfile.mkstemp(dir=self.path, prefix=".new-")  # mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(handle)
            Path(draft).rename(self.path / name)
            _sync(self.path)
        except OSError:
            Path(draft).unlink(missing_ok=True)
            raise


def _age(path: Path) -> float:
    """Seconds since the last use of a file."""
    return time.time_ns() / 1e9 - path.stat().st_mtime


def _sync(folder: Path) -> None:
    """Have the names in a folder on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
