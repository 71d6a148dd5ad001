"""The store: tasks, idempotency keys and measurements in SQLite, durable.

WAL with FULL synchronisation. What the loop's turns change gathers in a batch; the
loop writes it into one transaction, and a thread does nothing but commit it (group
commit), so that the loop never waits for the disk. The thread holds the interpreter's
lock only for a moment: writing rows there would make the two threads fight for it.
What must not be told before it is durable is handed back by `committed()`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import threading
from dataclasses import astuple, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from hetd.estimates.point import Figures, key_of
from libtask.errors import HetError, InputError
from libtask.faultpoints import reach
from libtask.messages import Submitted, encode

if TYPE_CHECKING:
    from pathlib import Path

    from hetd.estimates.point import Key

SCHEMA = 2
KEYS_TABLE = """
CREATE TABLE keys (owner INTEGER, key TEXT, digest BLOB, answer BLOB, at INTEGER,
                   PRIMARY KEY (owner, key)) WITHOUT ROWID;
"""
TABLES = f"""
{KEYS_TABLE}
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    ended INTEGER NOT NULL,
    entry BLOB NOT NULL
);
CREATE INDEX unended ON tasks (id) WHERE ended = 0;
CREATE TABLE samples (type TEXT, resource TEXT, grain INTEGER, seconds REAL, work REAL,
                      spread REAL, count INTEGER, setup REAL, joules REAL,
                      PRIMARY KEY (type, resource, grain)) WITHOUT ROWID;
