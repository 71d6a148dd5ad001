"""Handle a full disk: keep the daemon running while its store cannot grow.

The loop calls this while a batch is stuck. New tasks are refused, and the new tasks of the
stuck batch are rolled back. The rest of the batch, mainly the ends of running tasks, is
written into the space that the store reserved. When the reserve is used up, the batch waits,
and its answers wait with it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

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
"""Changes queued for subscribers; beyond this, progress is dropped."""
REASON = "the disk of hetd's store is full"


class OutOfSpace:
    """Rolls back the new tasks of a batch that does not fit on the disk."""

    def __init__(self, runtime: Runtime, store: Store, service: Service) -> None:
        self._runtime = runtime
        self._journal = runtime.journal
        self._store = store
        self._service = service
        self._reduced: Batch | None = None

    def turn(self) -> None:
        """Shrink the stuck batch, and bound the memory used while it waits."""
        batch = self._store.stuck
        if batch is not None and batch is not self._reduced:
            self._reduced = batch
            self._refuse_new(batch)
            self._store.retry()
        changes = self._journal.changes
        if len(changes) > CHANGES:
            changes[:] = [each for each in changes if each[1].what != "progress"]

    def _refuse_new(self, batch: Batch) -> None:
        """Roll back the new tasks of a batch; their submitters get an error."""
        ids = {row[0] for row in batch.tasks if self._store.task(row[0]) is None}
        log.warning("%s: refused %d new tasks", REASON, len(ids))
        batch.tasks[:] = [row for row in batch.tasks if row[0] not in ids]
        batch.keys[:] = [row for row in batch.keys if not self._forgotten(row, ids)]
        batch.replies[:] = [
            (route, _corrected(message, ids))
            for route, message in batch.replies
            if not (isinstance(message, m.TaskChanged) and message.id in ids)
        ]
        self._cancel(ids)
        self._journal.forget(ids)

    def _forgotten(
        self, row: tuple[int, str, bytes, bytes, int], ids: set[int]
    ) -> bool:
        """Remove the key of a refused submit, so that a repetition is a new request."""
        owner, key, _, answer, _ = row
        refused = _names(m.decode_from_daemon(answer), ids)
        if refused:
            self._service.forget(owner, key)
        return refused

    def _cancel(self, ids: set[int]) -> None:
        live = self._journal.live
        for task in sorted(ids):
            if task in live:  # cancelling one task may end others
                self._runtime.dispatch(e.TaskCancelled(TaskId(task), REASON))


def _names(message: Any, ids: set[int]) -> bool:
    """Whether a message is the answer to a submit of one of these tasks."""
    return isinstance(message, m.Submitted) and not ids.isdisjoint(message.ids)


def _corrected(message: m.Message, ids: set[int]) -> m.Message:
    """Replace the answer to a refused submit by an error; leave its tasks out of lists."""
    if isinstance(message, m.TaskList):
        listed = [task for task in message.tasks if task.id not in ids]
        return msgspec.structs.replace(message, tasks=listed)
    if not _names(message, ids):
        return message
    assert isinstance(message, m.Submitted)  # noqa: S101  `_names` says so
    text = f"{REASON}; nothing was submitted; retry when there is space"
    return m.Error(message.request, StoreFullError.code, text)
