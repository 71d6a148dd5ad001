"""Which snapshots a folder keeps, and which of them it finds, whatever ended the writers."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from libtask.snapshots import SnapshotError, SnapshotFolder
from unit.libtask.snapshots.snapshot_tasks import (
    LIMIT,
    OWNER,
    Tight,
    done_of,
    loaded,
    names,
    snapshot_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_two_generations_are_kept(folder: SnapshotFolder) -> None:
    task = loaded(Tight)
    for done in (1, 2, 3, 4):
        folder.write(snapshot_of(task, done=done))

    assert len(names(folder)) == 2
    assert done_of(folder) == 4
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o777 for p in folder.path.iterdir()} == {0o600}


def test_without_a_snapshot_there_is_none(folder: SnapshotFolder) -> None:
    assert folder.newest(OWNER) == (None, [])


def test_an_attempt_that_was_given_up_writes_no_more(folder: SnapshotFolder) -> None:
    task = loaded(Tight)
    folder.write(snapshot_of(task, epoch=2, done=6))

    with pytest.raises(SnapshotError, match="newer attempt"):
        folder.write(snapshot_of(task, epoch=1, done=9))

    assert done_of(folder) == 6


def test_the_successor_goes_on_above_its_predecessor(folder: SnapshotFolder) -> None:
    task = loaded(Tight)
    for epoch, done in ((0x9, 1), (0x10, 2), (0x1_0000_0000, 3)):
        folder.write(snapshot_of(task, epoch=epoch, done=done))

    assert done_of(folder) == 3


def test_a_bad_file_is_tried_once(folder: SnapshotFolder) -> None:
    for done in (1, 2):
        folder.write(snapshot_of(loaded(Tight), done=done))
    newest = folder.path / names(folder)[-1]
    newest.write_bytes(b"hetsnap\n")

    _, refused = folder.newest(OWNER)
    found, again = SnapshotFolder(folder.path, LIMIT).newest(OWNER)

    assert [each.file for each in refused] == [newest.name]
    assert found is not None
    assert (found.checkpoint.done, again) == (1, [])
    assert f"{newest.name}.bad" in names(folder)


def test_where_it_cannot_be_put_aside_it_is_remembered(
    folder: SnapshotFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write(snapshot_of(loaded(Tight)))
    (path,) = folder.path.iterdir()
    path.write_bytes(b"x")

    def refuse(*_names: Any, **_folders: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "rename", refuse)
    _, (first,) = folder.newest(OWNER)
    _, (second,) = folder.newest(OWNER)

    assert first.reason == "it is truncated"
    assert second.reason == "it was refused before"


def test_what_killed_writers_left_goes_with_the_next_snapshot(
    folder: SnapshotFolder,
) -> None:
    folder.write(snapshot_of(loaded(Tight), done=1))
    stem = f"{1:016x}-"
    for left in (f".{stem}00000007.snapshot.new", f"{stem}00000006.snapshot.bad"):
        (folder.path / left).write_text("x")
    successors = f".{9:016x}-00000000.snapshot.new"
    (folder.path / successors).write_text("x")

    folder.write(snapshot_of(loaded(Tight), epoch=2, done=2))

    assert len(names(folder)) == 3
    assert successors in names(folder)


@contextmanager
def little_space() -> Iterator[None]:
    """Let no file of this process grow above 4 KiB: also not that of the tests' report."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_a_snapshot_that_does_not_fit_leaves_the_older_ones(
    folder: SnapshotFolder,
) -> None:
    task = loaded(Tight)
    folder.write(snapshot_of(task, done=1))
    task.grid = np.zeros(10_000)

    with (
        little_space(),
        pytest.raises(SnapshotError, match=os.strerror(errno.EFBIG)),
    ):
        folder.write(snapshot_of(task, done=2))

    assert len(names(folder)) == 1
    assert done_of(folder) == 1


WRITER = """
import sys
from pathlib import Path
import numpy as np
from libtask.messages import CheckpointRecord
from libtask.snapshots import *

class Holder:
    state_names = ()

holder = Holder()
folder = SnapshotFolder(Path(sys.argv[1]), 1 << 30)
owner = Identity("7-abc", 7, "app", "v1")
for done in range(1, 1 << 30):
    holder.data = np.full(50_000, done)
    folder.write(Snapshot(owner, 1, 0.0, CheckpointRecord(done), pack(holder)))
    print(done, flush=True)
"""


def test_a_writer_killed_at_any_moment_leaves_a_whole_snapshot(tmp_path: Path) -> None:
    """Kill some writers; what the reader finds is whole, and not older than was told."""
    chosen = random.Random(11)
    for number in range(6):
        path = tmp_path / str(number)
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(chosen.randrange(1, 30)):
                writer.stdout.readline()
            threading.Event().wait(chosen.random() * 0.003)
            writer.kill()
            told = writer.stdout.read().split()
        found, refused = SnapshotFolder(path, LIMIT).newest(OWNER)
        assert refused == []
        assert found is not None
        assert found.checkpoint.done >= int(told[-1] if told else 1)
        (data,) = found.packed.arrays
        assert np.unique(data).tolist() == [found.checkpoint.done]
