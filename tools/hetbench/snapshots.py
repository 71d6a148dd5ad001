"""Snapshots: time to write and to read one by its bytes, and what they cost a task.

`write`: from the task's arrays to the disk, forced. `again`: read, checked and put into
the arrays. Beside them what the disk takes for the same bytes without any format. The
interval is that of Young and Daly for a failure a day, and `share` what snapshots cost
at that interval. `loaded` is the whole way on a real task: heat on the CPU, alone and
with snapshots much more often than they would be by themselves.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetapps.heat import Heat
from hetbench.resources import CPU_ONLY
from libtask.daemon.private import private_daemon
from libtask.messages import CheckpointRecord, SnapshotSettings
from libtask.snapshots import (
    Identity,
    Snapshot,
    SnapshotFolder,
    SnapshotInterval,
    pack,
    put_back,
)
from libtask.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.messages import TaskInfo

SIZES = (1 << 12, 1 << 20, 1 << 24, 1 << 27, 1 << 29)
REPEATS = 5
OWNER = Identity("1-1", 1, "bench", "1")
OFTEN = "[snapshots]\nmtbf_s = 0.5\nminimum_s = 0.0\n"
NEVER = "[snapshots]\nmtbf_s = 0.0\n"


class Holder(Task):
    """Holds an array."""

    def __init__(self, size: int) -> None:
        self.data = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)


def run() -> list[dict[str, Any]]:
    """Measure each size, then a task."""
    # not in memory: /tmp may be
    with tempfile.TemporaryDirectory(prefix="hetbench-", dir=Path.cwd()) as folder:
        rows = [_measure(Path(folder), size) for size in SIZES]
    return [*rows, _loaded()]


def _measure(folder: Path, size: int) -> dict[str, Any]:
    task = Holder(size)
    kept = SnapshotFolder(folder / str(size), 1 << 40)

    def write() -> None:
        record = CheckpointRecord(1, 2)
        kept.write(Snapshot(OWNER, 1, 0.0, record, pack(task)))

    def again() -> None:
        found, _ = kept.newest(OWNER)
        if found is None:
            raise RuntimeError("the snapshot just written is not there")
        put_back(task, found.packed)

    written_s = _median(write)
    pace = SnapshotInterval(SnapshotSettings(), size)
    pace.took(written_s)
    return {
        "bytes": size,
        "write_ms": round(1e3 * written_s, 3),
        "disk_alone_ms": round(1e3 * _median(lambda: _plain(folder, task.data)), 3),
        "again_ms": round(1e3 * _median(again), 3),
        "interval_s": round(pace.interval_s, 1),
        "share_percent": round(100 * written_s / pace.interval_s, 4),
    }


def _plain(folder: Path, data: Any) -> None:
    """Write the same bytes as a file, forced."""
    path = folder / "plain"
    with path.open("wb", buffering=0) as file:
        file.write(data)
        os.fsync(file.fileno())
    path.unlink()


def _median(action: Callable[[], None]) -> float:
    took = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        action()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def _loaded() -> dict[str, Any]:
    """Compare a task with and without snapshots, alternately."""
    without, with_them, last = [], [], None
    for _ in range(3):
        without.append(_seconds(_heat(NEVER)))
        last = _heat(OFTEN)
        with_them.append(_seconds(last))
    snapshot = last.snapshot if last else None
    return {
        "task": "heat 2048 on the CPU, a snapshot about every 0.1 s of computing",
        "without_s": round(statistics.median(without), 3),
        "with_s": round(statistics.median(with_them), 3),
        "snapshot_bytes": snapshot.bytes if snapshot else 0,
        "snapshot_ms": round(1e3 * snapshot.seconds, 2) if snapshot else None,
    }


def _heat(snapshots: str) -> TaskInfo:
    with private_daemon(snapshots + CPU_ONLY) as client:
        task = client.submit(Heat(n=2048, steps=800))
        task.result()
        return task.info()


def _seconds(info: TaskInfo) -> float:
    """Return the time from the first strip to the end."""
    first = info.segments[0].computing
    return (info.finished or 0.0) - (first or 0.0)
