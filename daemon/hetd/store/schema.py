"""The schema, as the steps that led to it; each is done in one transaction.

A new database takes all steps, an older one those it lacks. A step is never changed
once it was released: a change is a new one, and `tests/data` gets a database of the
schema before it (`tests/data/make_database.py`).
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from hetd.store.checksums import teach
from libtask.errors import InputError
from libtask.messages import Submitted, encode

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

APPLICATION = 0x68657464
"""'hetd', in the header of the file: tells ours from any other SQLite database."""
MARKED = 3
"""The first schema that sets it."""

STEPS = (
    # 1: tasks, idempotency keys, execution times
    """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
    CREATE TABLE tasks (
        id INTEGER PRIMARY KEY,
        ended INTEGER NOT NULL,
        entry BLOB NOT NULL
    );
    CREATE INDEX unended ON tasks (id) WHERE ended = 0;
    CREATE TABLE keys (owner INTEGER, key TEXT, first INTEGER, count INTEGER,
                       PRIMARY KEY (owner, key)) WITHOUT ROWID;
    CREATE TABLE samples (type TEXT, resource TEXT, grain INTEGER, seconds REAL,
                          work REAL, spread REAL, count INTEGER, setup REAL,
                          joules REAL,
                          PRIMARY KEY (type, resource, grain)) WITHOUT ROWID;
    """,
    # 2: the answers to changes of every kind, where only submits had keys
    """
    CREATE TABLE answers (owner INTEGER, key TEXT, digest BLOB, answer BLOB, at INTEGER,
                          PRIMARY KEY (owner, key)) WITHOUT ROWID;
    INSERT INTO answers SELECT owner, key, x'', submitted(first, count), 0 FROM keys;
    DROP TABLE keys;
    ALTER TABLE answers RENAME TO keys;
    """,
    # 3: when tasks ended, for retention; a checksum of each page. What was there
    # before counts from now: it is kept too long rather than too short.
    """
    ALTER TABLE tasks ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
    UPDATE tasks SET ended = wall() WHERE ended != 0;
    UPDATE tasks SET sum = page_sum(id, ended, entry);
    CREATE INDEX history ON tasks (ended) WHERE ended > 0;
    UPDATE keys SET at = wall() WHERE at = 0;
    CREATE INDEX key_age ON keys (at);
    PRAGMA application_id = 0x68657464;
    """,
    # 4: what happened to the node as a whole
    """
    CREATE TABLE notes (number INTEGER PRIMARY KEY, at REAL NOT NULL, what TEXT NOT NULL,
                        resource TEXT, text TEXT NOT NULL);
    """,
    # 5: what operators have set; whose tasks ended, for listings; checksums of keys and
    # of execution times
    """
    CREATE TABLE settings (what TEXT, subject TEXT, value BLOB NOT NULL,
                           sum INTEGER NOT NULL,
                           PRIMARY KEY (what, subject)) WITHOUT ROWID;
    ALTER TABLE tasks ADD COLUMN owner INTEGER NOT NULL DEFAULT -1;
    UPDATE tasks SET owner = owner_of(entry);
    CREATE INDEX owned ON tasks (owner, id) WHERE ended > 0;
    ALTER TABLE keys ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
    UPDATE keys SET sum = key_sum(owner, CAST(key AS BLOB), digest, answer, at);
    ALTER TABLE samples ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
    UPDATE samples SET sum = sample_sum(CAST(type AS BLOB), CAST(resource AS BLOB),
        grain, seconds, work, spread, count, setup, joules);
    """,
    # 6: which applications avoid which resources, as they failed there; bytes that each
    # user's tasks and answers take, kept up with every change of them; the order in which
    # a user's answers leave; whose tasks were measured
    """
    CREATE TABLE circuits (owner INTEGER, app TEXT, resource TEXT, value BLOB NOT NULL,
                           sum INTEGER NOT NULL,
                           PRIMARY KEY (owner, app, resource)) WITHOUT ROWID;
    CREATE TABLE usage (owner INTEGER PRIMARY KEY, tasks INTEGER NOT NULL,
                        keys INTEGER NOT NULL);
    INSERT INTO usage SELECT owner, sum(length(entry)), 0 FROM tasks GROUP BY owner;
    INSERT INTO usage SELECT owner, 0, sum(length(answer)) FROM keys WHERE true
        GROUP BY owner
        ON CONFLICT (owner) DO UPDATE SET keys = excluded.keys;
    CREATE INDEX owned_keys ON keys (owner, at);
    CREATE TABLE measurers (type TEXT, owner INTEGER,
                            PRIMARY KEY (type, owner)) WITHOUT ROWID;
    """,
    # 7: what the scheduler keeps of a task, in one part of its page. Damaged pages stay as
    # they are, to be found by their checksums.
    """
    UPDATE tasks SET entry = with_runtime(entry),
        sum = page_sum(id, ended, with_runtime(entry))
        WHERE sum = page_sum(id, ended, entry);
    UPDATE usage SET tasks = (SELECT coalesce(sum(length(entry)), 0) FROM tasks
                              WHERE tasks.owner = usage.owner);
    """,
    # 8: when whose tasks ended is read from an index; which tasks have a name or a job, or
    # did not complete, so that they are found among many others
    """
    DROP INDEX owned;
    CREATE INDEX owned ON tasks (owner, id, ended) WHERE ended > 0;
    ALTER TABLE tasks ADD COLUMN marked INTEGER NOT NULL DEFAULT 0;
    UPDATE tasks SET marked = 1 WHERE is_marked(entry);
    CREATE INDEX marked ON tasks (id, owner) WHERE ended > 0 AND marked;
    """,
)
SCHEMA = len(STEPS)


def version_of(connection: sqlite3.Connection) -> int:
    """Return the schema of a database."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def refuse_newer(version: int, path: Path) -> None:
    """Refuse a schema of a later hetd.

    Raises:
        InputError: it is newer than ours.

    """
    if version > SCHEMA:
        raise InputError(
            f"{path} was written by a newer hetd (schema {version}, ours is {SCHEMA}); "
            f"run that one, or restore a backup from before"
        )


