"""How tests have snapshots written, and judge what was gone on from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from system.private_daemon import PATIENCE, RESOURCES, SETTINGS, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.messages import SnapshotInfo
    from system.private_daemon import PrivateDaemon
    from system.tracing import Tracing


OFTEN = "[snapshots]\nmtbf_s = 1e-9\nminimum_s = 0.0\nlow_memory = 0.0\n"
"""A snapshot whenever one takes no longer than the computing since the last."""

ON_DEMAND = "[snapshots]\nmtbf_s = 0.0\nlow_memory = 0.0\n"

AT_ONCE = "[snapshots]\nmtbf_s = 0.0\nlow_memory = 1.0\n"
"""Memory is always low: what waits in a worker waits on disk as soon as it is idle."""

LONG = 200
"""Strips of tasks that must not end before an order reaches them."""


def settings(snapshots: str, top: str = "") -> str:
    return top + SETTINGS + snapshots + RESOURCES


def folder_in(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    return folder


def snapshot_at_gate(daemon: PrivateDaemon, task: Tracing) -> SnapshotInfo:
    """Have a task that waits at its gate write a snapshot when it goes on."""
    daemon.client.snapshot(task.id)
    task.open_gate()
    return eventually(lambda: daemon.info(task.id).snapshot, "a snapshot")


def files_of(daemon: PrivateDaemon, task: int) -> list[Path]:
    """List the snapshot files of a task, oldest first."""
    shelf = daemon.crew_folder / "snapshots"
    return sorted(shelf.glob(f"{task}-*/*.snapshot"))


def check_resumed(task: Tracing, done: int, total: int) -> None:
    """Demand that the strips after `done`, and only these, ran a second time."""
    assert task.handle.result(PATIENCE)["sum"] == sum(range(total))
    assert task.handle.result(PATIENCE)["counted"] == total
    strips = task.strips()
    assert len(task.pids()) == 2
    first = strips.index(done, done + 1)
    assert strips[:first] == [*range(first)]
    assert strips[first:] == [*range(done, total)]


def beyond(daemon: PrivateDaemon, task: int, done: int) -> SnapshotInfo | None:
    snapshot = daemon.info(task).snapshot
    return snapshot if snapshot is not None and snapshot.done > done else None
