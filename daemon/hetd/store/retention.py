"""Retention: how long ended tasks and idempotency keys are kept, removed in steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hetd.store.rows import ADD_USAGE

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
"""Least time that a key is kept, whatever happens to its tasks."""
STEP_BYTES = 64 << 20
"""Bytes of a user's history that one step removes at most."""
LAST = 1 << 62
"""Above every id."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits on the history that is kept.

    Attributes:
        days: since the end of a task.
        tasks: ended tasks, the newest.

    """

    days: float = 90.0
    tasks: int = 1_000_000


@dataclass(frozen=True, slots=True)
class KeyAge:
    """Tells which keys are old; a clock that was set wrong must not make them so.

    What lay in the store at the start counts as no older than the newest of it, until
    hetd has run for as long as keys are kept. Then all of it is old.

    Attributes:
        began: monotonic seconds at the start; `wall`: the time of day then.
        newest: when the newest key came, of those that were there.

    """

    began: float
    wall: int
    newest: int

    @classmethod
    def at_start(cls, connection: sqlite3.Connection, now: float, wall: int) -> KeyAge:
        """Look at the keys that there are."""
        newest = connection.execute("SELECT max(at) FROM keys").fetchone()[0]
        return cls(now, wall, wall if newest is None else newest)

    def limit(self, now: float) -> int:
        """Return the time of day before which keys are old."""
        elapsed = now - self.began
        start = self.wall if elapsed >= KEY_S else min(self.wall, self.newest)
        return int(start + elapsed - KEY_S)


@dataclass(slots=True)
class Removed:
    """The rows that a step has removed.

    Attributes:
        tasks: owner -> bytes of ended tasks; `keys`: of answers to changes.
        ids: the tasks that were removed because their owner had too much, or deleted
            them.

    """

    tasks: Counter[int] = field(default_factory=Counter)
    keys: Counter[int] = field(default_factory=Counter)
    ids: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tasks) + len(self.keys)


class Trimmer:
    """Removes old rows, a few with some of the commits.

    The newest task stays whatever its age: its id is the largest that was given.

    Attributes:
        excess: owner -> bytes (of ended tasks, of answers) by which they have too much: the
            oldest leave. Set by the loop, taken by the thread that commits.

    """

    def __init__(self, retention: Retention, now: float, keys: KeyAge) -> None:
        self._retention = retention
        self._keys = keys
        self._next = now + REST_S
        self._limit: tuple[int, int] | None = None
        """(ended, id) of the newest task that is to go; None: not looked yet."""
        self.excess: dict[int, tuple[int, int]] = {}

    def due(self, now: float) -> bool:
        """Whether to take a step.

        Args:
            now: monotonic seconds.

        """
        return now >= self._next or bool(self.excess)

    def step(self, connection: sqlite3.Connection, now: float, wall: int) -> Removed:
        """Remove the oldest rows in the open transaction; return them."""
        removed = Removed()
        while self.excess:
            owner, (tasks, keys) = self.excess.popitem()
            _remove_history(connection, owner, tasks, removed)
            _remove_answers(connection, owner, keys, removed)
        if now >= self._next:
            self._step_by_age(connection, now, wall, removed)
        lost = [
            (owner, -removed.tasks[owner], -removed.keys[owner])
            for owner in removed.tasks | removed.keys
        ]
        connection.executemany(ADD_USAGE, lost)
        return removed

    def _step_by_age(
        self, connection: sqlite3.Connection, now: float, wall: int, removed: Removed
    ) -> None:
        if self._limit is None:
            self._limit = self._look(connection, wall)
        count = _remove_tasks(connection, self._limit, removed)
        count += _remove_keys(connection, self._keys.limit(now), removed)
        if not count:
            self._limit = None
        self._next = now + (PAUSE_S if count else REST_S)

    def _look(self, connection: sqlite3.Connection, wall: int) -> tuple[int, int]:
        """Find up to where to remove: once, as it counts through all that is kept."""
        first_gone = connection.execute(
            "SELECT ended, id FROM tasks WHERE ended > 0 "
            "ORDER BY ended DESC, id DESC LIMIT 1 OFFSET ?",
            (self._retention.tasks,),
        ).fetchone()
        too_old = (wall - int(self._retention.days * DAY), LAST)
        return max(too_old, first_gone or (0, 0))


def _remove_tasks(
    connection: sqlite3.Connection, limit: tuple[int, int], removed: Removed
) -> int:
    query = (
        "DELETE FROM tasks WHERE id IN (SELECT id FROM tasks "
        "WHERE ended > 0 AND (ended, id) <= (?, ?) "
        "AND id < (SELECT max(id) FROM tasks) ORDER BY ended, id LIMIT ?) "
        "RETURNING owner, length(entry)"
    )
    rows = connection.execute(query, (*limit, STEP)).fetchall()
    for owner, size in rows:
        removed.tasks[owner] += size
    return len(rows)


def _remove_keys(connection: sqlite3.Connection, before: int, removed: Removed) -> int:
    query = (
        "DELETE FROM keys WHERE (owner, key) IN "
        "(SELECT owner, key FROM keys WHERE at < ? ORDER BY at LIMIT ?) "
        "RETURNING owner, length(answer)"
    )
    rows = connection.execute(query, (before, STEP)).fetchall()
    for owner, size in rows:
        removed.keys[owner] += size
    return len(rows)


def _remove_history(
    connection: sqlite3.Connection, owner: int, excess: int, removed: Removed
) -> None:
    """Remove the oldest ended tasks of a user beyond their quota."""
    query = (
        "SELECT id, length(entry) FROM tasks WHERE owner = ? AND ended > 0 "
        "AND id < (SELECT max(id) FROM tasks) ORDER BY id LIMIT ?"
    )
    excess = min(excess, STEP_BYTES)
    ids = []
    for task, size in connection.execute(query, (owner, STEP)).fetchall():
        if excess <= 0:
            break
        excess -= size
        ids.append(task)
        removed.tasks[owner] += size
    connection.executemany("DELETE FROM tasks WHERE id = ?", [(each,) for each in ids])
    removed.ids += ids


def _remove_answers(
    connection: sqlite3.Connection, owner: int, excess: int, removed: Removed
) -> None:
    """Remove the oldest answers to a user beyond their quota."""
    query = "SELECT key, length(answer) FROM keys WHERE owner = ? ORDER BY at LIMIT ?"
    keys = []
    for key, size in connection.execute(query, (owner, STEP)).fetchall():
        if excess <= 0:
            break
        excess -= size
        keys.append((owner, key))
        removed.keys[owner] += size
    connection.executemany("DELETE FROM keys WHERE owner = ? AND key = ?", keys)
