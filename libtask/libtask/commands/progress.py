"""The progress of a command: the last number in a file to which it appends."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

LOOKED_AT = 4096
"""Bytes at the end of the file that are searched for the number."""
NUMBER = re.compile(rb"[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?")


class ProgressFile:
    """The file named in HETD_PROGRESS.

    Args:
        path: its path; the command creates it.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.unlink(missing_ok=True)

    def share(self) -> float | None:
        """Return the share done, 0 to 1; None: the file has no valid number."""
        found = NUMBER.findall(self._end())
        share = float(found[-1]) if found else None
        return share if share is not None and 0.0 <= share <= 1.0 else None

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _end(self) -> bytes:
        """Read the end of the file, which the user may have replaced."""
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self.path, flags)
        except OSError:
            return b""
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return b""
            place = max(0, status.st_size - LOOKED_AT)
            return os.pread(descriptor, LOOKED_AT, place)
        except OSError:
            return b""
        finally:
            os.close(descriptor)
