"""Tasks whose states are kept, and what of them lies in a folder of snapshots."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np

from libtask.messages import CheckpointRecord
from libtask.snapshots import Identity, Snapshot, SnapshotFolder, pack
from libtask.task import Task

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


def names(folder: SnapshotFolder) -> list[str]:
    return sorted(path.name for path in folder.path.iterdir())


def done_of(folder: SnapshotFolder) -> int | None:
    """Return where the newest good snapshot stands."""
    found, _ = folder.newest(OWNER)
    return found.checkpoint.done if found else None
