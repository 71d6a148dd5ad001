"""Files that are no whole snapshot of the task are never used."""

from __future__ import annotations

import errno
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from libtask.snapshots import Identity, SnapshotError, SnapshotFolder, file
from unit.libtask.snapshots.snapshot_tasks import (
    LIMIT,
    OWNER,
    Tight,
    loaded,
    names,
    snapshot_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from libtask.task import Task


FLIPS = int(os.environ.get("HETD_FUZZ_FLIPS", "1000"))


def test_a_cut_off_snapshot_is_refused_at_every_length(folder: SnapshotFolder) -> None:
    whole = _written(folder, loaded(Tight))

    for length in range(len(whole)):
        assert _refused(whole[:length]), f"{length} of {len(whole)} bytes were accepted"
    assert _refused(whole + b"\0")
    assert not _refused(whole)


@pytest.mark.timeout(120 + FLIPS // 100)
def test_no_flipped_bit_is_accepted(folder: SnapshotFolder) -> None:
    whole = _written(folder, loaded())
    chosen = random.Random(5)

    for _ in range(FLIPS):
        bit = chosen.randrange(8 * len(whole))
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        assert _refused(flipped), f"bit {bit} was flipped and the file accepted"


def _written(folder: SnapshotFolder, task: Task) -> bytes:
    folder.write(snapshot_of(task))
    (path,) = folder.path.iterdir()
    return path.read_bytes()


def _refused(content: bytes | bytearray) -> str:
    """Return why a file of this content is refused; empty: it is not."""
    descriptor = os.memfd_create("snapshot")  # a disk would be slower
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        file.read(descriptor, OWNER, LIMIT)
    except SnapshotError as error:
        return str(error)
    finally:
        os.close(descriptor)
    return ""


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("name", "8-abc", "it is of another task"),
        ("task", 8, "it is of another task"),
        ("app", "other", "it is of another application"),
        ("version", "v2", "its application has changed"),
    ],
)
def test_the_snapshot_of_another_is_refused(
    folder: SnapshotFolder, field: str, value: Any, complaint: str
) -> None:
    folder.write(snapshot_of(loaded(Tight)))
    values = {name: getattr(OWNER, name) for name in Identity.__slots__}

    found, (refused,) = folder.newest(Identity(**{**values, field: value}))

    assert found is None
    assert complaint in refused.reason


def test_a_newer_format_is_refused(
    folder: SnapshotFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(file, "VERSION", 2)
        folder.write(snapshot_of(loaded(Tight)))

    _, (refused,) = folder.newest(OWNER)

    assert refused.reason == "its format is 2; this libtask reads 1"


def _as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _as_link(path: Path) -> None:
    aim = path.parent.parent / "elsewhere"
    path.rename(aim)
    path.symlink_to(aim)


def _as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _as_huge(path: Path) -> None:
    os.truncate(path, 100 << 30)


def _as_another_users(path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, 12345, -1)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (_as_fifo, "not a regular file"),
        (_as_link, os.strerror(errno.ELOOP)),
        (_as_folder, "not a regular file"),
        (_as_huge, "above 1073741824"),
        (_as_another_users, "belongs to uid 12345"),
    ],
)
def test_what_is_no_file_of_ours_is_refused_and_the_older_used(
    folder: SnapshotFolder, make: Callable[[Path], None], complaint: str
) -> None:
    task = loaded(Tight)
    for done in (1, 2):
        folder.write(snapshot_of(task, done=done))
    make(folder.path / names(folder)[-1])

    found, (refused,) = folder.newest(OWNER)

    assert found is not None
    assert found.checkpoint.done == 1
    assert complaint in refused.reason
