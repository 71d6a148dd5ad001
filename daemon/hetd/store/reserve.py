"""The reserve: disk space that is released when the disk is full.

What cannot be refused, the ends of running tasks above all, is written into it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ROOM = 256 * 1024
"""Bytes: some twenty commits of a few tasks each, which write whole pages."""
MARGIN = 2 * ROOM
"""Bytes that must be free to create the reserve again: avoids flapping at the limit."""
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
"""Errors that may pass: space is freed, or the file system becomes writable."""


class Reserve:
    """A file that only occupies space."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def there(self) -> bool:
        return self._path.exists()

    def make(self, margin: int = ROOM) -> str | None:
        """Allocate the space.

        Args:
            margin: bytes that must be free now.

        Returns:
            why that cannot be; None: it is taken.

        """
        try:
            descriptor = os.open(
                self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            return str(error.strerror)
        try:
            os.posix_fallocate(descriptor, 0, max(margin, ROOM))
            os.ftruncate(descriptor, ROOM)
        except OSError as error:
            self.give_up()
            return str(error.strerror)
        finally:
            os.close(descriptor)
        return None

    def give_up(self) -> None:
        """Release the space to the database."""
        with contextlib.suppress(OSError):  # gone already, or the disk is read-only
            self._path.unlink()

    def obstacle(self) -> int:
        """Return the error of a trial write; 0: no error, or an unrelated one."""
        probe = self._path.with_suffix(".probe")
        try:
            probe.write_bytes(bytes(4096))
        except OSError as error:
            return error.errno or 0
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()
        return 0
