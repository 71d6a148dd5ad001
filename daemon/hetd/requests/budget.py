"""Limit the share of the loop's time that one user's requests may take.

A single active user may take all of it. With several active users, each has an equal share
of every 100 ms; requests beyond it are deferred to the next 100 ms. This bounds the delay
that one user can cause to another, whatever the number of connections.
"""

from __future__ import annotations

WINDOW_NS = 100_000_000


class RequestBudget:
    """Time spent for each user in the current 100 ms, and the users of the previous ones."""

    def __init__(self) -> None:
        self._spent: dict[int, int] = {}
        self._users_before = 0
        self._ends = 0

    def charge(self, uid: int, spent: int, now: int) -> None:
        """Add the nanoseconds that handling a user's message took."""
        if now >= self._ends:
            self._users_before = len(self._spent)
            self._spent.clear()
            self._ends = now + WINDOW_NS
        self._spent[uid] = self._spent.get(uid, 0) + spent

    def remaining_ms(self, now: int) -> int:
        """Return the milliseconds left in the current window, rounded up, at least 1."""
        return max(1, (self._ends - now) // 1_000_000 + 1)

    def is_exhausted(self, uid: int, now: int) -> bool:
        """Whether a user has used up their share while other users are active."""
        if now >= self._ends:
            return False
        users = max(len(self._spent), self._users_before)
        return users > 1 and self._spent.get(uid, 0) > WINDOW_NS // users
