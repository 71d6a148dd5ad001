"""`python -m hetd.maintenance check|backup|restore`: work on a store that is not open here.

Prints one JSON object; problems make the exit status 1. `hetctl daemon` calls it, as
clients do not import the daemon. Checking and saving go on beside a running daemon;
bringing back keeps one out.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sqlite3
import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hetd.devices.circuits import decode_circuit
from hetd.store.errors import StoreError
from hetd.store.integrity import ALL_FROM, PAGES, SHOWN, damages
from hetd.store.lock import is_locked, lock
from hetd.store.opening import MAGIC, connect_to_read, put_in_place, refuse_foreign
from hetd.store.rows import Reader
from hetd.store.schema import SCHEMA, version_of
from hetd.store.writeahead import lost_commits
from hetd.tasks import leases, operator_settings, page
from libtask.errors import HetError, InputError, NotAllowedError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    StoredValues: TypeAlias = Iterator[tuple[str, bytes, Callable[[bytes], object]]]
    """Names of values, the values as they are stored, and their decoders."""

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


SOUND_PAGES = f"SELECT id, entry FROM tasks WHERE id NOT IN (SELECT id FROM {PAGES})"  # noqa: S608  words of our own
STATUS: tuple[tuple[type[HetError], int], ...] = (
    (NotFoundError, 4),
    (NotAllowedError, 5),
    (InputError, 2),
)
"""Exit status by error; the first that fits, else 1."""


def main() -> None:
    """Run the command line."""
    try:
        found = _done(_parse())
    except HetError as error:
        print(error, file=sys.stderr)  # noqa: T201  the one line
        fitting = (status for kind, status in STATUS if isinstance(error, kind))
        sys.exit(next(fitting, 1))
    print(msgspec.json.encode(asdict(found)).decode())  # noqa: T201  the answer
    sys.exit(1 if found.problems else 0)


def _done(arguments: argparse.Namespace) -> Findings:
    path = arguments.state / NAME
    if arguments.action == "check":
        return check(path, values=True)
    if arguments.action == "backup":
        return backup(path, arguments.file, replace=arguments.force)
    return restore(path, arguments.file)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m hetd.maintenance", description=__doc__
    )
    actions = parser.add_subparsers(dest="action", required=True)
    for name in ("check", "backup", "restore"):
        action = actions.add_parser(name)
        action.add_argument("state", type=Path, help="state directory")
        if name != "check":
            action.add_argument("file", type=Path, help="the backup")
        if name == "backup":
            action.add_argument("--force", action="store_true", help="replace it")
    return parser.parse_args()


# ---------------------------------------------------------------- check


def check(path: Path, *, values: bool = False) -> Findings:
    """Look at all of a database; changes nothing.

    Args:
        path: the database.
        values: also decode what is stored. A backup and its restore keep an invalid value
            as it is: the daemon runs with it, or a later one may read it.

    Raises:
        NotFoundError: there is none; InputError: it may not be read.

    """
    found = Findings("check", str(path), is_locked(path.parent))
    try:
        found.size_bytes = path.stat().st_size
        found.log_bytes = _size(path.with_name(path.name + "-wal"))
        found.problems += _at_a_glance(path, running=found.running)
        if not found.problems:
            _look_inside(path, found, values=values)
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


def _look_inside(path: Path, found: Findings, *, values: bool) -> None:
    with contextlib.closing(connect_to_read(path)) as database:
        refuse_foreign(database, path)
        found.schema = version_of(database)
        rows = database.execute(f"PRAGMA integrity_check({SHOWN})").fetchall()
        found.problems += [text for (text,) in rows if text != "ok"]
        reader = Reader(database, path)
        found.problems += damages(database, found.schema)
        if values and found.schema == SCHEMA:
            found.problems += _invalid_values(database)
        found.unended = reader.count("tasks WHERE ended = 0")
        found.ended = reader.count("tasks WHERE ended > 0")
        found.keys, found.samples = reader.count("keys"), reader.count("samples")
        if found.schema >= ALL_FROM:
            found.settings = reader.count("settings")
        found.last_id = reader.last_id()


def _invalid_values(database: sqlite3.Connection) -> Iterator[str]:
    """Describe what no daemon of this version can read, although its checksum is right."""
    pages = database.execute(SOUND_PAGES)
    found: StoredValues = (
        (f"page of task {task}", entry, page.decode) for task, entry in pages
    )
    yield from _undecodable(found, "; hetd shows that task as failed")
    settings = database.execute("SELECT what, subject, value FROM settings")
    found = (
        (f"setting {what} {subject}".rstrip(), value, READ_AT_START[what])
        for what, subject, value in settings
        if what in READ_AT_START
    )
    yield from _undecodable(found, "; hetd does not start with it")
    circuits = database.execute("SELECT app, resource, value FROM circuits")
    found = (
        (f"failure of {app} on {resource}", value, decode_circuit)
        for app, resource, value in circuits
    )
    yield from _undecodable(found, "; hetd does not start with it")


READ_AT_START: dict[str, Callable[[bytes], object]] = {
    **dict.fromkeys(("drained", "policy"), operator_settings.decode),
    "policy-fault": operator_settings.decode_fault,
    leases.STORED: leases.decode,
}
"""The decoders of settings. A start leaves out invalid settings of other kinds."""


def _undecodable(rows: StoredValues, outcome: str) -> Iterator[str]:
    """Describe the first rows that cannot be decoded, and count the others."""
    found = 0
    for what, value, decode in rows:
        try:
            decode(value)
        except msgspec.MsgspecError as error:
            found += 1
            if found <= SHOWN:
                yield f"{what} is invalid: {error}{outcome}"
    if found > SHOWN:
        yield f"and {found - SHOWN} more like these"


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


if __name__ == "__main__":
    main()
