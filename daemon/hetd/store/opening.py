"""Opening a database: created in one step, or examined before it is changed.

An existing database is never replaced by an empty one: a damaged one is refused with a
hint, and left unchanged.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from typing import TYPE_CHECKING

from hetd.store.errors import refusal
from hetd.store.integrity import (
    drop_circuits,
    drop_measurements,
    first_found,
    looked_for,
)
from hetd.store.schema import APPLICATION, MARKED, migrate, refuse_newer, version_of
from hetd.store.writeahead import lost_commits

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("hetd")

MAGIC = b"SQLite format 3\0"
LOOK_S = 0.25
"""Limit for the check of the structure at a start, seconds; `check` has none."""
LOG_PAGES = 2000
"""Pages of the log after which a commit copies them into the database, which takes a millisecond.

Twice SQLite's default: one commit of two hundred, which the 99th percentile does not see. Much
more would take long to verify at a start after a crash (`writeahead`)."""
LOG_LIMIT = 16 << 20
"""Bytes that the log keeps on disk once a reader who held it open is gone."""


def open_database(path: Path) -> sqlite3.Connection:
    """Open a database for reading and writing; create it at the first start.

    Raises:
        StoreError: damaged, not ours to write, or not a database of hetd.
        InputError: written by a newer hetd.

    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _create(path)
        examine(path)
        return _take_up(path)
    except (sqlite3.Error, OSError) as error:
        raise refusal(path, _text(error)) from error


def connect(path: Path) -> sqlite3.Connection:
    """Connect to a database that was examined."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT}")
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Connect so that the database cannot be changed."""
    behind = path.with_name(path.name + "-wal")
    # without a log nobody has it open: then SQLite need not make files beside it
    mode = "mode=ro" if behind.exists() else "immutable=1"
    address = f"{path.absolute().as_uri()}?{mode}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None)
    connection.execute("PRAGMA busy_timeout = 5000")
    return connection


# ---------------------------------------------------------------- a new one


def _create(path: Path) -> None:
    """Create an empty database: complete and on the disk, or not at all."""
    _refuse_remains(path)
    draft = path.with_name(path.name + ".new")
    for left in (draft, draft.with_name(draft.name + "-journal")):
        left.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.close(descriptor)
    with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as database:
        migrate(database)
    put_in_place(draft, path)


def _refuse_remains(path: Path) -> None:
    """Refuse to create a database where there has been one."""
    for suffix in ("-wal", "-shm", ".reserve"):
        left = path.with_name(path.name + suffix)
        if left.exists():
            raise refusal(path, f"it is gone, though {left.name} is there")


def put_in_place(draft: Path, path: Path) -> None:
    """Give a finished file its name, so that a power cut leaves it or nothing."""
    sync(draft)
    draft.rename(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------- one that is there


def examine(path: Path) -> None:
    """Examine a database that nobody has open, without changing anything.

    Raises:
        StoreError: it is damaged, or not ours to write.
        InputError: written by a newer hetd.
        OSError, sqlite3.Error: it cannot be read.

    """
    _demand_ours(path)
    with path.open("rb") as file:
        head = file.read(100)
    if not head:
        raise refusal(path, "it is empty (0 bytes)")
    if not head.startswith(MAGIC):
        raise refusal(path, "it is not a database")
    lost = lost_commits(path)
    if lost is not None:
        raise refusal(path, lost)
    with contextlib.closing(connect_to_read(path)) as database:
        refuse_foreign(database, path)


def _demand_ours(path: Path) -> None:
    owner, ours = path.stat().st_uid, os.geteuid()
    if owner != ours:
        whose = f"it belongs to uid {owner}, and hetd runs as uid {ours}"
        raise refusal(path, whose, "run hetd as its owner, or give it to ours (chown)")
    for place in (path, path.parent):
        if not os.access(place, os.W_OK, effective_ids=True):
            raise refusal(path, f"{place} is read-only", "make it writable")


def refuse_foreign(database: sqlite3.Connection, path: Path) -> None:
    """Refuse databases of other programs and of newer versions of hetd."""
    version = version_of(database)
    ours = database.execute("PRAGMA application_id").fetchone()[0] == APPLICATION
    if not (ours or (0 < version < MARKED and _has_samples(database))):
        raise refusal(path, "it is a database of another program")
    refuse_newer(version, path)


def _has_samples(database: sqlite3.Connection) -> bool:
    """Whether there is a table that ours had from the first schema on."""
    query = "SELECT 1 FROM sqlite_master WHERE name = 'samples'"
    return database.execute(query).fetchone() is not None


def _take_up(path: Path) -> sqlite3.Connection:
    """Check the structure, bring it to our schema, and write the log into it.

    That also rewrites pages that a failed sync left in memory only.
    """
    with contextlib.ExitStack() as on_failure:
        connection = on_failure.enter_context(contextlib.closing(connect(path)))
        _refuse_broken(connection, path)
        migrate(connection)
        _refuse_damaged(connection, path)
        drop_measurements(connection)
        drop_circuits(connection)
        fold(connection)
        on_failure.pop_all()
    return connection


def _refuse_broken(connection: sqlite3.Connection, path: Path) -> None:
    broken = quick_check(connection, LOOK_S)
    _refuse(path, None if broken is None else "".join(broken[:1]), "structure")


def _refuse_damaged(connection: sqlite3.Connection, path: Path) -> None:
    _refuse(path, first_found(connection, LOOK_S), "rows")


def _refuse(path: Path, found: str | None, what: str) -> None:
    """Refuse damaged data; log if the time was too short for all of it."""
    if found is None:
        text = "%s: looked at its %s for %g s only; hetctl daemon check looks at all"
        log.info(text, path, what, LOOK_S)
    elif found:
        raise refusal(path, f"it is damaged: {found}")


def fold(connection: sqlite3.Connection) -> None:
    """Write the log into the database, or as much as there is room for."""
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
            raise


def quick_check(connection: sqlite3.Connection, limit: float) -> list[str] | None:
    """Check the structure; return None if that exceeds the time limit."""
    found = looked_for(connection, "PRAGMA quick_check(1)", limit)
    if found is None:
        return None
    return [str(text) for (text,) in found if text != "ok"]


def _text(error: sqlite3.Error | OSError) -> str:
    return str(error.strerror) if isinstance(error, OSError) else str(error)
