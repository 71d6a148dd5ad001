"""Reports about snapshots: which ones exist, and which tasks still need them.

Workers write and read snapshots, and launchers remove them; the daemon only records them.
`WorkerReports` and the loop call this.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hetd.reports.kept_snapshots import task_of
from hetsched import events as e
from hetsched.ids import TaskId
from libtask import messages as m

if TYPE_CHECKING:
    from hetd.reports.calibration import Calibration
    from hetd.reports.kept_snapshots import KeptSnapshots
    from hetd.runtime import Runtime
    from hetd.tasks.page import TaskPage
    from hetd.transport.router import Peer

log = logging.getLogger("hetd")


class SnapshotReports:
    """Takes what workers and launchers say of snapshots."""

    def __init__(
        self, runtime: Runtime, learner: Calibration, kept: KeptSnapshots
    ) -> None:
        self._runtime = runtime
        self._learner = learner
        self._clock = runtime.clock
        self._journal = runtime.journal
        self._pool = runtime.pool
        self._kept = kept
        self.refused = 0
        """Snapshots that were bad, or of something else."""

    def taken(self, page: TaskPage, message: m.SnapshotTaken) -> None:
        """Note a snapshot, or why there is none."""
        page.snapshot_error = message.error
        if not message.error:
            stands = message.checkpoint
            page.snapshot = m.SnapshotInfo(
                stands.done,
                stands.total,
                message.at,
                message.bytes,
                message.seconds,
                message.path,
            )
            page.at_risk = 0.0
            if stands.done:
                kept = self._learner.work_done(page, page.kept)
                event = e.SnapshotTaken(TaskId(page.id), message.epoch, kept)
                self._runtime.dispatch(event)
        self._tell(page, "snapshot-failed" if message.error else "snapshot")

    def resumed(self, page: TaskPage, message: m.Resumed) -> None:
        """Record where a task continues that was loaded again."""
        for refused in message.refused:
            self.refused += 1
            log.warning("task %d: a snapshot is not used: %s", page.id, refused)
        page.refused += len(message.refused)
        page.checkpoint = message.checkpoint
        page.at_risk = 0.0
        part = page.spec.part
        if message.checkpoint.done == (part.start if part else 0):
            page.snapshot = None  # none was good
        reached = self._learner.work_done(page, page.progress)
        event = e.TaskResumed(TaskId(page.id), message.epoch, reached)
        self._runtime.dispatch(event)
        self._tell(page, "resumed")

    def parked(self, page: TaskPage, message: m.Parked) -> None:
        """Note that a task which waits has no worker any more."""
        self._pool.release(page.id)
        self._runtime.dispatch(e.TaskParked(TaskId(page.id), message.epoch))
        self._tell(page, "parked")

    def held(self, peer: Peer, message: m.SnapshotsHeld) -> None:
        """Have a launcher remove snapshots of ended tasks, once that is durable, if not kept."""
        journal = self._journal
        owned = {
            page.snapshots_name
            for name in message.names
            if (page := journal.live.get(task_of(name))) and page.owner == peer.uid
        }
        others = [name for name in message.names if name not in owned]
        needed = self._kept.needed(peer.uid, others) if others else set()
        ended = [name for name in others if name not in needed]
        if ended:
            journal.batch.replies.append((peer.route, m.DropSnapshots(ended)))

    def _tell(self, page: TaskPage, event: str) -> None:
        if page.id in self._journal.live:
            self._journal.save(page)
            self._journal.publish(page, event, self._clock.wall())
