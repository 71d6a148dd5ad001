"""Logs of workers: capped while they are written, and read with their gaps.

A worker writes directly to its log file, so that output needs no copy and continues
without the launcher. When a log has grown too large, the launcher punches a hole into
its middle: offsets stay valid, the beginning and the end remain readable, and a flood of
output takes no more disk than the cap.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

LOG_BYTES = 64 << 20
"""Default cap of one worker's log."""
FLOOD_BYTES = 1 << 20
"""Growth between two checks after which the next check is due sooner."""
LOGS = 1000
"""Maximum number of logs; each can hold the output of thousands of tasks."""
LOOKED_AT = 50
"""Number of exits of workers between two counts of the logs."""
PAGE = 4096
BLOCK = 512
"""Bytes of a unit of `st_blocks`."""
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS)


class LogCap:
    """Keeps the logs of a launcher's workers below a cap.

    Args:
        folder: folder of the logs.

    Attributes:
        flooded: whether a log grew fast since the last check, so the next is due soon.

    """

    def __init__(self, folder: Path) -> None:
        self.flooded = False
        self._folder = folder
        self._ended = 0
        """Number of exits since the last count of the logs."""
        self._sizes: dict[str, int] = {}

    def path(self, worker: str) -> Path:
        """Return the path of a worker's log; create its folder if it is missing."""
        with contextlib.suppress(OSError):  # without it, the worker has no log
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder / f"{worker}.log"

    def ended(self, worker: str, living: Collection[str]) -> None:
        """Handle the exit of a worker: remove its log if empty, and surplus old logs.

        Args:
            worker: its name.
            living: workers whose logs are kept.

        """
        with contextlib.suppress(OSError):
            path = self._folder / f"{worker}.log"
            if not path.stat().st_size:
                path.unlink()
                return
        self._ended += 1
        if self._ended >= LOOKED_AT:
            self._ended = 0
            self.trim(living)

    def trim(self, living: Collection[str], most: int = LOGS) -> None:
        """Remove the least recently written logs above `most`."""
        dated: list[tuple[int, Path]] = []
        with contextlib.suppress(OSError):
            others = [p for p in self._folder.glob("*.log") if p.stem not in living]
            dated = sorted((path.stat().st_mtime_ns, path) for path in others)
        for _, path in dated[: max(0, len(dated) - most)]:
            with contextlib.suppress(OSError):
                path.unlink()

    def look(self, workers: Iterable[str], limit: int) -> None:
        """Cap the logs of these workers at `limit` bytes each; 0: unlimited."""
        self.flooded = False
        before, self._sizes = self._sizes, {}
        for worker in workers:
            # A missing log or a disk error must not stop the check of the others.
            with contextlib.suppress(OSError):
                path = self._folder / f"{worker}.log"
                size = self._sizes[worker] = path.stat().st_size
                self.flooded |= size - before.get(worker, size) > FLOOD_BYTES
                if limit > 0 and size > limit:
                    cap(path, limit)


def cap(path: Path, limit: int) -> bool:
    """Free the middle of a log that takes more than `limit` bytes of disk.

    If the file system does not support holes, the whole log is truncated.

    Returns:
        Whether it was too large.

    Raises:
        OSError: it cannot be read or written.

    """
    status = path.stat()
    if status.st_blocks * BLOCK <= limit:
        return False
    head = limit // 4 // PAGE * PAGE
    end = max(head, (status.st_size - limit // 2) // PAGE * PAGE)
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not _punch(descriptor, head, end - head):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)
    return True


def opened(path: Path, owner: int) -> BinaryIO:
    """Open a user's log.

    Raises:
        OSError: it cannot be opened, is not a regular file, or belongs to another user.

    """
    # does not wait for the writer of a FIFO
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
        os.close(descriptor)
        raise OSError(errno.EPERM, f"not a file of uid {owner}", str(path))
    return os.fdopen(descriptor, "rb")


def read(file: BinaryIO, start: int, stop: int | None) -> tuple[bytes, int]:
    """Read a part of a log, with a line in place of each dropped part.

    Args:
        file: the log.
        start: first byte.
        stop: the byte after the last one; None: up to its present end.

    Returns:
        The content, and the byte after it.

    Raises:
        OSError: it cannot be read.

    """
    parts, end = read_parts(file, start, stop)
    return b"".join(_shown(part) for part in parts), end


def read_parts(
    file: BinaryIO, start: int, stop: int | None
) -> tuple[list[bytes | int], int]:
    """Read a part of a log, with the number of bytes in place of each dropped part.

    Args:
        file: the log.
        start: first byte.
        stop: the byte after the last one; None: up to its present end.

    Returns:
        The parts in order, and the byte after them.

    Raises:
        OSError: it cannot be read.

    """
    length = os.fstat(file.fileno()).st_size
    if start > length and stop is not None:  # truncated, on a file system without holes
        return [stop - start], stop
    end = length if stop is None else min(length, stop)
    parts: list[bytes | int] = []
    place = start
    while place < end:
        until, kept = _stretch(file.fileno(), place, end)
        if not kept:
            parts.append(until - place)
            place = until
            continue
        data = os.pread(file.fileno(), until - place, place)
        if _stretch(file.fileno(), place, until) == (until, True):
            parts.append(data)
            place += len(data)
        # else it was dropped while it was read: look again
    return parts, max(start, end)


def _stretch(descriptor: int, start: int, stop: int) -> tuple[int, bool]:
    """Return the end of the data, or of the hole, at `start`, and whether it is data."""
    data = min(stop, _seek(descriptor, start, os.SEEK_DATA, stop))
    if data > start:
        return data, False
    return min(stop, _seek(descriptor, start, os.SEEK_HOLE, stop)), True


def _seek(descriptor: int, start: int, whence: int, otherwise: int) -> int:
    try:
        return os.lseek(descriptor, start, whence)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return otherwise  # only a hole up to the end


def _shown(part: bytes | int) -> bytes:
    """Return a part of a log as it is shown: a line stands for dropped bytes."""
    if isinstance(part, bytes):
        return part
    return b"\n[hetd: %d bytes of output were dropped here: the log is full]\n" % part


def _punch(descriptor: int, start: int, size: int) -> bool:
    """Punch a hole into a file; return whether the file system supports it."""
    if size <= 0:
        return True
    import ctypes  # clients, which use other parts of this module, start sooner

    library = ctypes.CDLL(None, use_errno=True)
    offset, length = ctypes.c_int64(start), ctypes.c_int64(size)
    if library.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, offset, length) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number))
