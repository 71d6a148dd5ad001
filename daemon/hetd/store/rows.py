"""The rows of the store: written in batches, read one page at a time."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any
from zlib import crc32

from hetd.estimates.point import Figures
from hetd.store.errors import CURE, StoreError
from hetd.store.schema import page_sum

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hetd.estimates.point import Key
    from hetd.store.batch import Batch


NOTES_KEPT = 10_000
"""The newest; policies and devices do not change that often."""


def write(connection: sqlite3.Connection, batch: Batch) -> None:
    """Write a batch into a transaction that is left open."""
    connection.execute("BEGIN IMMEDIATE")
    if batch.tasks:
        pages = [  # `page_sum`, in place: it is done for every change of a task
            (task, ended, entry, crc32(entry, (task * 31 + ended) & 0xFFFFFFFF))
            for task, ended, entry in batch.tasks
        ]
        task = "INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?)"
        connection.executemany(task, pages)
    if batch.keys:
        connection.executemany("INSERT INTO keys VALUES (?, ?, ?, ?, ?)", batch.keys)
    if batch.samples:
        _write_samples(connection, batch.samples)
    if batch.notes:
        insert = "INSERT INTO notes (at, what, resource, text) VALUES (?, ?, ?, ?)"
        connection.executemany(insert, batch.notes)
        trim = "DELETE FROM notes WHERE number <= (SELECT max(number) FROM notes) - ?"
        connection.execute(trim, (NOTES_KEPT,))


def _write_samples(
    connection: sqlite3.Connection, samples: dict[Key, Figures | None]
) -> None:
    gone = [key for key, known in samples.items() if known is None]
    kept = [
        (*key, *astuple(known)[2:])  # type and resource lead both
        for key, known in samples.items()
        if known is not None
    ]
    delete = "DELETE FROM samples WHERE type = ? AND resource = ? AND grain = ?"
    connection.executemany(delete, gone)
    insert = "INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
    connection.executemany(insert, kept)


class Reader:
    """Reads what is committed.

    Every method raises StoreError where the database is damaged.

    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.connection = connection
        self._path = path

    def unended(self) -> list[bytes]:
        """Read the entries of all tasks that have not ended, by id."""
        query = "SELECT id, ended, entry, sum FROM tasks WHERE ended = 0 ORDER BY id"
        return [self._sound(row) for row in self._rows(query)]

    def ended(self, before: int, limit: int) -> list[tuple[int, bytes]]:
        """Read (id, entry) of ended tasks with smaller ids than `before`, newest first."""
        query = (
            "SELECT id, ended, entry, sum FROM tasks "
            "WHERE ended > 0 AND id < ? ORDER BY id DESC LIMIT ?"
        )
        rows = self._rows(query, before, limit)
        return [(row[0], self._sound(row)) for row in rows]

    def task(self, task_id: int) -> bytes | None:
        """Read the entry of a task."""
        query = "SELECT id, ended, entry, sum FROM tasks WHERE id = ?"
        rows = self._rows(query, task_id)
        return self._sound(rows[0]) if rows else None

    def last_id(self) -> int:
        """Read the largest id that was ever given."""
        query = (
            "SELECT max(coalesce((SELECT max(id) FROM tasks), 0), "
            "coalesce((SELECT value FROM meta WHERE name = 'last_id'), 0))"
        )
        return int(self._rows(query)[0][0])

    def key(self, owner: int, key: str) -> tuple[bytes, bytes] | None:
        """Find (digest, answer) of an earlier request with this idempotency key."""
        query = "SELECT digest, answer FROM keys WHERE owner = ? AND key = ?"
        rows = self._rows(query, owner, key)
        return rows[0] if rows else None

    def samples(self) -> list[Figures]:
        """Read all that is known of execution times."""
        columns = ", ".join(field.name for field in fields(Figures))
        query = f"SELECT {columns} FROM samples"  # noqa: S608  names of our own
        return [Figures(*row) for row in self._rows(query)]

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

    def damaged_pages(self) -> Iterator[int]:
        """Find the tasks whose pages do not fit their checksums."""
        query = "SELECT id FROM tasks WHERE sum != page_sum(id, ended, entry)"
        self.connection.create_function("page_sum", 3, page_sum, deterministic=True)
        yield from (row[0] for row in self._rows(query))

    def _rows(self, query: str, *given: Any) -> list[Any]:
        with complaints(self._path):
            return self.connection.execute(query, given).fetchall()

    def _sound(self, row: tuple[int, int, bytes, int]) -> bytes:
        """Return the entry of a row that is as it was written."""
        task, ended, entry, stored = row
        if page_sum(task, ended, entry) != stored:
            raise StoreError(
                f"{self._path}: the page of task {task} is damaged; {CURE}"
            )
        return entry


@contextmanager
def complaints(path: Path) -> Iterator[None]:
    """Turn what SQLite complains of into our error."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}; {CURE}") from error
