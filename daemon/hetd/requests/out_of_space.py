"""OutOfSpace: what the daemon does while its store has no room.

New tasks are refused, also those that came with the batch that did not fit any more.
The rest of that batch, the ends of running tasks above all, is written into the room
that the store set aside; where that is used up it waits, and nobody is told of it.
Called by the loop while a batch is stuck.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from hetd.store import StoreFullError
from hetsched import events as e
from hetsched.ids import TaskId
from libtask import messages as m

if TYPE_CHECKING:
    from hetd.requests import Service
    from hetd.runtime import Runtime
    from hetd.store import Batch, Store

log = logging.getLogger("hetd")

CHANGES = 1000
"""Changes kept for watchers; with more, they are not told of progress."""
REASON = "the disk of hetd's store is full"


class OutOfSpace:
    """Takes back what was promised to nobody yet."""

    def __init__(self, runtime: Runtime, store: Store, service: Service) -> None:
        self._runtime = runtime
        self._store = store
        self._service = service
        self._reduced: Batch | None = None

    def turn(self) -> None:
        """Make the stuck batch small, and keep the memory bounded while it waits."""
        batch = self._store.stuck
        if batch is not None and batch is not self._reduced:
            self._reduced = batch
            self._refuse_new(batch)
            self._store.retry()
        changes = self._runtime.journal.changes
        if len(changes) > CHANGES:
            changes[:] = [each for each in changes if each[1].what != "progress"]

    def _refuse_new(self, batch: Batch) -> None:
        """Take the new tasks of a batch back, and tell who submitted them."""
        ids = {row[0] for row in batch.tasks if self._store.task(row[0]) is None}
        log.warning("%s: %d new tasks are refused", REASON, len(ids))
        batch.tasks[:] = [row for row in batch.tasks if row[0] not in ids]
        batch.keys[:] = [row for row in batch.keys if not self._forgotten(row, ids)]
        batch.replies[:] = [
            (route, _corrected(message, ids))
            for route, message in batch.replies
            if not (isinstance(message, m.TaskChanged) and message.id in ids)
        ]
        self._cancel(ids)
        self._runtime.journal.forget(ids)

    def _forgotten(
        self, row: tuple[int, str, bytes, bytes, int], ids: set[int]
    ) -> bool:
        """Forget the key of a submit that is refused: asked again, it is a new one."""
        owner, key, _, answer, _ = row
        refused = _names(m.decode_from_daemon(answer), ids)
        if refused:
            self._service.forget(owner, key)
        return refused

    def _cancel(self, ids: set[int]) -> None:
        live = self._runtime.journal.live
        for task in sorted(ids):
            if task in live:  # cancelling one may have ended another
                self._runtime.dispatch(e.TaskCancelled(TaskId(task), REASON))


def _names(message: Any, ids: set[int]) -> bool:
    """Whether this answers a submit of these tasks."""
    return isinstance(message, m.Submitted) and not ids.isdisjoint(message.ids)


def _corrected(message: m.Message, ids: set[int]) -> m.Message:
    """Turn the answer to a refused submit into the refusal."""
    if not _names(message, ids):
        return message
    assert isinstance(message, m.Submitted)  # noqa: S101  `_names` says so
    text = f"{REASON}; nothing was submitted; try again when there is room"
    return m.Error(message.request, StoreFullError.code, text)
