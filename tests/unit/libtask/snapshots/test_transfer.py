"""Snapshots that go from one hetd to another: nothing is lost, nothing foreign is taken."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from libtask.messages import CheckpointRecord
from libtask.snapshots import (
    Identity,
    Snapshot,
    SnapshotError,
    SnapshotFolder,
    adopt,
    export,
    pack,
    put_back,
)
from libtask.snapshots.file import PREFIX
from unit.libtask.snapshots.snapshot_tasks import (
    LIMIT,
    OWNER,
    Simple,
    Tight,
    loaded,
    names,
    snapshot_of,
)

NEW = Identity("12-def", 12, "app", "v1")
"""The task of another hetd that is to continue."""

TYPES = st.sampled_from(["f4", "f8", "i2", "u1", "c16", "?"])
STATES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    TYPES.flatmap(lambda kind: arrays(kind, array_shapes(max_dims=3, max_side=5))),
    min_size=1,
)


def written(folder: SnapshotFolder, **fields: Any) -> Path:
    """Write a snapshot; return its file."""
    folder.write(snapshot_of(loaded(Tight), **fields))
    return folder.path / names(folder)[-1]


def refusal(path: Path, tmp_path: Path, identity: Identity = NEW) -> str:
    """Return why a file is not adopted; nothing may be left of the attempt."""
    folder = tmp_path / "new" / identity.name
    with pytest.raises(SnapshotError) as caught:
        adopt(path, identity, folder)
    assert not folder.exists() or not list(folder.iterdir())
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


@settings(max_examples=60, deadline=None)
@given(STATES, st.integers(0, 9), st.integers(1, 1 << 40))
def test_what_is_exported_and_adopted_reads_as_it_was_written(
    state: dict[str, Any], done: int, epoch: int
) -> None:
    record = CheckpointRecord(done, 9, {"residual": 0.25})
    with TemporaryDirectory() as parent:
        root = Path(parent)
        folder = SnapshotFolder(root / "old" / OWNER.name, LIMIT)
        packed = pack(with_state(state))
        size = folder.write(Snapshot(OWNER, epoch, 123.5, record, packed))

        copied = export(folder.path / names(folder)[0], root / "copy")
        adopted = adopt(root / "copy", NEW, root / "new" / NEW.name)
        found, refused = SnapshotFolder(root / "new" / NEW.name, LIMIT).newest(NEW)

        assert (copied.identity, copied.epoch) == (OWNER, epoch)
        assert (copied.progress, copied.size_bytes) == (done / 9, size)
        assert (adopted.identity, adopted.epoch) == (NEW, 0)
        assert not refused
        assert found is not None
        assert (found.checkpoint, found.written) == (record, 123.5)
        again = Simple()
        put_back(again, found.packed)
        for name, array in state.items():
            np.testing.assert_array_equal(getattr(again, name), array)
            assert getattr(again, name).dtype == array.dtype


def with_state(state: dict[str, Any]) -> Simple:
    """Return a task of which this is the whole state."""

    class Stateful(Simple):
        state_names = tuple(state)

    task = Stateful()
    vars(task).update(state)
    return task


def test_a_state_of_any_kind_survives(folder: SnapshotFolder, tmp_path: Path) -> None:
    task = loaded()
    task.grid[:] = 7
    folder.write(snapshot_of(task))
    adopt(folder.path / names(folder)[0], NEW, tmp_path / "new" / NEW.name)
    found, _ = SnapshotFolder(tmp_path / "new" / NEW.name, LIMIT).newest(NEW)

    again = loaded()
    assert found is not None
    put_back(again, found.packed)
    assert (again.row == 7).all()
    assert again.pair.right[1] == "text"
    assert again.random.random() == task.random.random()


def test_files_are_only_for_their_owner(folder: SnapshotFolder, tmp_path: Path) -> None:
    export(written(folder), tmp_path / "copy")
    adopt(tmp_path / "copy", NEW, tmp_path / "new" / NEW.name)

    (adopted,) = (tmp_path / "new" / NEW.name).iterdir()
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    assert adopted.stat().st_mode & 0o777 == 0o600
    assert adopted.name == f"{0:016x}-{0:08d}.snapshot"


def test_the_attempts_of_the_new_task_write_above_it(
    folder: SnapshotFolder, tmp_path: Path
) -> None:
    path = written(folder, epoch=1 << 50)
    new = SnapshotFolder(tmp_path / "new" / NEW.name, LIMIT)
    adopt(path, NEW, new.path)
    adopt(path, NEW, new.path)  # repeated, as after a crash
    record = CheckpointRecord(8, 10)
    new.write(Snapshot(NEW, 3, 124.0, record, pack(loaded(Tight))))

    found, _ = new.newest(NEW)
    assert found is not None
    assert found.checkpoint == record
    with pytest.raises(SnapshotError, match="has begun, and has snapshots of its own"):
        adopt(path, NEW, new.path)


def test_foreign_snapshots_are_refused(folder: SnapshotFolder, tmp_path: Path) -> None:
    path = written(folder)

    other_app = refusal(path, tmp_path, Identity("12-def", 12, "other", "v1"))
    other_version = refusal(path, tmp_path, Identity("12-def", 12, "app", "v2"))

    assert "is of another application, app; the task is of other" in other_app
    assert "is of another version of app: install the same code" in other_version


def test_the_same_file_in_another_folder_is_the_same_application(
    folder: SnapshotFolder, tmp_path: Path
) -> None:
    task, record = loaded(Tight), CheckpointRecord(5, 10)
    owner = Identity(OWNER.name, OWNER.task, "/home/a/sim.py:Flow", "v1")
    folder.write(Snapshot(owner, 1, 123.5, record, pack(task)))
    new = Identity(NEW.name, NEW.task, "/srv/b/sim.py:Flow", "v1")

    adopt(folder.path / names(folder)[0], new, tmp_path / new.name)

    found, refused = SnapshotFolder(tmp_path / new.name, LIMIT).newest(new)
    assert found is not None
    assert not refused


def test_a_newer_format_is_refused(folder: SnapshotFolder, tmp_path: Path) -> None:
    path = written(folder)
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, 8, 2)
    path.write_bytes(content)

    assert "its format is 2; this libtask reads 1" in refusal(path, tmp_path)


def test_damage_is_found_wherever_it_is(folder: SnapshotFolder, tmp_path: Path) -> None:
    path = written(folder)
    whole = path.read_bytes()
    draw = random.Random(5)
    places = {*range(PREFIX.size), len(whole) - 1, *draw.sample(range(len(whole)), 100)}
    for place in sorted(places):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        refusal(path, tmp_path)
        with pytest.raises(SnapshotError):
            export(path, tmp_path / "copy")
    for length in (0, 7, PREFIX.size, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refusal(path, tmp_path)
    path.write_bytes(whole + b"more")
    refusal(path, tmp_path)
    assert [each.name for each in tmp_path.iterdir() if "copy" in each.name] == []


def test_what_is_not_a_file_is_refused(folder: SnapshotFolder, tmp_path: Path) -> None:
    path = written(folder)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(path)

    assert "not a regular file" in refusal(tmp_path / "fifo", tmp_path)
    assert "symbolic links" in refusal(tmp_path / "link", tmp_path)
    assert "No such file" in refusal(tmp_path / "absent", tmp_path)
    assert "not a regular file" in refusal(tmp_path, tmp_path)
