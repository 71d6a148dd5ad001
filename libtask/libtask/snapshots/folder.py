"""The snapshots of one task: two generations in a folder of its user's.

A file appears under its name when it is whole and on the disk, or not at all. Names
begin with the epoch of the attempt, so that the newest comes last, and so that an
attempt that was given up, and lives on, writes nothing over its successor's.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from libtask.faultpoints import reach
from libtask.snapshots.file import Snapshot, SnapshotError, read, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from libtask.snapshots.file import Identity

GENERATIONS = 2
NAME = re.compile(r"([0-9a-f]{16})-([0-9]{8})\.snapshot")
LEFT = re.compile(r"\.?([0-9a-f]{16})-[0-9]{8}\.snapshot\.(?:new|bad)")
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
DRAFT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# a FIFO without a writer must not make us wait
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Refused:
    """A file that is not used, and why; it is not tried again."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


class SnapshotFolder:
    """The folder of one task's snapshots.

    Args:
        path: the folder; it is made when the first snapshot is written.
        limit: bytes that a snapshot may have when it is read.

    """

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self._limit = limit
        self._refused: set[str] = set()
        self._made = False

    def write(self, snapshot: Snapshot) -> int:
        """Add a snapshot; remove those before the last two.

        Returns:
            Its bytes.

        Raises:
            SnapshotError: it cannot be written, or a newer attempt has taken over. The
                older ones are what they were.

        """
        try:
            self._make()
            with self._opened() as folder:
                return self._write(folder, snapshot)
        except OSError as error:
            self._made = False  # it may be gone
            raise SnapshotError(f"{self.path}: {error.strerror}") from error

    def newest(
        self, owner: Identity, use: Callable[[Snapshot], None] = lambda _found: None
    ) -> tuple[Snapshot | None, list[Refused]]:
        """Return the newest snapshot that is good, and what was refused on the way.

        Args:
            owner: the task.
            use: puts a snapshot to use; raises `SnapshotError` where it is of none.

        """
        refused: list[Refused] = []
        try:
            with self._opened() as folder:
                for name in reversed(_generations(folder)):
                    found = self._read(folder, name, owner, use)
                    if isinstance(found, Snapshot):
                        return found, refused
                    refused.append(found)
        except FileNotFoundError:
            pass  # none was ever written
        except OSError as error:
            refused.append(Refused(str(self.path), error.strerror or str(error)))
        return None, refused

    # ------------------------------------------------------------ steps

    def _make(self) -> None:
        if self._made:
            return
        root = self.path.parent
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.mkdir(mode=0o700, exist_ok=True)
        # Also where they were there: who made them may have died before this.
        _force(root.parent)
        _force(root)
        self._made = True

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        folder = os.open(self.path, FOLDER_FLAGS)
        try:
            yield folder
        finally:
            os.close(folder)

    def _write(self, folder: int, snapshot: Snapshot) -> int:
        known = _generations(folder)
        name = _next_name(known, snapshot.epoch)
        draft = f".{name}.new"
        try:
            size = _write_draft(folder, draft, snapshot)
            reach("snapshot.drafted")
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=folder)
            raise
        reach("snapshot.named")
        os.fsync(folder)
        for old in known[: len(known) + 1 - GENERATIONS]:
            os.unlink(old, dir_fd=folder)
        _clear(folder, snapshot.epoch)
        return size

    def _read(
        self,
        folder: int,
        name: str,
        owner: Identity,
        use: Callable[[Snapshot], None],
    ) -> Snapshot | Refused:
        if name in self._refused:
            return Refused(name, "it was refused before")
        try:
            descriptor = os.open(name, READ_FLAGS, dir_fd=folder)
            try:
                found = read(descriptor, owner, self._limit)
            finally:
                os.close(descriptor)
            use(found)
            return found  # noqa: TRY300  what fails in `use` is a bad file, too
        except SnapshotError as error:
            reason = str(error)
        except OSError as error:
            reason = error.strerror or str(error)
        self._put_aside(folder, name)
        return Refused(name, reason)

    def _put_aside(self, folder: int, name: str) -> None:
        """See to it that a bad file is never tried again."""
        self._refused.add(name)
        with contextlib.suppress(OSError):
            os.rename(name, f"{name}.bad", src_dir_fd=folder, dst_dir_fd=folder)


def _generations(folder: int) -> list[str]:
    """List the whole snapshots, oldest first."""
    return sorted(name for name in os.listdir(folder) if NAME.fullmatch(name))


def _clear(folder: int, epoch: int) -> None:
    """Remove bad files, and what attempts of before were writing when they were killed."""
    for name in os.listdir(folder):
        left = LEFT.fullmatch(name)
        if left and int(left[1], 16) <= epoch:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)


def _next_name(known: list[str], epoch: int) -> str:
    """Name the next snapshot of an attempt.

    Raises:
        SnapshotError: a newer attempt has written one.

    """
    serial = 0
    if known:
        newest, last = known[-1].removesuffix(".snapshot").split("-")
        if int(newest, 16) > epoch:
            raise SnapshotError("a newer attempt of the task has taken over")
        serial = int(last) + 1
    return f"{epoch:016x}-{serial:08d}.snapshot"


def _write_draft(folder: int, draft: str, snapshot: Snapshot) -> int:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=folder)  # of one that was killed in the middle
    descriptor = os.open(draft, DRAFT_FLAGS, 0o600, dir_fd=folder)
    try:
        return write(descriptor, snapshot)
    finally:
        os.close(descriptor)


def _force(path: Path) -> None:
    """Force the names in a folder to the disk."""
    folder = os.open(path, FOLDER_FLAGS)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
