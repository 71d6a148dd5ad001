"""Attachments: private files that a task needs to start, addressed by content.

A command's environment may hold secrets, so it is a file that only its owner can read,
named by the hash of its content: thousands of tasks can share it, and hetd receives,
stores and lists only the name. Clients write attachments, workers read them, and
launchers remove those that no task needs according to hetd.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.errors import HetError, InputError
from libtask.wording import cause

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = "attachments"
"""Name of the folder below the launcher's folder."""
NAME = re.compile(r"[0-9a-f]{64}")
YOUNG_S = 3600.0
"""Seconds since the last use in which a file is kept: its task may be in transit."""
KEPT_S = 14 * 86_400.0
"""Seconds for which an unneeded file is kept, so that a task can be submitted again."""
MOST_IDLE = 1000
"""Maximum number of unneeded files; the oldest are removed first."""
ASK_S = 60.0
"""Seconds between two queries for unneeded attachments."""
ASKED_AT_ONCE = 1000
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Attachments:
    """A folder of files by content that only their owner can read.

    Args:
        path: the folder; created with the first file.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ask_at = 0.0

    def keep(self, content: bytes) -> str:
        """Write a content durably; return its name.

        Raises:
            HetError: it cannot be written; names the folder.

        """
        name = _digest(content)
        if not self._use(name):
            try:
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._write(name, content)
            except OSError as error:
                raise not_stored(self.path, error) from error
        return name

    def read(self, name: str) -> bytes:
        """Return a content.

        Raises:
            InputError: the file is gone or was changed.

        """
        path = self.file(name)
        try:
            with path.open("rb") as file:
                # other workers set its time when they read it; its digest shows changes
                content = file.read(os.fstat(file.fileno()).st_size)
        except OSError as error:
            raise InputError(f"attachment {path}: {error.strerror}") from error
        if _digest(content) != name:
            raise InputError(f"attachment {path}: it was changed")
        self._use(name)
        return content

    def file(self, name: str) -> Path:
        """Return the path of a content.

        Raises:
            InputError: the name is invalid.

        """
        if not NAME.fullmatch(name):
            raise InputError(f"no name of an attachment: {name!r}")
        return self.path / name

    # ------------------------------------------------------------ removing

    def to_ask_for(self) -> list[str]:
        """List long unused attachments to ask hetd about; empty between two queries."""
        now = time.monotonic()
        if now < self._ask_at:
            return []
        self._ask_at = now + ASK_S
        idle = self._idle()
        old = [name for age, name in idle if age > KEPT_S]
        surplus = [name for _, name in idle[: max(0, len(idle) - MOST_IDLE)]]
        return list(dict.fromkeys([*old, *surplus]))[:ASKED_AT_ONCE]

    def drop(self, names: Iterable[str]) -> None:
        """Remove files that no task needs, except recently used ones."""
        for name in names:
            if NAME.fullmatch(name):
                with contextlib.suppress(OSError):
                    self._drop(self.path / name)

    def _drop(self, path: Path) -> None:
        """Remove a file, unless a client has just used it."""
        doomed = path.with_name(f".{path.name}.gone")
        path.rename(doomed)
        if _age(doomed) < YOUNG_S:
            doomed.rename(path)
        else:
            doomed.unlink()

    def _idle(self) -> list[tuple[float, str]]:
        """List (seconds since the last use, name), oldest first."""
        found: list[tuple[float, str]] = []
        with contextlib.suppress(OSError):
            paths = [each for each in self.path.iterdir() if NAME.fullmatch(each.name)]
            found = [(_age(path), path.name) for path in paths]
        return sorted((each for each in found if each[0] > YOUNG_S), reverse=True)

    def _use(self, name: str) -> bool:
        """Record that a file is used now; return whether it exists."""
        try:
            os.utime(self.path / name)
        except OSError:
            return False
        return True

    def _write(self, name: str, content: bytes) -> None:
        import tempfile  # most commands write none

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


def not_stored(folder: Path, error: OSError) -> HetError:
    """Describe in one line why a part of a task cannot be written into a folder."""
    hint = "; free some space there" if error.errno in _FULL else ""
    return HetError(f"{folder}: cannot store the task there: {cause(error)}{hint}")


def _digest(content: bytes) -> str:
    import hashlib  # loads OpenSSL, which most commands do not need

    return hashlib.sha256(content).hexdigest()


def _age(path: Path) -> float:
    """Return the seconds since the last use of a file."""
    return time.time_ns() / 1e9 - path.stat().st_mtime


def _sync(folder: Path) -> None:
    """Flush a folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
