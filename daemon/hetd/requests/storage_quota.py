"""Keeps every user within the bytes that they may have in the store, and in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from libtask.errors import BusyError, NotAllowedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hetd.runtime import Runtime
    from hetd.store import Store
    from libtask.messages import TaskSpec

MIB = 1 << 20
AIM = 0.95
"""Share of a limit to which history is cut, so that not every commit has to cut it."""
ANSWERS = 8
"""The part of a limit that answers to requests may take: one in so many."""
AHEAD = 1.25
"""Factor by which a user may be ahead of the cutting before submits are put off."""


class StorageQuota:
    """Keeps every user within the bytes that he may have.

    Called with every commit, and before tasks are taken in.
    """

    def __init__(self, runtime: Runtime, store: Store) -> None:
        self._runtime = runtime
        self._store = store
        self._usage = runtime.journal.usage

    def require_room(self, owner: int, specs: Sequence[TaskSpec]) -> None:
        """Refuse tasks for which their owner has no room.

        Raises:
            NotAllowedError: unended tasks take too much; BusyError: history is being cut.

        """
        size = sum(len(msgspec.msgpack.encode(spec)) for spec in specs)
        limit = self._runtime.limits.unended.of(owner)
        has = self._usage.unended[owner]
        if limit is not None and has + size > limit:
            raise NotAllowedError(
                f"your unended tasks may take {limit // MIB} MiB and take "
                f"{has / MIB:.1f}: no room for {size / MIB:.1f} MiB more; wait until "
                f"some end, or pass large inputs in files"
            )
        stored = self._runtime.limits.stored.of(owner)
        if stored is not None and self._usage.total(owner) > AHEAD * stored + MIB:
            raise BusyError("your history is being cut; ask again in a moment")

    def cut(self, owners: Iterable[int]) -> None:
        """Have the oldest go of what users have too much of."""
        for owner in owners:
            limit = self._runtime.limits.stored.of(owner)
            if limit is None:
                continue
            answers = self._usage.answers[owner] - limit // ANSWERS
            tasks = self._usage.total(owner) - max(answers, 0) - limit
            if tasks > 0 or answers > 0:
                slack = int((1 - AIM) * limit)
                history = min(tasks + slack, self._usage.history(owner))
                self._store.trim(owner, history if tasks > 0 else 0, answers)

    def apply_removals(self) -> None:
        """Take note of what the store has removed, and see whether it was enough."""
        for removed in self._store.freed():
            self._runtime.journal.apply_removals(removed)
            self.cut(removed.tasks | removed.keys)
