"""Reading and copying whole files of users: of a bounded size, and unchanged meanwhile.

What a file has when it is opened is read, and no more: one that another program appends to has
no end. A file that was changed meanwhile is refused, because neither its old content nor the new
one was read. Pipes and devices have no size: of these, at most the limit is read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from libtask.errors import InputError

MIB = 1 << 20
LARGEST_TEXT = 16 * MIB
"""Maximum bytes of what people write: a configuration, a batch file, a script."""
LARGEST_DATA = 1024 * MIB
"""Maximum bytes of what programs write: a scenario of a million tasks takes a fifth of it."""


def read_whole(source: Path | BinaryIO, most: int) -> bytes:
    """Return the content of a file, of at most `most` bytes.

    Args:
        source: its path, or the open file, which is read from where it stands.
        most: maximum number of bytes.

    Raises:
        InputError: it is larger, or was changed while it was read.
        OSError: it cannot be read.

    """
    if isinstance(source, Path):
        with source.open("rb") as file:
            return read_whole(file, most)
    before = _sized(source)
    size = most if before is None else before.st_size
    data = b"" if size > most else source.read(size + 1)
    if max(size, len(data)) > most:
        raise InputError(f"expected at most {_shown(most)}")
    if before is not None:
        demand_unchanged(source.fileno(), before)
    return data


def _sized(file: BinaryIO) -> os.stat_result | None:
    """Return the status of a regular file; None: it has no size before it is read."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, ValueError):  # an object in memory
        return None
    return status if stat.S_ISREG(status.st_mode) and status.st_size else None


def _shown(size: int) -> str:
    return f"{size >> 20} MiB" if size >= MIB else f"{size:,} bytes"


def status_of_regular(file: int | Path) -> os.stat_result:
    """Return the status of a file or descriptor.

    Raises:
        InputError: it is not a regular file.
        OSError: there is none.

    """
    status = os.fstat(file) if isinstance(file, int) else file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise InputError("not a regular file")
    return status


def demand_unchanged(descriptor: int, before: os.stat_result) -> None:
    """Check that a file is as it was.

    Args:
        descriptor: the open file.
        before: its status before it was read.

    Raises:
        InputError: it was changed.

    """
    now = os.fstat(descriptor)
    if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        sizes = f"{before.st_size} bytes before, {now.st_size} after"
        raise InputError(
            f"changed while it was read ({sizes}); try again when it is complete"
        )
