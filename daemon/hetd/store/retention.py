"""Retention: how long ended tasks and idempotency keys are kept, removed in steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

DAY = 86_400
STEP = 500
"""Rows that one step removes at most: some milliseconds that a commit takes longer."""
PAUSE_S = 0.1
"""Between two steps: 5,000 rows a second, more than tasks can end."""
REST_S = 60.0
"""Until the next look, where there is nothing more to remove."""
KEY_S = DAY
"""How long a key is remembered, whatever happens to its tasks."""
LAST = 1 << 62
"""Above every id."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept of the past.

    Attributes:
        days: since the end of a task.
        tasks: ended tasks, the newest.

    """

    days: float = 90.0
    tasks: int = 1_000_000


class Trimmer:
    """Removes what is older than it need be, a little with a commit now and then.

    The newest task stays whatever its age: its id is the largest that was given.

    """

    def __init__(self, retention: Retention, now: float) -> None:
        self._retention = retention
        self._next = now + REST_S
        self._limit: tuple[int, int] | None = None
        """(ended, id) of the newest task that is to go; None: not looked yet."""

    def due(self, now: float) -> bool:
        """Whether to take a step.

        Args:
            now: monotonic seconds.

        """
        return now >= self._next

    def step(self, connection: sqlite3.Connection, now: float, wall: int) -> int:
        """Remove the oldest rows in the open transaction; return how many."""
        if self._limit is None:
            self._limit = self._look(connection, wall)
        removed = _remove_tasks(connection, self._limit)
        removed += _remove_keys(connection, wall - KEY_S)
        if not removed:
            self._limit = None
        self._next = now + (PAUSE_S if removed else REST_S)
        return removed

    def _look(self, connection: sqlite3.Connection, wall: int) -> tuple[int, int]:
        """Find up to where to remove: once, as it counts through all that is kept."""
        first_gone = connection.execute(
            "SELECT ended, id FROM tasks WHERE ended > 0 "
            "ORDER BY ended DESC, id DESC LIMIT 1 OFFSET ?",
            (self._retention.tasks,),
        ).fetchone()
        too_old = (wall - int(self._retention.days * DAY), LAST)
        return max(too_old, first_gone or (0, 0))


def _remove_tasks(connection: sqlite3.Connection, limit: tuple[int, int]) -> int:
    query = (
        "DELETE FROM tasks WHERE id IN (SELECT id FROM tasks "
        "WHERE ended > 0 AND (ended, id) <= (?, ?) "
        "AND id < (SELECT max(id) FROM tasks) ORDER BY ended, id LIMIT ?)"
    )
    return connection.execute(query, (*limit, STEP)).rowcount


def _remove_keys(connection: sqlite3.Connection, before: int) -> int:
    query = (
        "DELETE FROM keys WHERE (owner, key) IN "
        "(SELECT owner, key FROM keys WHERE at < ? ORDER BY at LIMIT ?)"
    )
    return connection.execute(query, (before, STEP)).rowcount
