"""The bytes that hetd stores for each user, in memory and on disk.

A page counts with its encoded size. The store updates these sums with every commit; this
copy in memory lets a submit be refused before anything is written. The journal updates it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetd.store import Removed


class StorageUsage:
    """Bytes by uid.

    Attributes:
        unfinished: bytes of the pages of unfinished tasks, which are also in memory.
        pages: bytes of all pages on disk.
        answers: bytes of stored answers to changes.

    """

    def __init__(self, stored: dict[int, tuple[int, int]]) -> None:
        self.unfinished: Counter[int] = Counter()
        self.pages: Counter[int] = Counter()
        self.answers: Counter[int] = Counter()
        for owner, (pages, answers) in stored.items():
            self.pages[owner], self.answers[owner] = pages, answers

    def owners(self) -> list[int]:
        """Return the uids with tasks on disk."""
        return [owner for owner, size in self.pages.items() if size > 0]

    def total(self, owner: int) -> int:
        """Return the total bytes of a user."""
        return self.pages[owner] + self.answers[owner]

    def history(self, owner: int) -> int:
        """Return the bytes of a user's ended tasks."""
        return max(0, self.pages[owner] - self.unfinished[owner])

    def subtract(self, removed: Removed) -> None:
        """Subtract the bytes that the store removed."""
        self.pages.subtract(removed.tasks)
        self.answers.subtract(removed.keys)
