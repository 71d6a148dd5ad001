"""Snapshots: what is written comes back bit for bit, and nothing else ever does."""

from __future__ import annotations

import errno
import math
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from collections import namedtuple
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from libtask.messages import CheckpointRecord, SnapshotTerms
from libtask.snapshots import (
    Identity,
    Pace,
    Snapshot,
    SnapshotError,
    SnapshotFolder,
    file,
    pack,
    put_back,
)
from libtask.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OWNER = Identity("7-abc", 7, "app", "v1")
LIMIT = 1 << 30

Pair = namedtuple("Pair", "left right")  # noqa: PYI024  as applications have them


@dataclass
class Simple(Task):
    """Holds what a task may hold."""

    n: int = 4

    def load(self) -> None:
        self.grid = np.arange(self.n * 3, dtype=np.float32).reshape(self.n, 3)
        self.row = self.grid[1]
        self.pair = Pair(np.zeros(3, np.int64), [np.ones(2, bool), "text"])
        self.none = np.zeros((0, 2), np.uint8)
        self.point = np.array(1.5)
        self.dates = np.array(["2026-01-02"], "datetime64[D]")
        self.turned = np.asfortranarray(np.arange(6.0).reshape(2, 3))
        self.random = np.random.default_rng(3)
        self.count = 0


@dataclass
class Tight(Task):
    """Says which attributes its strips change."""

    state_names = ("grid",)

    def load(self) -> None:
        self.grid = np.zeros(8, np.uint8)
        self.table = np.zeros(1000)


def loaded(app: type[Task] = Simple) -> Any:
    task = app()
    task.load()
    return task


def snapshot_of(task: Task, epoch: int = 1, done: int = 5) -> Snapshot:
    record = CheckpointRecord(done, 10, {"residual": 0.5})
    return Snapshot(OWNER, epoch, 123.5, record, pack(task))


@pytest.fixture
def folder(tmp_path: Path) -> SnapshotFolder:
    return SnapshotFolder(tmp_path / "snapshots" / OWNER.name, LIMIT)


def names(folder: SnapshotFolder) -> list[str]:
    return sorted(path.name for path in folder.path.iterdir())


def done_of(folder: SnapshotFolder) -> int | None:
    """Return where the newest good snapshot stands."""
    found, _ = folder.newest(OWNER)
    return found.checkpoint.done if found else None


# ---------------------------------------------------------------- state


def test_a_fresh_task_gets_the_whole_state(folder: SnapshotFolder) -> None:
    task = loaded()
    task.grid *= 2
    task.pair.left[:] = 9
    task.turned[0, 2] = -1
    task.count = 3
    drawn = task.random.random(4)
    folder.write(snapshot_of(task))

    found, refused = folder.newest(OWNER)
    assert found is not None
    assert refused == []
    assert found.checkpoint == CheckpointRecord(5, 10, {"residual": 0.5})
    assert (found.epoch, found.written) == (1, 123.5)
    fresh = loaded()
    fresh.random.random(4)
    put_back(fresh, found.packed)

    for name in ("grid", "none", "point", "dates", "turned"):
        assert np.array_equal(getattr(fresh, name), getattr(task, name)), name
    assert np.array_equal(fresh.pair.left, task.pair.left)
    assert (fresh.pair.right[1], fresh.count) == ("text", 3)
    assert np.array_equal(fresh.random.random(4), task.random.random(4))
    assert len(drawn) == 4


def test_views_see_what_is_put_back() -> None:
    task, fresh = loaded(), loaded()
    task.grid[1] = 77

    put_back(fresh, pack(task))

    assert fresh.row.tolist() == [77, 77, 77]
    assert np.shares_memory(fresh.row, fresh.grid)


def test_only_the_named_attributes_are_kept() -> None:
    task, fresh = loaded(Tight), loaded(Tight)
    task.grid[:] = 5
    task.table[:] = 5

    packed = pack(task)
    put_back(fresh, packed)

    assert packed.names == ["grid"]
    assert fresh.grid.tolist() == [5] * 8
    assert not fresh.table.any()


def test_what_cannot_be_kept_is_said() -> None:
    task = loaded()
    task.lock = threading.Lock()

    with pytest.raises(TypeError, match="lock"):
        pack(task)


# ---------------------------------------------------------------- files


def test_two_generations_are_kept(folder: SnapshotFolder) -> None:
    task = loaded(Tight)
    for done in (1, 2, 3, 4):
        folder.write(snapshot_of(task, done=done))

    assert len(names(folder)) == 2
    assert done_of(folder) == 4
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o777 for p in folder.path.iterdir()} == {0o600}


def test_a_cut_off_snapshot_is_refused_at_every_length(folder: SnapshotFolder) -> None:
    whole = _written(folder, loaded(Tight))

    for length in range(len(whole)):
        assert _refused(whole[:length]), f"{length} of {len(whole)} bytes were accepted"
    assert _refused(whole + b"\0")
    assert not _refused(whole)


def test_no_flipped_bit_is_accepted(folder: SnapshotFolder) -> None:
    whole = _written(folder, loaded())
    chosen = random.Random(5)

    for _ in range(1000):
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
        (_as_fifo, "no regular file"),
        (_as_link, os.strerror(errno.ELOOP)),
        (_as_folder, "no regular file"),
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

    assert first.reason == "it is cut off"
    assert second.reason == "it was refused before"


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


# ---------------------------------------------------------------- disks


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


# ---------------------------------------------------------------- pace


def test_the_interval_is_that_of_young_and_daly() -> None:
    pace = Pace(SnapshotTerms(mtbf_s=86_400.0, minimum_s=1.0), 0)
    pace.took(0.5)

    assert pace.interval_s == pytest.approx(math.sqrt(2 * 0.5 * 86_400) - 0.5)
    assert pace.worthwhile(None)
    assert pace.worthwhile(0.51 * pace.interval_s)
    assert not pace.worthwhile(0.49 * pace.interval_s)


def test_the_interval_has_bounds_and_an_end() -> None:
    never = Pace(SnapshotTerms(mtbf_s=0.0), 1 << 30)
    least = Pace(SnapshotTerms(mtbf_s=1.0, minimum_s=10.0), 0)
    slow = Pace(SnapshotTerms(mtbf_s=1.0, minimum_s=0.0), 0)
    slow.took(7.0)

    assert never.interval_s == math.inf
    assert not never.worthwhile(1e9)
    assert least.interval_s == 10.0
    assert slow.interval_s == 7.0


def test_a_larger_state_is_expected_to_take_longer() -> None:
    terms = SnapshotTerms(minimum_s=0.0)
    small, large = Pace(terms, 1 << 20), Pace(terms, 1 << 32)

    assert small.interval_s < large.interval_s


def test_where_none_can_be_written_it_is_tried_less_often() -> None:
    pace = Pace(SnapshotTerms(), 0)
    before = pace.interval_s

    pace.failed()
    pace.failed()
    after = pace.interval_s
    pace.took(0.02)

    assert after == 4 * before
    assert pace.interval_s == before
