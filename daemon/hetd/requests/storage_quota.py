"""Enforce the limits on the bytes that each user has in the store and in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from libtask.errors import BusyError, NotAllowedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hetd.config import ActiveConfig
    from hetd.store import Store
    from hetd.tasks.journal import Journal
    from libtask.messages import TaskSpec

MIB = 1 << 20
AIM = 0.95
"""Share of a limit to which history is trimmed, so that not every commit trims it."""
ANSWERS = 8
"""Stored answers may take one part in `ANSWERS` of a limit."""
AHEAD = 1.25
"""Factor by which a user may exceed the limit before submits get a busy error."""


class StorageQuota:
    """Enforces the storage limits of users; called at every commit and before a submit."""

    def __init__(
        self,
        config: ActiveConfig,
        journal: Journal,
        store: Store,
    ) -> None:
        self._config = config
        self._journal = journal
        self._store = store
        self._usage = journal.usage

    def require_room(self, owner: int, specs: Sequence[TaskSpec]) -> None:
        """Refuse tasks that exceed the storage limits of their owner.

        Raises:
            NotAllowedError: unfinished tasks take too many bytes.
            BusyError: the history of the user is still being trimmed.

        """
        limit = self._config.limits.unfinished.of(owner)
        if limit is not None:
            self._require_unfinished(owner, specs, limit)
        stored = self._config.limits.stored.of(owner)
        if stored is not None and self._usage.total(owner) > AHEAD * stored + MIB:
            raise BusyError("busy: your history is being trimmed, retry")

    def _require_unfinished(
        self, owner: int, specs: Sequence[TaskSpec], limit: int
    ) -> None:
        size, length, last = 0, 0, None
        for spec in specs:
            if spec is not last:
                length, last = len(msgspec.msgpack.encode(spec)), spec
            size += length
        has = self._usage.unfinished[owner]
        if has + size > limit:
            raise NotAllowedError(
                f"your unfinished tasks may take {limit // MIB} MiB and take "
                f"{has / MIB:.1f}: no room for {size / MIB:.1f} MiB more; wait until "
                f"some end, or pass large inputs in files"
            )

    def cut(self, owners: Iterable[int]) -> None:
        """Ask the store to remove the oldest history of users above their limit."""
        for owner in owners:
            limit = self._config.limits.stored.of(owner)
            if limit is None:
                continue
            answers = self._usage.answers[owner] - limit // ANSWERS
            tasks = self._usage.total(owner) - max(answers, 0) - limit
            if tasks > 0 or answers > 0:
                slack = int((1 - AIM) * limit)
                history = min(tasks + slack, self._usage.history(owner))
                self._store.trim(owner, history if tasks > 0 else 0, answers)

    def apply_removals(self) -> None:
        """Update the usage by what the store removed, and trim more if necessary."""
        for removed in self._store.freed():
            self._journal.apply_removals(removed)
            self.cut(removed.tasks | removed.keys)