def migrate(connection: sqlite3.Connection, upto: int = SCHEMA) -> None:
    """Apply the steps that a database lacks; an interrupted step is rolled back."""
    teach(connection)
    connection.create_function("submitted", 2, _submitted, deterministic=True)
    connection.create_function("with_runtime", 1, with_runtime, deterministic=True)
    connection.create_function("is_marked", 1, is_marked, deterministic=True)
    connection.create_function("wall", 0, lambda: time.time_ns() // 10**9)
    for version in range(version_of(connection), upto):
        step = STEPS[version]
        connection.executescript(
            f"BEGIN;{step}PRAGMA user_version = {version + 1};COMMIT;"
        )


def _submitted(first: int, count: int) -> bytes:
    """Encode the answer to a submit of the first schema, which kept its ids only."""
    return encode(Submitted(0, list(range(first, first + count))))


MOVED = (
    "state",
    "resource",
    "epoch",
    "suspended",
    "pinned",
    "excluded",
    "failures",
    "attempts",
    "retried",
)
"""Fields of pages of schema 6 that are fields of their `runtime` from schema 7 on."""


@lru_cache(1)  # SQLite asks for each page twice
def with_runtime(entry: bytes) -> bytes:
    """Return a page of schema 6 in the form of schema 7; an illegible one unchanged."""
    try:
        page = msgspec.msgpack.decode(entry)
        page["runtime"] = _runtime(page)
    except (msgspec.MsgspecError, AttributeError, KeyError, TypeError, IndexError):
        return entry
    return msgspec.msgpack.encode(page)


class _Spec(msgspec.Struct):
    name: str = ""
    job: str = ""


class _Runtime(msgspec.Struct):
    state: str


class _Page(msgspec.Struct):
    spec: _Spec
    runtime: _Runtime


_decoded = msgspec.msgpack.Decoder(_Page).decode


def is_marked(entry: bytes) -> bool:
    """Whether the task of a page of schema 7 has a name or a job, or did not complete."""
    try:
        page = _decoded(entry)
    except msgspec.MsgspecError:  # a damaged page stays, to be found by its checksum
        return False
    named = bool(page.spec.name or page.spec.job)
    return named or page.runtime.state in {"failed", "cancelled", "dropped"}


def _runtime(page: dict[str, Any]) -> dict[str, Any]:
    """Take what the scheduler keeps of a task out of a page of schema 6."""
    runtime = {name: page.pop(name) for name in MOVED if name in page}
    runtime["intent"] = _intent(page)
    in_worker = page.pop("in_worker", False)
    if page.get("finished") is None:
        last = page["segments"][-1] if page.get("segments") else {"finish": 0.0}
        running = runtime.get("state") == "running"
        runs = running and last.get("finish") is None
        runtime["bound"] = in_worker or runs
        runtime["not_started"] = running and not runs
        runtime["checkpointed"] = runs and last.get("computing") is not None
        runtime["kept"] = _share(page.get("snapshot"))
        runtime["progress"] = runtime["furthest"] = _share(page.get("checkpoint"))
    return {name: value for name, value in runtime.items() if value}


def _intent(page: dict[str, Any]) -> dict[str, Any] | None:
    """Take what the owner of a running task wanted of it out of a page of schema 6."""
    reason, requeue = page.pop("cancelling", None), page.pop("requeuing", False)
    if page.pop("holding", False) and reason is None:
        return {"type": "Hold", "requeue": requeue}
    return None if reason is None else {"type": "Cancel", "reason": reason}


def _share(known: dict[str, Any] | None) -> float:
    """Return the share done, 0 to 1, of a checkpoint or snapshot."""
    total = known.get("total") if known else None
    return min(1.0, known.get("done", 0) / total) if known and total else 0.0
