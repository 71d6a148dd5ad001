"""Maintenance of a store from outside: check, backup, restore.

Called by `python -m hetd.store`, as `hetctl daemon check|backup|restore` do. Checking
and saving go on beside a running daemon; bringing back keeps one out.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hetd.store.errors import StoreError
from hetd.store.integrity import ALL_FROM, SHOWN, damages
from hetd.store.lock import is_locked, lock
from hetd.store.opening import MAGIC, connect_to_read, put_in_place, refuse_foreign
from hetd.store.rows import Reader
from hetd.store.schema import version_of
from hetd.store.writeahead import lost_commits
from libtask.errors import HetError, InputError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "hetd.db"
"""The database in a state directory."""
SKIPPED_IDS = 1_000_000
"""Ids left out after a restore: what was given since the backup is not given again."""
SKIPPED_STARTS = 100_000
"""Starts left out for the same reason: epochs of workers that may still be there."""


@dataclass(slots=True)
class Findings:
    """The findings in a store, or the result of an action. Sizes in bytes."""

    action: str
    path: str
    running: bool = False
    """A daemon has it open; its commit under way is not checked."""
    problems: list[str] = field(default_factory=list)
    schema: int | None = None
    size_bytes: int = 0
    log_bytes: int = 0
    unended: int | None = None
    ended: int | None = None
    keys: int | None = None
    samples: int | None = None
    settings: int | None = None
    """Settings of operators."""
    last_id: int | None = None
    file: str | None = None
    """The backup that was written or read."""
    aside: list[str] = field(default_factory=list)
    """Files of the store before a restore, under their new names."""


# ---------------------------------------------------------------- check


def check(path: Path) -> Findings:
    """Look at all of a database; changes nothing.

    Raises:
        NotFoundError: there is none; InputError: it may not be read.

    """
    found = Findings("check", str(path), is_locked(path.parent))
    try:
        found.size_bytes = path.stat().st_size
        found.log_bytes = _size(path.with_name(path.name + "-wal"))
        found.problems += _at_a_glance(path, running=found.running)
        if not found.problems:
            _look_inside(path, found)
    except FileNotFoundError as error:
        raise NotFoundError(f"no store at {path}") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (sqlite3.Error, HetError) as error:
        found.problems.append(str(error).removeprefix(f"{path}: "))
    return found


def _at_a_glance(path: Path, *, running: bool) -> Iterator[str]:
    """Find what makes it wrong to let SQLite open it: that would hide the damage."""
    with path.open("rb") as file:
        head = file.read(len(MAGIC))
    if not head:
        yield "it is empty (0 bytes)"
    elif head != MAGIC:
        yield "it is not a database"
    elif not running and (lost := lost_commits(path)) is not None:
        yield lost


def _look_inside(path: Path, found: Findings) -> None:
    with contextlib.closing(connect_to_read(path)) as database:
        refuse_foreign(database, path)
        found.schema = version_of(database)
        rows = database.execute(f"PRAGMA integrity_check({SHOWN})").fetchall()
        found.problems += [text for (text,) in rows if text != "ok"]
        reader = Reader(database, path)
        found.problems += damages(database, found.schema)
        found.unended = reader.count("tasks WHERE ended = 0")
        found.ended = reader.count("tasks WHERE ended > 0")
        found.keys, found.samples = reader.count("keys"), reader.count("samples")
        if found.schema >= ALL_FROM:
            found.settings = reader.count("settings")
        found.last_id = reader.last_id()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


# ---------------------------------------------------------------- backup


def backup(path: Path, target: Path, *, replace: bool = False) -> Findings:
    """Save a snapshot of a database; the target is complete or absent.

    Raises:
        StoreError: it is damaged, or the target cannot be written.
        InputError: the target is there already; NotFoundError: there is no store.

    """
    if target.exists() and not replace:
        raise InputError(f"{target} is there already; --force replaces it")
    found = check(path)
    _demand_sound(found)
    with _draft(target) as draft:
        _copy(path, draft)
        _demand_sound(check(draft))
        _put(draft, target)
    found.action, found.file = "backup", str(target)
    return found


def _demand_sound(found: Findings) -> None:
    if found.problems:
        raise StoreError(f"{found.path} is damaged: {found.problems[0]}")


@contextlib.contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """Name a file beside the target that is removed if it does not become the target."""
    draft = target.with_name(f"{target.name}.{os.getpid()}.draft")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        yield draft
    except OSError as error:
        raise StoreError(f"{target}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def _copy(path: Path, draft: Path) -> None:
    """Copy what is committed, in one reading transaction, into a file of its own."""
    try:
        with (
            contextlib.closing(connect_to_read(path)) as source,
            contextlib.closing(sqlite3.connect(draft)) as copy,
        ):
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise StoreError(f"copying {path}: {error}") from error


def _put(draft: Path, target: Path) -> None:
    owner = target.parent.stat()
    if os.geteuid() == 0:  # root saves and restores for the daemon's user
        os.chown(draft, owner.st_uid, owner.st_gid)
    put_in_place(draft, target)


# ---------------------------------------------------------------- restore


def restore(path: Path, source: Path) -> Findings:
    """Put a backup in the place of a database, which is kept under another name.

    Raises:
        StoreError: the backup is damaged; nothing was changed.
        InputError: a daemon runs; NotFoundError: there is no such backup.

    """
    held = lock(path.parent)
    try:
        found = check(source)
        _demand_sound(found)
        with _draft(path) as draft:
            _copy(source, draft)
            _skip_numbers(draft, path)
            found.aside = [str(each) for each in _set_aside(path)]
            _put(draft, path)
    finally:
        os.close(held)
    found.action, found.path, found.file = "restore", str(path), str(source)
    return found


def _skip_numbers(draft: Path, old: Path) -> None:
    """Leave out the ids and epochs that may have been given since the backup."""
    ids, starts = _given(draft)
    with contextlib.suppress(sqlite3.Error, HetError, OSError):  # where it is legible
        ids, starts = map(max, _given(old), (ids, starts))
    query = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
    values = [("last_id", ids + SKIPPED_IDS), ("incarnation", starts + SKIPPED_STARTS)]
    with contextlib.closing(sqlite3.connect(draft)) as database, database:
        database.executemany(query, values)


def _given(path: Path) -> tuple[int, int]:
    """Read the last id and the number of starts."""
    with contextlib.closing(connect_to_read(path)) as database:
        query = "SELECT value FROM meta WHERE name = 'incarnation'"
        starts = database.execute(query).fetchone()
        return Reader(database, path).last_id(), int(starts[0]) if starts else 0


def _set_aside(path: Path) -> Iterator[Path]:
    """Rename a database and its log, the database first.

    A crash in between leaves no database but a log or a reserve, with which hetd does
    not start; never a database without the log that belongs to it.
    """
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"  # noqa: TID251  a command is a shell: it owns its clock
    for suffix in ("", "-wal", "-shm"):
        there = path.with_name(path.name + suffix)
        if there.exists():
            yield there.rename(path.with_name(f"{path.name}.before-{stamp}{suffix}"))