"""


class StoreError(HetError):
    """The database cannot be read or written."""

    code = "store"


@dataclass(slots=True)
class Batch:
    """What one commit makes durable, and what is told then."""

    tasks: list[tuple[int, bool, bytes]] = field(default_factory=list)
    """(id, ended, entry) of new and changed tasks."""
    keys: list[tuple[int, str, bytes, bytes, int]] = field(default_factory=list)
    """(owner, key, digest of the request, encoded answer, seconds since the epoch)."""
    samples: dict[Key, Figures | None] = field(default_factory=dict)
    """What is known of execution times; None: forgotten."""
    replies: list[Any] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.tasks or self.keys or self.samples or self.replies)

    def keep(self, known: Figures) -> None:
        """Store what is known of an execution time, in place of what was."""
        self.samples[key_of(known)] = known

    def forget(self, known: Figures) -> None:
        """Remove what is known of an execution time."""
        self.samples[key_of(known)] = None


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
        self._writer = _connect(path)
        self._committing: Batch | None = None
        self._orders: queue.SimpleQueue[Literal["commit", "end"]] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[sqlite3.Error | None] = queue.SimpleQueue()
        self._committer = threading.Thread(
            target=self._commit, name="commit", daemon=True
        )
        self._committer.start()

    # ------------------------------------------------------------ writing

    @property
    def idle(self) -> bool:
        """Whether no commit is under way."""
        return self._committing is None

    def submit(self, batch: Batch) -> None:
        """Write a batch into a transaction and order its commit; only while idle.

        Raises:
            StoreError: the batch could not be written.

        """
        self._committing = batch
        try:
            _write(self._writer, batch)
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error
        reach("store.written")
        self._orders.put("commit")

    def committed(self) -> list[Any]:
        """Return the replies of the batch whose commit has just ended, if one has.

        Raises:
            StoreError: the commit failed; nothing of the batch may be told.

        """
        if self._outcomes.empty():
            return []
        _drain_eventfd(self.wake_fd)
        return self.flush()

    def flush(self) -> list[Any]:
        """Wait for the commit under way; return the replies that it makes durable.

        Raises:
            StoreError: as for `committed`.

        """
        if self._committing is None:
            return []
        outcome = self._outcomes.get()
        if outcome is not None:
            # A failed sync is never tried again: the state on disk is unknown.
            raise StoreError(f"{self.path}: {outcome}") from outcome
        batch, self._committing = self._committing, None
        return batch.replies

    def close(self) -> None:
        """Close; what was not flushed is lost."""
        self._orders.put("end")
        self._committer.join()
        self._writer.close()
        self._reader.close()
        os.close(self.wake_fd)

    def _commit(self) -> None:
        """Commit what is ordered; the thread's whole life."""
        while self._orders.get() == "commit":
            outcome: sqlite3.Error | None = None
            try:
                reach("store.before-commit")
                self._writer.execute("COMMIT")
                reach("store.committed")
            except sqlite3.Error as error:
                outcome = error
            self._outcomes.put(outcome)
            os.eventfd_write(self.wake_fd, 1)

    # ------------------------------------------------------------ reading

    def unended(self) -> list[bytes]:
        """Read the entries of all tasks that have not ended, by id."""
        query = "SELECT entry FROM tasks WHERE ended = 0 ORDER BY id"
        return [row[0] for row in self._reader.execute(query)]

    def ended(self, before: int, limit: int) -> list[tuple[int, bytes]]:
        """Read (id, entry) of ended tasks with smaller ids than `before`, newest first."""
        query = (
            "SELECT id, entry FROM tasks "
            "WHERE ended = 1 AND id < ? ORDER BY id DESC LIMIT ?"
        )
        return self._reader.execute(query, (before, limit)).fetchall()

    def task(self, task_id: int) -> bytes | None:
        """Read the entry of a task."""
        query = "SELECT entry FROM tasks WHERE id = ?"
        row = self._reader.execute(query, (task_id,)).fetchone()
        return row[0] if row is not None else None

    def last_id(self) -> int:
        found = self._reader.execute("SELECT max(id) FROM tasks").fetchone()[0]
        return int(found or 0)

    def key(self, owner: int, key: str) -> tuple[bytes, bytes] | None:
        """Find (digest, answer) of an earlier request with this idempotency key."""
        query = "SELECT digest, answer FROM keys WHERE owner = ? AND key = ?"
        row: tuple[bytes, bytes] | None
        row = self._reader.execute(query, (owner, key)).fetchone()
        return row

    def samples(self) -> list[Figures]:
        """Read all that is known of execution times."""
        columns = ", ".join(field.name for field in fields(Figures))
        query = f"SELECT {columns} FROM samples"  # noqa: S608  names of our own
        return [Figures(*row) for row in self._reader.execute(query)]

    def _count_start(self) -> int:
        """Count the daemon's starts; the count makes its epochs newer than all before."""
        with self._reader:
            self._reader.execute(
                "INSERT INTO meta VALUES ('incarnation', 1) "
                "ON CONFLICT (name) DO UPDATE SET value = value + 1"
            )
        query = "SELECT value FROM meta WHERE name = 'incarnation'"
        return int(self._reader.execute(query).fetchone()[0])


def _write(connection: sqlite3.Connection, batch: Batch) -> None:
    """Write a batch into a transaction that is left open."""
    connection.execute("BEGIN IMMEDIATE")
    if batch.tasks:
        task = "INSERT OR REPLACE INTO tasks VALUES (?, ?, ?)"
        connection.executemany(task, batch.tasks)
    if batch.keys:
        connection.executemany("INSERT INTO keys VALUES (?, ?, ?, ?, ?)", batch.keys)
    if batch.samples:
        _write_samples(connection, batch.samples)


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
    elif version < SCHEMA:
        connection.execute("BEGIN IMMEDIATE")
        _keep_answers(connection)
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
        connection.execute("COMMIT")


def _keep_answers(connection: sqlite3.Connection) -> None:
    """Schema 1 to 2: keys were of submits only, with the first id and the number.

    An empty digest stands for whatever was asked.
    """
    rows = connection.execute("SELECT owner, key, first, count FROM keys").fetchall()
    connection.execute("DROP TABLE keys")
    connection.execute(KEYS_TABLE)
    kept = [
        (owner, key, b"", encode(Submitted(0, list(range(first, first + count)))), 0)
        for owner, key, first, count in rows
    ]
    connection.executemany("INSERT INTO keys VALUES (?, ?, ?, ?, ?)", kept)


def _drain_eventfd(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.eventfd_read(descriptor)
