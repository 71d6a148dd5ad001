"""The store: tasks, idempotency keys and measurements in SQLite, durable.

WAL with FULL synchronisation. A writer thread takes everything that waits into one
transaction (group commit), so that the loop never waits for the disk; what must not
be told before it is durable is handed back by `committed()` after its commit.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from libtask.errors import HetError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SCHEMA = 1
TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    spec BLOB NOT NULL,
    info BLOB NOT NULL
);
CREATE INDEX unended ON tasks (id) WHERE ended = 0;
CREATE TABLE keys (owner INTEGER, key TEXT, first INTEGER, count INTEGER,
                   PRIMARY KEY (owner, key)) WITHOUT ROWID;
CREATE TABLE samples (type TEXT, resource TEXT, seconds REAL, work REAL,
                      PRIMARY KEY (type, resource)) WITHOUT ROWID;
"""


class StoreError(HetError):
    """The database cannot be read or written."""

    code = "store"


@dataclass(slots=True)
class Batch:
    """What one turn of the loop writes, and what is told once it is durable."""

    tasks: list[tuple[Any, ...]] = field(default_factory=list)
    """(id, owner, ended, spec, info) of new tasks."""
    changes: dict[int, tuple[bool, bytes]] = field(default_factory=dict)
    """id -> (ended, info); the last one of a batch counts."""
    keys: list[tuple[Any, ...]] = field(default_factory=list)
    samples: list[tuple[Any, ...]] = field(default_factory=list)
    replies: list[Any] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(
            self.tasks or self.changes or self.keys or self.samples or self.replies
        )


class Store:
    """Tasks and measurements on disk.

    Args:
        path: database file; made when absent.

    Raises:
        StoreError: damaged, of a newer schema, or not writable.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = _open(path)
        self.incarnation = self._count_start()
        self.wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._batches: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._writer = threading.Thread(target=self._write, name="store", daemon=True)
        self._writer.start()

    # ------------------------------------------------------------ writing

    def submit(self, batch: Batch) -> None:
        """Hand a batch to the writer."""
        self._batches.put(batch)

    def committed(self) -> Iterable[Any]:
        """Return the replies of the batches committed since the last call, in order.

        Raises:
            StoreError: a batch could not be written; nothing after it was.

        """
        if self._failure is not None:
            raise StoreError(f"{self.path}: {self._failure}") from self._failure
        _drain_eventfd(self.wake_fd)
        replies: list[Any] = []
        while not self._done.empty():
            replies.extend(self._done.get())
        return replies

    def close(self) -> None:
        """Write what is left, and close."""
        self._batches.put(None)
        self._writer.join()
        self._reader.close()
        os.close(self.wake_fd)

    # ------------------------------------------------------------ reading

    def unended(self) -> list[tuple[int, int, bytes, bytes]]:
        """Read (id, owner, spec, info) of all tasks that have not ended, by id."""
        query = "SELECT id, owner, spec, info FROM tasks WHERE ended = 0 ORDER BY id"
        return self._reader.execute(query).fetchall()

    def ended(self, before: int, limit: int) -> list[tuple[int, int, bytes, bytes]]:
        """Read ended tasks with smaller ids than `before`, newest first."""
        query = (
            "SELECT id, owner, spec, info FROM tasks "
            "WHERE ended = 1 AND id < ? ORDER BY id DESC LIMIT ?"
        )
        return self._reader.execute(query, (before, limit)).fetchall()

    def task(self, task_id: int) -> tuple[int, int, bytes, bytes] | None:
        query = "SELECT id, owner, spec, info FROM tasks WHERE id = ?"
        row: tuple[int, int, bytes, bytes] | None
        row = self._reader.execute(query, (task_id,)).fetchone()
        return row

    def last_id(self) -> int:
        found = self._reader.execute("SELECT max(id) FROM tasks").fetchone()[0]
        return int(found or 0)

    def key(self, owner: int, key: str) -> tuple[int, int] | None:
        """Find (first id, count) of an earlier submit with this idempotency key."""
        query = "SELECT first, count FROM keys WHERE owner = ? AND key = ?"
        row: tuple[int, int] | None
        row = self._reader.execute(query, (owner, key)).fetchone()
        return row

    def samples(self) -> list[tuple[str, str, float, float]]:
        """Read (type, resource, seconds, work) of all measurements."""
        query = "SELECT type, resource, seconds, work FROM samples"
        return self._reader.execute(query).fetchall()

    # ------------------------------------------------------------ the writer thread

    def _write(self) -> None:
        connection = _connect(self.path)
        try:
            while (batches := self._gather()) is not None:
                _commit(connection, batches)
                for batch in batches:
                    self._done.put(batch.replies)
                os.eventfd_write(self.wake_fd, 1)
        except sqlite3.Error as error:
            # A failed sync is never tried again: the state on disk is unknown.
            self._failure = error
            os.eventfd_write(self.wake_fd, 1)
        finally:
            connection.close()

    def _gather(self) -> list[Batch] | None:
        """Wait for a batch; take all that wait with it. None: close."""
        first = self._batches.get()
        if first is None:
            return None
        batches = [first]
        while not self._batches.empty():
            following = self._batches.get()
            if following is None:
                self._batches.put(None)
                break
            batches.append(following)
        return batches

    def _count_start(self) -> int:
        """Count the daemon's starts; the count makes its epochs newer than all before."""
        with self._reader:
            self._reader.execute(
                "INSERT INTO meta VALUES ('incarnation', 1) "
                "ON CONFLICT (name) DO UPDATE SET value = value + 1"
            )
        query = "SELECT value FROM meta WHERE name = 'incarnation'"
        return int(self._reader.execute(query).fetchone()[0])


def _commit(connection: sqlite3.Connection, batches: list[Batch]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for batch in batches:
        if batch.tasks:
            connection.executemany(
                "INSERT INTO tasks VALUES (?, ?, ?, ?, ?)", batch.tasks
            )
        if batch.changes:
            rows = [(ended, info, key) for key, (ended, info) in batch.changes.items()]
            change = "UPDATE tasks SET ended = ?, info = ? WHERE id = ?"
            connection.executemany(change, rows)
        if batch.keys:
            connection.executemany("INSERT INTO keys VALUES (?, ?, ?, ?)", batch.keys)
        if batch.samples:
            sample = "INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?)"
            connection.executemany(sample, batch.samples)
    connection.execute("COMMIT")


def _open(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        connection = _connect(path)
        _migrate(connection, path)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{path}: {error}; hetd does not start without it") from error
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA busy_timeout = 5000")
    return connection


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA:
        raise InputError(
            f"{path} was written by a newer hetd (schema {version}, ours is {SCHEMA})"
        )
    if version == 0:
        connection.executescript(
            f"BEGIN;{TABLES}PRAGMA user_version = {SCHEMA};COMMIT;"
        )


def _drain_eventfd(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.eventfd_read(descriptor)
