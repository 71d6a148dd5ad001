"""RequestBudget: how much of the loop's time each user has had.

A user alone may have all of it. Where others want something too, who has had more than
his share of a tenth of a second is put off until the next, so that nobody waits longer
than that because of another's requests, however many connections they come over.
"""

from __future__ import annotations

WINDOW_NS = 100_000_000


class RequestBudget:
    """The users of the present window of time, and the one before it."""

    def __init__(self) -> None:
        self._spent: dict[int, int] = {}
        self._users_before = 0
        self._ends = 0

    def charge(self, uid: int, spent: int, now: int) -> None:
        """Add nanoseconds that a user's message has taken."""
        if now >= self._ends:
            self._users_before = len(self._spent)
            self._spent.clear()
            self._ends = now + WINDOW_NS
        self._spent[uid] = self._spent.get(uid, 0) + spent

    def remaining_ms(self, now: int) -> int:
        """Tell how long the present window lasts, in whole milliseconds, at least 1."""
        return max(1, (self._ends - now) // 1_000_000 + 1)

    def is_exhausted(self, uid: int, now: int) -> bool:
        """Whether a user has had his share, and is not the only one."""
        if now >= self._ends:
            return False
        users = max(len(self._spent), self._users_before)
        return users > 1 and self._spent.get(uid, 0) > WINDOW_NS // users
