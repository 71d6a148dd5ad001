"""The store that the loop writes through: batches, committed by a thread.

WAL with FULL synchronisation. What the loop's turns change gathers in a batch; the
loop writes it into one transaction, and a thread does nothing but commit it (group
commit), so that the loop never waits for the disk. The thread holds the interpreter's
lock only for a moment: writing rows there would make the two threads fight for it.
What must not be told before it is durable is handed back by `committed()`.

Where the disk is full, or was made read-only, a batch is stuck: it is written again
until there is room. A failed sync is another matter: what is on the disk is unknown
then, and the store ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import secrets
import sqlite3
import threading
from typing import TYPE_CHECKING, Any, Literal

from hetd.clock import SYSTEM_CLOCK
from hetd.store import rows
from hetd.store.batch import Batch
from hetd.store.errors import StoreError, StoreFullError
from hetd.store.opening import connect, open_database
from hetd.store.reserve import MARGIN, NO_ROOM, ROOM, Reserve
from hetd.store.retention import KeyAge, Removed, Retention, Trimmer
from libtask.faultpoints import reach

if TYPE_CHECKING:
    from pathlib import Path

    from hetd.clock import Clock

log = logging.getLogger("hetd")

SECOND = 1_000_000_000
RETRY_NS = SECOND
"""Between two checks for free space, nanoseconds."""
FIRST_STARTS = 1 << 30
"""A new store counts from a number drawn below this. Launchers and workers outlive the daemon:
what those of another store report must not fit a worker or an epoch of this one."""
FATAL = frozenset({sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC})
"""A failed sync is never retried: the kernel may have dropped the pages."""


class Store(rows.Reader):
    """Tasks and measurements on disk.

    Args:
        path: database file; created at the first start.
        retention: limits on the history that is kept.
        clock: the daemon's clock.

    Raises:
        StoreError: damaged, or not writable; InputError: of a newer schema.

    """

    shortage: str | None = None
    """Why new tasks are refused; None: there is space."""
    stuck: Batch | None = None
    """The batch that waits for space; its replies must not be sent yet."""

    def __init__(
        self,
        path: Path,
        retention: Retention | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(open_database(path), path)
        self.path = path
        self._clock = clock
        self._reserve = Reserve(path.with_name(path.name + ".reserve"))
        self._look_at = clock.now()
        self._take_reserve(ROOM)
        self.incarnation = self._count_start()
        self.wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._writer = connect(path)
        self._fresh = rows.Reader(self._writer, path)
        """Reads with the pages that the last commit has changed in its cache."""
        now, wall = self._seconds(), int(self._clock.wall())
        keys = KeyAge.at_start(self._writer, now, wall)
        self._trimmer = Trimmer(retention or Retention(), now, keys)
        self._removed = Removed()
        self._freed: list[Removed] = []
        self._committing: Batch | None = None
        self._orders: queue.SimpleQueue[Literal["commit", "end"]] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[sqlite3.Error | None] = queue.SimpleQueue()
        self._committer = threading.Thread(
            target=self._commit, name="commit", daemon=True
        )
        self._committer.start()

    def key(self, owner: int, key: str) -> tuple[bytes, bytes] | None:
        """Find (digest, answer) of an earlier request with this idempotency key.

        It is read where it costs least: each commit makes the cache of the other connection stale.
        """
        return self._fresh.key(owner, key) if self.idle else super().key(owner, key)

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
            rows.write(self._writer, batch)
        except sqlite3.Error as error:
            if not self._may_pass(error):
                raise StoreError(f"{self.path}: {error}") from error
            self._tell(error)
            return
        reach("store.written")
        self._orders.put("commit")

    def committed(self) -> list[Any] | None:
        """Return the replies of the batch that has just become durable; None: none has.

        Raises:
            StoreError: the commit failed; no reply of the batch may be sent.

        """
        if not self._outcomes.empty():
            _drain_eventfd(self.wake_fd)
            return self._settle()
        if self.shortage is not None and self._clock.now() >= self._look_at:
            self._look_for_room()
        elif self._committing is None and self._trimmer.due(self._seconds()):
            self.submit(Batch())  # the thread trims with any commit
        return None

    def flush(self) -> list[Any]:
        """Wait for the commit under way; return the replies that it makes durable.

        Raises:
            StoreError: as for `committed`.
            StoreFullError: there is still no space for the stuck batch.

        """
        self.retry()
        replies = self._settle()
        _drain_eventfd(self.wake_fd)
        if self.stuck is not None:
            text = f"{self.path}: {self.shortage}; what happened last is not written"
            raise StoreFullError(text)
        return replies or []

    def _settle(self) -> list[Any] | None:
        """Take the outcome of the commit under way; wait for it if need be."""
        batch = self._committing
        if batch is None:
            return None
        outcome = self._outcomes.get()
        if outcome is not None:
            self._on_failure(batch, outcome)
            return None
        self._committing = None
        if self._removed:
            self._freed.append(self._removed)
        if batch.removed:
            self._freed.append(Removed(batch.freed, ids=batch.removed))
        return batch.replies

    def trim(self, owner: int, tasks: int, keys: int) -> None:
        """Remove the oldest history of a user with the next commits.

        Args:
            owner: uid of the user.
            tasks: bytes of ended tasks; `keys`: of answers to changes.

        """
        self._trimmer.excess[owner] = tasks, keys

    def freed(self) -> list[Removed]:
        """Return the rows removed since the last call."""
        freed, self._freed = self._freed, []
        return freed

    def close(self) -> None:
        """Close; unflushed changes are lost."""
        self._orders.put("end")
        self._committer.join()
        self._writer.close()
        self.connection.close()
        os.close(self.wake_fd)

    def _commit(self) -> None:
        """Commit on request: the main loop of the thread."""
        while self._orders.get() == "commit":
            outcome: sqlite3.Error | None = None
            try:
                self._trim()
                reach("store.before-commit")
                self._writer.execute("COMMIT")
                reach("store.committed")
            except sqlite3.Error as error:
                outcome = error
            self._tell(outcome)

    def _trim(self) -> None:
        now = self._seconds()
        self._removed = Removed()
        if self._trimmer.due(now):
            wall = int(self._clock.wall())
            self._removed = self._trimmer.step(self._writer, now, wall)

    def _tell(self, outcome: sqlite3.Error | None) -> None:
        self._outcomes.put(outcome)
        os.eventfd_write(self.wake_fd, 1)

    def _seconds(self) -> float:
        return self._clock.now() / SECOND

    # ------------------------------------------------------------ no room

    def _on_failure(self, batch: Batch, error: sqlite3.Error) -> None:
        """Keep a batch for which there is no space; fail if the disk fails.

        Raises:
            StoreError: the state of the disk is unknown.

        """
        if not self._may_pass(error):
            text = f"{self.path}: {error}; start hetd again once the disk is sound"
            raise StoreError(text) from error
        if self.shortage is None:
            log.error("%s: %s; new tasks are refused", self.path, error)
        self.shortage = str(error)
        self.stuck = batch
        self._make_room()
        self._look_at = self._clock.now() + RETRY_NS

    def _may_pass(self, error: sqlite3.Error) -> bool:
        """Whether a write failed for lack of space or permission, and not in a sync."""
        code = error.sqlite_errorcode
        primary = code & 0xFF
        if primary in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY}:
            return True
        if primary != sqlite3.SQLITE_IOERR or code in FATAL:
            return False
        return self._reserve.obstacle() in NO_ROOM

    def _make_room(self) -> None:
        """Roll the failed transaction back and release the reserve."""
        with contextlib.suppress(sqlite3.Error):
            self._writer.rollback()
        self._reserve.give_up()
        with contextlib.suppress(sqlite3.Error):  # as much as there is room for
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def retry(self) -> None:
        """Write the stuck batch again; `committed` returns its outcome."""
        batch, self.stuck = self.stuck, None
        if batch is not None:
            self.submit(batch)

    def _look_for_room(self) -> None:
        self._look_at = self._clock.now() + RETRY_NS
        if self.stuck is not None:
            self.retry()
        elif self.idle:
            self._take_reserve(MARGIN)

    def _take_reserve(self, margin: int) -> None:
        """Allocate the reserve; with it, new tasks are accepted again."""
        before, self.shortage = self.shortage, self._reserve.make(margin)
        if self.shortage is None and before is not None:
            log.info("%s: there is room again", self.path)

    def _count_start(self) -> int:
        """Count the daemon's starts; its epochs are newer than those of earlier starts.

        Counts fit 31 bits, and epochs 63.
        """
        with rows.complaints(self.path):
            try:
                return _next_incarnation(self.connection)
            except sqlite3.OperationalError:
                self._reserve.give_up()
                self.shortage = "no room at the start"
            return _next_incarnation(self.connection)


def _next_incarnation(connection: sqlite3.Connection) -> int:
    first = 1 + secrets.randbelow(FIRST_STARTS)
    with connection:
        connection.execute(
            "INSERT INTO meta VALUES ('incarnation', ?) "
            "ON CONFLICT (name) DO UPDATE SET value = value + 1",
            (first,),
        )
    query = "SELECT value FROM meta WHERE name = 'incarnation'"
    return int(connection.execute(query).fetchone()[0])


def _drain_eventfd(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.eventfd_read(descriptor)
