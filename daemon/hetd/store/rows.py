"""The rows of the store: written in batches, read one page at a time."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any
from zlib import crc32

from hetd.store.checksums import circuit_sum, key_sum, page_sum, sample_sum, setting_sum
from hetd.store.errors import CURE, StoreError
from hetsched.estimates.point import Figures

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from hetd.store.batch import Batch
    from hetsched.estimates.point import Key


NOTES_KEPT = 10_000
"""The newest; policies and devices do not change that often."""
UPSERT_TASK = """
INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id)
DO UPDATE SET ended = excluded.ended, entry = excluded.entry, sum = excluded.sum,
marked = excluded.marked
"""
"""Unlike a replacement it leaves indices alone of which nothing changes."""
ADD_USAGE = """
INSERT INTO usage VALUES (?, ?, ?) ON CONFLICT (owner)
DO UPDATE SET tasks = tasks + excluded.tasks, keys = keys + excluded.keys
"""
DROP_MEASURERS = """
DELETE FROM measurers WHERE type = ?
AND NOT EXISTS (SELECT 1 FROM samples WHERE samples.type = measurers.type)
"""
KEEP_LAST_ID = """
INSERT INTO meta SELECT 'last_id', max(id) FROM tasks WHERE true
ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)
"""
INSERT_SAMPLE = "INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def write(connection: sqlite3.Connection, batch: Batch) -> None:
    """Write a batch into a transaction that is left open."""
    connection.execute("BEGIN IMMEDIATE")
    if batch.tasks:
        pages = [  # `page_sum`, in place: it is done for every change of a task
            (
                task,
                ended,
                entry,
                crc32(entry, (task * 31 + ended) & 0xFFFFFFFF),
                owner,
                task in batch.marked,
            )
            for task, ended, entry, owner in batch.tasks
        ]
        connection.executemany(UPSERT_TASK, pages)
    if batch.keys:
        answers = [
            (*row, key_sum(row[0], row[1].encode(), *row[2:])) for row in batch.keys
        ]
        connection.executemany("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?)", answers)
    if batch.tasks or batch.keys:
        _write_usage(connection, batch)
    if batch.samples or batch.measurers:
        _write_samples(connection, batch)
    if batch.settings or batch.circuits or batch.notes or batch.removed:
        _write_rest(connection, batch)


def _write_rest(connection: sqlite3.Connection, batch: Batch) -> None:
    """Write the rarer rows of a batch."""
    if batch.settings:
        _write_settings(connection, batch.settings)
    if batch.circuits:
        _write_circuits(connection, batch.circuits)
    if batch.notes:
        _write_notes(connection, batch.notes)
    if batch.removed:
        _remove_tasks(connection, batch)


def _remove_tasks(connection: sqlite3.Connection, batch: Batch) -> None:
    """Remove ended tasks; the largest id that was ever given stays known."""
    connection.execute(KEEP_LAST_ID)
    batch.freed.clear()
    for task in batch.removed:
        query = (
            "DELETE FROM tasks WHERE id = ? AND ended > 0 "
            "RETURNING owner, length(entry)"
        )
        for owner, size in connection.execute(query, (task,)).fetchall():
            batch.freed[owner] += size
    lost = [(owner, -size, 0) for owner, size in batch.freed.items()]
    connection.executemany(ADD_USAGE, lost)


def _write_notes(connection: sqlite3.Connection, notes: list[Any]) -> None:
    insert = "INSERT INTO notes (at, what, resource, text) VALUES (?, ?, ?, ?)"
    connection.executemany(insert, notes)
    trim = "DELETE FROM notes WHERE number <= (SELECT max(number) FROM notes) - ?"
    connection.execute(trim, (NOTES_KEPT,))


def _write_usage(connection: sqlite3.Connection, batch: Batch) -> None:
    """Add what the rows of a batch take to what is kept of each user."""
    tasks: Counter[int] = Counter()
    keys: Counter[int] = Counter()
    for task, _, _, owner in batch.tasks:
        tasks[owner] += batch.grown.get(task, 0)
    for owner, _, _, answer, _ in batch.keys:
        keys[owner] += len(answer)
    rows = [(owner, tasks[owner], keys[owner]) for owner in tasks | keys]
    connection.executemany(ADD_USAGE, rows)


def _write_samples(connection: sqlite3.Connection, batch: Batch) -> None:
    gone = [key for key, known in batch.samples.items() if known is None]
    kept = [
        _sample_row(key, known)
        for key, known in batch.samples.items()
        if known is not None
    ]
    # whose a type is need not be known where nothing is known of the type
    types = {(key[0],) for key in gone}
    delete = "DELETE FROM samples WHERE type = ? AND resource = ? AND grain = ?"
    connection.executemany(delete, gone)
    connection.executemany(INSERT_SAMPLE, kept)
    connection.executemany(DROP_MEASURERS, types)
    insert = "INSERT OR IGNORE INTO measurers VALUES (?, ?)"
    connection.executemany(insert, batch.measurers)


def _sample_row(key: Key, known: Figures) -> tuple[Any, ...]:
    kind, resource, grain = key
    figures = grain, *astuple(known)[2:]  # type and resource lead both
    return (
        kind,
        resource,
        *figures,
        sample_sum(kind.encode(), resource.encode(), *figures),
    )


def _write_settings(
    connection: sqlite3.Connection, settings: dict[tuple[str, str], bytes | None]
) -> None:
    connection.executemany(
        "DELETE FROM settings WHERE what = ? AND subject = ?", settings
    )
    kept = [
        (what, subject, value, setting_sum(what.encode(), subject.encode(), value))
        for (what, subject), value in settings.items()
        if value is not None
    ]
    connection.executemany("INSERT INTO settings VALUES (?, ?, ?, ?)", kept)


def _write_circuits(
    connection: sqlite3.Connection, circuits: dict[tuple[int, str, str], bytes | None]
) -> None:
    delete = "DELETE FROM circuits WHERE owner = ? AND app = ? AND resource = ?"
    connection.executemany(delete, circuits)
    kept = [
        (*key, value, circuit_sum(key[0], key[1].encode(), key[2].encode(), value))
        for key, value in circuits.items()
        if value is not None
    ]
    connection.executemany("INSERT INTO circuits VALUES (?, ?, ?, ?, ?)", kept)


class Reader:
    """Reads what is committed.

    Every method raises StoreError where the database is damaged.

    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.connection = connection
        self._path = path

    def unfinished(self) -> list[bytes]:
        """Read the entries of all tasks that have not ended, by id."""
        query = "SELECT id, ended, entry, sum FROM tasks WHERE ended = 0 ORDER BY id"
        return [self._sound(row) for row in self._rows(query)]

    def ended(
        self,
        before: int,
        limit: int,
        owner: int | None = None,
        *,
        after: int = 0,
        marked: bool = False,
    ) -> Generator[tuple[int, bytes], None, None]:
        """Read (id, entry) of ended tasks with smaller ids than `before`, newest first.

        They are read one by one, as they may be large.

        Args:
            before: limit of the ids.
            limit: how many at most.
            owner: whose; None: everybody's.
            after: only larger ids. Without an owner, all rows in between are looked at,
                those of unfinished tasks too.
            marked: only those that were marked (`Batch.marked`).

        """
        whose = "" if owner is None else f"owner = {owner:d} AND "
        some = "INDEXED BY marked WHERE marked AND " if marked else "WHERE "
        query = (
            "SELECT id, ended, entry, sum FROM tasks "  # noqa: S608  a number of ours
            f"{some}{whose}ended > 0 AND id < ? AND id > ? ORDER BY id DESC LIMIT ?"
        )
        with complaints(self._path):
            cursor = self.connection.execute(query, (before, after, limit))
        with closing(cursor):
            while row := self._next(cursor):
                yield row[0], self._sound(row)

    def ended_since(self, at: int, most: int) -> list[int]:
        """Read the ids of tasks that ended at a time or later, in no order.

        Args:
            at: seconds since the epoch.
            most: how many at most.

        """
        query = (
            "SELECT id FROM tasks INDEXED BY history "
            "WHERE ended > 0 AND ended >= ? LIMIT ?"
        )
        return [row[0] for row in self._rows(query, at, most)]

    def count_ended(
        self, owner: int, after: int, before: int, since: int, most: int
    ) -> tuple[int, int]:
        """Count a user's ended tasks among some between two ids that ended since a time.

        Args:
            owner: whose.
            after, before: between which ids.
            since: seconds since the epoch.
            most: how many are looked at.

        Returns:
            How many there are, and the id of the last one that was looked at; 0: none was.

        """
        query = (
            "SELECT coalesce(sum(ended >= ?), 0), coalesce(max(id), 0) FROM "
            "(SELECT id, ended FROM tasks INDEXED BY owned "
            "WHERE owner = ? AND ended > 0 AND id > ? AND id < ? ORDER BY id LIMIT ?)"
        )
        (row,) = self._rows(query, since, owner, after, before, most)
        return row[0], row[1]

    def _next(self, cursor: sqlite3.Cursor) -> Any:
        with complaints(self._path):
            return cursor.fetchone()

    def task(self, task_id: int) -> bytes | None:
        """Read the entry of a task."""
        query = "SELECT id, ended, entry, sum FROM tasks WHERE id = ?"
        rows = self._rows(query, task_id)
        return self._sound(rows[0]) if rows else None

    def owner(self, task_id: int) -> int | None:
        """Read the owner of a task; None: there is no such task."""
        rows = self._rows("SELECT owner FROM tasks WHERE id = ?", task_id)
        return int(rows[0][0]) if rows else None

    def page_bytes(self, task_id: int) -> int:
        """Read the size of the page of a task; 0: there is no such task."""
        rows = self._rows("SELECT length(entry) FROM tasks WHERE id = ?", task_id)
        return int(rows[0][0]) if rows else 0

    def last_id(self) -> int:
        """Read the largest id that was ever given."""
        query = (
            "SELECT max(coalesce((SELECT max(id) FROM tasks), 0), "
            "coalesce((SELECT value FROM meta WHERE name = 'last_id'), 0))"
        )
        return int(self._rows(query)[0][0])

    def key(self, owner: int, key: str) -> tuple[bytes, bytes] | None:
        """Find (digest, answer) of an earlier request with this idempotency key."""
        query = "SELECT digest, answer, at, sum FROM keys WHERE owner = ? AND key = ?"
        rows = self._rows(query, owner, key)
        if not rows:
            return None
        digest, answer, at, stored = rows[0]
        if key_sum(owner, key.encode(), digest, answer, at) != stored:
            what = f"what was answered to key {key!r} of uid {owner} is damaged"
            raise StoreError(f"{self._path}: {what}; {CURE}")
        return digest, answer

    def usage(self) -> dict[int, tuple[int, int]]:
        """Read the bytes that users' tasks, and the answers to their changes, take."""
        rows = self._rows("SELECT owner, tasks, keys FROM usage")
        return {owner: (tasks, keys) for owner, tasks, keys in rows}

    def measurers(self) -> dict[str, set[int]]:
        """Read the users whose tasks of each type were measured."""
        found: dict[str, set[int]] = {}
        for kind, owner in self._rows("SELECT type, owner FROM measurers"):
            found.setdefault(kind, set()).add(owner)
        return found

    def samples(self) -> list[Figures]:
        """Read all measured execution times."""
        columns = ", ".join(field.name for field in fields(Figures))
        query = f"SELECT {columns} FROM samples"  # noqa: S608  names of our own
        return [Figures(*row) for row in self._rows(query)]

    def settings(self) -> dict[tuple[str, str], bytes]:
        """Read the settings of operators and the profiles: (what, subject) -> value."""
        rows = self._rows("SELECT what, subject, value FROM settings")
        return {(what, subject): value for what, subject, value in rows}

    def circuits(self) -> dict[tuple[int, str, str], bytes]:
        """Read the known failures of applications: (owner, app, resource) -> value."""
        rows = self._rows("SELECT owner, app, resource, value FROM circuits")
        return {(owner, app, name): value for owner, app, name, value in rows}

    def notes(self, since: float, limit: int) -> list[tuple[Any, ...]]:
        """Read (at, what, resource, text) of the newest notes since then, oldest first."""
        query = (
            "SELECT at, what, resource, text FROM notes WHERE at >= ? "
            "ORDER BY number DESC LIMIT ?"
        )
        return self._rows(query, since, limit)[::-1]

    def count(self, what: str) -> int:
        """Count the rows of a table, with a condition where one is given."""
        return int(self._rows(f"SELECT count(*) FROM {what}")[0][0])  # noqa: S608  names of our own

    def _rows(self, query: str, *given: Any) -> list[Any]:
        try:  # not by `complaints`: it is done for every change that a user asks for
            return self.connection.execute(query, given).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}; {CURE}") from error

    def _sound(self, row: tuple[int, int, bytes, int]) -> bytes:
        """Return the entry of a row after checking its checksum."""
        task, ended, entry, stored = row
        if page_sum(task, ended, entry) != stored:
            raise StoreError(
                f"{self._path}: the page of task {task} is damaged; {CURE}"
            )
        return entry


@contextmanager
def complaints(path: Path) -> Iterator[None]:
    """Convert errors of SQLite to `StoreError`."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}; {CURE}") from error
