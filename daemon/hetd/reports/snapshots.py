"""Snapshots, as the daemon knows them: which there are, and whose are still needed.

It never sees one: workers write and read them, launchers remove them. Called by the
crew desk and the loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hetsched import events as e
from hetsched.ids import TaskId
from libtask import messages as m

if TYPE_CHECKING:
    from hetd.runtime import Node
    from hetd.tasks.page import Entry
    from hetd.transport.router import Peer

log = logging.getLogger("hetd")


class SnapshotDesk:
    """Takes what workers and launchers say of snapshots."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.refused = 0
        """Snapshots that were bad, or of something else."""

    def taken(self, entry: Entry, message: m.SnapshotTaken) -> None:
        """Note a snapshot, or why there is none."""
        entry.snapshot_error = message.error
        if not message.error:
            stands = message.checkpoint
            entry.snapshot = m.SnapshotInfo(
                stands.done, stands.total, message.at, message.bytes, message.seconds
            )
            entry.at_risk = 0.0
            if stands.done:
                event = e.SnapshotTaken(TaskId(entry.id), message.epoch, entry.kept)
                self._node.happen(event)
        self._tell(entry, "snapshot-failed" if message.error else "snapshot")

    def resumed(self, entry: Entry, message: m.Resumed) -> None:
        """Note where a task goes on that was loaded anew."""
        for refused in message.refused:
            self.refused += 1
            log.warning("task %d: a snapshot is not used: %s", entry.id, refused)
        entry.refused += len(message.refused)
        entry.checkpoint = message.checkpoint
        entry.at_risk = 0.0
        if message.checkpoint.done == 0:
            entry.snapshot = None  # none was good
        event = e.TaskResumed(TaskId(entry.id), message.epoch, entry.progress)
        self._node.happen(event)
        self._tell(entry, "resumed")

    def parked(self, entry: Entry, message: m.Parked) -> None:
        """Note that a task which waits has no worker any more."""
        self._node.pool.release(entry.id)
        self._node.happen(e.TaskParked(TaskId(entry.id), message.epoch))
        entry.in_worker = False
        self._tell(entry, "parked")

    def held(self, peer: Peer, message: m.SnapshotsHeld) -> None:
        """Have a launcher remove the snapshots of tasks that have ended, once that is durable."""
        journal = self._node.journal
        owned = {
            entry.snapshots_name
            for name in message.names
            if (entry := journal.live.get(_task(name))) and entry.owner == peer.uid
        }
        ended = [name for name in message.names if name not in owned]
        if ended:
            journal.batch.replies.append((peer.route, m.DropSnapshots(ended)))

    def _tell(self, entry: Entry, event: str) -> None:
        if entry.id in self._node.journal.live:
            self._node.journal.save(entry)
            self._node.journal.tell(entry, event, self._node.clock.wall())


def _task(name: str) -> int:
    number = name.partition("-")[0]
    return int(number) if number.isdecimal() and number.isascii() else 0
