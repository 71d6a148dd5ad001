"""Snapshots on their way to another hetd: copied out of a folder, and into another task's.

A snapshot belongs to one task of one hetd. `export` copies it to a file of the caller,
because hetd removes those of ended tasks; `adopt` copies such a file for a task that was
submitted elsewhere, held and with `resume`. Both check all of it and change nothing else.
A state is pickled: adopt only files that come from a task of your own.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.apps import machine_memory, short_name
from libtask.snapshots.file import SnapshotError, copy
from libtask.snapshots.folder import DRAFT_FLAGS, READ_FLAGS, SnapshotFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.snapshots.file import Identity, SnapshotSummary


def export(path: Path | str, target: Path | str) -> SnapshotSummary:
    """Copy a task's snapshot to a file of the caller, which is replaced at the end.

    Args:
        path: the snapshot, such as `ParkedTask.path`.
        target: the copy, which only its owner may read.

    Raises:
        SnapshotError: it is not a valid snapshot, or cannot be copied; gives the reason
            in one line.

    """
    source, copied = Path(path), Path(target)
    draft = copied.with_name(f".{copied.name}.new")
    with _reporting(source):
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()  # of an export that was killed
        try:
            with _opened(source) as reading, _created(draft) as writing:
                summary = copy(reading, writing, lambda owner: owner, machine_memory())
            draft.replace(copied)
            _flush(copied.parent)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    return summary


def adopt(path: Path | str, identity: Identity, folder: Path | str) -> SnapshotSummary:
    """Copy an exported snapshot into the folder of a task that has not begun.

    The task continues from it if it was submitted with `resume`. `TaskHandle.adopt`
    calls this with the identity and the folder of the task.

    Args:
        path: the exported file.
        identity: the task that is to continue from it.
        folder: the folder of its snapshots.

    Raises:
        SnapshotError: it is damaged, of another application or version, of a newer
            format or too large, or the task has snapshots of its own; nothing was
            changed.

    """
    source = Path(path)

    def owner(before: Identity) -> Identity:
        if short_name(before.app) != short_name(identity.app):
            raise SnapshotError(
                f"it is of another application, {before.app}; the task is of {identity.app}"
            )
        if before.version != identity.version:
            raise SnapshotError(
                f"it is of another version of {before.app}: install the same code"
            )
        return identity

    with _reporting(source), _opened(source) as reading:
        return SnapshotFolder(Path(folder), machine_memory()).take_over(reading, owner)


@contextlib.contextmanager
def _reporting(path: Path) -> Iterator[None]:
    """Name the file in the reason of an error."""
    try:
        yield
    except SnapshotError as error:
        raise SnapshotError(f"snapshot {path}: {error}") from error
    except OSError as error:
        where = error.filename or path
        raise SnapshotError(f"snapshot {where}: {error.strerror}") from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, READ_FLAGS)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _created(path: Path) -> Iterator[int]:
    descriptor = os.open(path, DRAFT_FLAGS, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _flush(folder: Path) -> None:
    """Flush a folder's entries to disk."""
    with _opened(folder) as descriptor:
        os.fsync(descriptor)
