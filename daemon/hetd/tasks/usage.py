"""StorageUsage: the bytes that hetd keeps for each user, in memory and on disk.

A page is counted as it is encoded. The store keeps the sums up with every commit; this
is the same in memory, so that a submit can be refused before anything is written. Kept
up by the journal.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetd.store import Removed


class StorageUsage:
    """Bytes by uid.

    Attributes:
        unended: of the pages of tasks that have not ended: they are in memory, too.
        pages: of all pages on disk.
        answers: of the answers to changes, kept for their idempotency keys.

    """

    def __init__(self, stored: dict[int, tuple[int, int]]) -> None:
        self.unended: Counter[int] = Counter()
        self.pages: Counter[int] = Counter()
        self.answers: Counter[int] = Counter()
        for owner, (pages, answers) in stored.items():
            self.pages[owner], self.answers[owner] = pages, answers

    def owners(self) -> list[int]:
        """List the users of whom there are tasks on disk."""
        return [owner for owner, size in self.pages.items() if size > 0]

    def total(self, owner: int) -> int:
        """Sum up what is kept of a user."""
        return self.pages[owner] + self.answers[owner]

    def history(self, owner: int) -> int:
        """Return the bytes of a user's ended tasks."""
        return max(0, self.pages[owner] - self.unended[owner])

    def subtract(self, removed: Removed) -> None:
        """Take note of what the store has removed."""
        self.pages.subtract(removed.tasks)
        self.answers.subtract(removed.keys)
