"""The snapshots of ended tasks that are kept for a while, for `requeue --from-snapshot`.

Those of failed and cancelled tasks are kept for `[snapshots] kept_s` after the end, the newest
ones within their owner's storage limit. `SnapshotReports` asks which of them are needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetd.clock import Clock
    from hetd.config import ActiveConfig
    from hetd.tasks.journal import Journal

LOOKED_UP_AT_ONCE = 100
"""Tasks that are looked up for one message: each may have to be read from the disk."""
MOST_KNOWN = 10_000
GENERATIONS = 2
"""Snapshots of a task that there may be on disk."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Kept snapshots of a task: until when (epoch seconds), and their bytes."""

    until: float
    bytes: int


class KeptSnapshots:
    """Decides which snapshots of ended tasks are kept."""

    def __init__(self, clock: Clock, config: ActiveConfig, journal: Journal) -> None:
        self._clock = clock
        self._config = config
        self._journal = journal
        self._known: dict[tuple[int, str], Kept] = {}
        """(user, name) -> what is kept."""

    def needed(self, owner: int, names: Sequence[str]) -> set[str]:
        """Return those of a user's snapshots that are kept.

        Those that are not known yet, and too many to be looked up now, are among them.
        """
        pages = [
            self._journal.live[task] for task in self._journal.live_of.get(owner, ())
        ]
        continued = {page.spec.resumes for page in pages}
        pieces = {piece.snapshots for page in pages for piece in page.pieces}
        needed = (continued | pieces) & set(names)
        kept_s = self._config.value.snapshots.kept_s
        if not kept_s:
            return needed
        unknown = [each for each in names if (owner, each) not in self._known]
        self._look_up(owner, unknown[:LOOKED_UP_AT_ONCE], kept_s)
        self._remove_old(owner)
        needed |= {each for each in names if (owner, each) in self._known}
        return needed | set(unknown[LOOKED_UP_AT_ONCE:])

    def _look_up(self, owner: int, names: Sequence[str], kept_s: float) -> None:
        if len(self._known) > MOST_KNOWN:
            self._known.clear()  # they are looked up again
        for name in names:
            page = self._journal.find(task_of(name))
            if page is None or page.owner != owner or page.snapshots_name != name:
                continue
            until = page.snapshots_kept_until(kept_s)
            if until and page.snapshot is not None:
                size = GENERATIONS * page.snapshot.bytes
                self._known[owner, name] = Kept(until, size)

    def _remove_old(self, owner: int) -> None:
        """Remove what is kept no longer, and the oldest beyond the owner's limit."""
        now, used = self._clock.wall(), 0
        limit = self._config.limits.stored.of(owner)
        own = [each for each in self._known.items() if each[0][0] == owner]
        for key, kept in sorted(own, key=lambda each: -each[1].until):
            used += kept.bytes
            if kept.until <= now or (limit is not None and used > limit):
                del self._known[key]


def task_of(name: str) -> int:
    """Return the task of a snapshot's name; 0: it has none."""
    number = name.partition("-")[0]
    return int(number) if number.isdecimal() and number.isascii() else 0
