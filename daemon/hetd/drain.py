"""Drain: stop every task at a checkpoint, and have it on disk, before the daemon ends.

What waits in a worker stays there too: where workers outlive the daemon they go on from
memory, and where the machine goes down, from the snapshots.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hetsched import events as e
from hetsched.tasks import State

if TYPE_CHECKING:
    from hetd.node import Node
    from hetsched.ids import TaskId
    from hetsched.tasks import TaskRecord
    from libtask.messages import SnapshotInfo

log = logging.getLogger("hetd")


class Drain:
    """The tasks that are not on disk yet as far as they have come."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._awaited = {
            task.id for task in node.scheduler.system.tasks.values() if _has_begun(task)
        }
        self._before: dict[TaskId, SnapshotInfo | None] = {}
        """The snapshot that there was when a newer one was asked for."""
        node.stopping = True
        node.happen(e.NodeStopping())

    def left(self) -> list[int]:
        """Ask for the snapshots of those that have yielded; return what is awaited."""
        self._awaited = {task for task in self._awaited if not self._is_done(task)}
        return sorted(self._awaited)

    def _is_done(self, task: TaskId) -> bool:
        record = self._node.scheduler.system.tasks.get(task)
        if record is None or not _has_begun(record):
            return True  # it ended, or has no worker any more
        if record.state is State.RUNNING:
            return False
        return self._is_saved(task)

    def _is_saved(self, task: TaskId) -> bool:
        entry = self._node.journal.live[task]
        if task not in self._before:
            self._before[task] = entry.snapshot
            entry.snapshot_error = ""
            self._node.orders.want_snapshot(task)
        if entry.snapshot_error:
            log.warning("task %d: no snapshot: %s", task, entry.snapshot_error)
            return True
        return entry.snapshot is not self._before[task]


def _has_begun(task: TaskRecord) -> bool:
    return task.bound and task.state in (State.RUNNING, State.PREEMPTED)
