"""The snapshots of one task: two generations in a folder of its user.

A file gets its name only when it is complete and on disk. Names begin with the epoch of
the attempt, so that the newest sorts last, and an abandoned attempt that still runs
cannot overwrite the files of its successor.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from libtask.faultpoints import reach
from libtask.snapshots.file import Snapshot, SnapshotError, copy, read, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from libtask.snapshots.file import Identity, SnapshotSummary

GENERATIONS = 2
FIRST = f"{0:016x}-{0:08d}.snapshot"
"""Name of one that was taken over: all attempts have larger numbers."""
NAME = re.compile(r"([0-9a-f]{16})-([0-9]{8})\.snapshot")
LEFT = re.compile(r"\.?([0-9a-f]{16})-[0-9]{8}\.snapshot\.(?:new|bad)")
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
DRAFT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# do not wait for the writer of a FIFO
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Refused:
    """A rejected file with the reason; it is not tried again."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


class SnapshotFolder:
    """The folder of one task's snapshots.

    Args:
        path: the folder; created with the first snapshot.
        limit: maximum bytes of a snapshot to read.

    Attributes:
        latest: the file that was written last; None: none was.

    """

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self.latest: Path | None = None
        self._limit = limit
        self._refused: set[str] = set()
        self._made = False

    def write(self, snapshot: Snapshot) -> int:
        """Write a snapshot; remove all but the last two.

        Returns:
            Its bytes.

        Raises:
            SnapshotError: it cannot be written, or a newer attempt has taken over. The
                older ones are unchanged.

        """
        try:
            self._make()
            with self._opened() as folder:
                return self._write(folder, snapshot)
        except OSError as error:
            self._made = False  # it may be missing
            raise SnapshotError(f"{self.path}: {error.strerror}") from error

    def take_over(
        self, source: int, owner: Callable[[Identity], Identity]
    ) -> SnapshotSummary:
        """Copy another task's snapshot here, as that of an attempt before the first.

        Args:
            source: the open file.
            owner: returns the task of this folder, or refuses the one that wrote it.

        Raises:
            SnapshotError: it is not valid, or the task has snapshots of its own.
            OSError: it cannot be read or written.

        """
        self._make()
        with self._opened() as folder:
            if any(name != FIRST for name in _generations(folder)):
                raise SnapshotError("the task has begun, and has snapshots of its own")
            draft = f".{FIRST}.new"
            with _drafted(folder, draft) as target:
                summary = copy(source, target, owner, self._limit)
            os.rename(draft, FIRST, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        return summary

    def newest(
        self, owner: Identity, use: Callable[[Snapshot], None] = lambda _found: None
    ) -> tuple[Snapshot | None, list[Refused]]:
        """Return the newest valid snapshot, and the rejected files.

        Args:
            owner: the task.
            use: restores a snapshot; raises `SnapshotError` if it is unusable.

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
        # Also if they existed: their creator may have died before this.
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
        with _drafted(folder, draft) as descriptor:
            size = write(descriptor, snapshot)
            reach("snapshot.drafted")
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        reach("snapshot.named")
        os.fsync(folder)
        for old in known[: len(known) + 1 - GENERATIONS]:
            os.unlink(old, dir_fd=folder)
        _clear(folder, snapshot.epoch)
        self.latest = self.path / name
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
            return found  # noqa: TRY300  a failure in `use` also means a bad file
        except SnapshotError as error:
            reason = str(error)
        except OSError as error:
            reason = error.strerror or str(error)
        self._put_aside(folder, name)
        return Refused(name, reason)

    def _put_aside(self, folder: int, name: str) -> None:
        """Rename a bad file, so that it is not tried again."""
        self._refused.add(name)
        with contextlib.suppress(OSError):
            os.rename(name, f"{name}.bad", src_dir_fd=folder, dst_dir_fd=folder)


def _generations(folder: int) -> list[str]:
    """List the complete snapshots, oldest first."""
    return sorted(name for name in os.listdir(folder) if NAME.fullmatch(name))


def _clear(folder: int, epoch: int) -> None:
    """Remove bad files, and drafts of earlier attempts that were killed."""
    for name in os.listdir(folder):
        left = LEFT.fullmatch(name)
        if left and int(left[1], 16) <= epoch:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)


def _next_name(known: list[str], epoch: int) -> str:
    """Return the name of an attempt's next snapshot.

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


@contextlib.contextmanager
def _drafted(folder: int, draft: str) -> Iterator[int]:
    """Create a file under a temporary name; remove it after an error."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=folder)  # of a killed attempt
    descriptor = os.open(draft, DRAFT_FLAGS, 0o600, dir_fd=folder)
    try:
        yield descriptor
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise
    finally:
        os.close(descriptor)


def _force(path: Path) -> None:
    """Flush a folder's entries to disk."""
    folder = os.open(path, FOLDER_FLAGS)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
