"""Integrity: finds rows that do not match their checksums, and handles them.

A lost answer to a change could create a task twice, and a lost setting could put a
broken board back into service: such damage keeps hetd from starting. A lost measurement
only makes an estimate worse until the next one, and a lost failure costs one more
failure: damaged rows of these kinds are dropped.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from typing import TYPE_CHECKING

from hetd.store.checksums import teach
from hetd.store.rows import INSERT_SAMPLE

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("hetd")

STEPS = 10_000
"""Instructions of SQLite between two readings of the clock."""
SHOWN = 10
"""Most problems of one kind that are listed; there may be thousands."""

SAMPLE_SUM = (
    "sample_sum(CAST(type AS BLOB), CAST(resource AS BLOB), "
    "grain, seconds, work, spread, count, setup, joules)"
)
PAGES = "tasks WHERE sum != page_sum(id, ended, entry)"
OWNERS = "tasks WHERE owner_of(entry) NOT IN (owner, -1)"
KEYS = "keys WHERE sum != key_sum(owner, CAST(key AS BLOB), digest, answer, at)"
SETTINGS = (
    "settings WHERE "
    "sum != setting_sum(CAST(what AS BLOB), CAST(subject AS BLOB), value)"
)
CIRCUITS = (
    "circuits WHERE sum != circuit_sum(owner, CAST(app AS BLOB), "
    "CAST(resource AS BLOB), value)"
)
SAMPLES = f"samples WHERE sum IS NOT {SAMPLE_SUM}"

PAGES_FROM, ALL_FROM, CIRCUITS_FROM = 3, 5, 6
"""The schemas from which on pages, the other rows, and circuits have checksums."""


def damages(connection: sqlite3.Connection, schema: int) -> Iterator[str]:
    """Describe all rows that do not match their checksums.

    Raises:
        sqlite3.Error: the structure of the database is damaged, too.

    """
    teach(connection)
    if schema >= PAGES_FROM:
        yield from _listed(connection, "pages of tasks", f"id FROM {PAGES}")
    if schema >= ALL_FROM:
        yield from _listed(connection, "owners of tasks", f"id FROM {OWNERS}")
        yield from _counted(connection, "answers to changes", KEYS)
        yield from _counted(connection, "settings of operators", SETTINGS)
        yield from _counted(
            connection, "measured execution times", SAMPLES, "; a start drops them"
        )
    if schema >= CIRCUITS_FROM:
        yield from _counted(
            connection, "known failures", CIRCUITS, "; a start drops them"
        )


def _listed(connection: sqlite3.Connection, what: str, query: str) -> Iterator[str]:
    damaged = [row[0] for row in connection.execute(f"SELECT {query}")]
    if damaged:
        some = ", ".join(map(str, damaged[:SHOWN]))
        more = f" and {len(damaged) - SHOWN} more" if len(damaged) > SHOWN else ""
        yield f"damaged {what}: {some}{more}"


def _counted(
    connection: sqlite3.Connection, what: str, rows: str, hint: str = ""
) -> Iterator[str]:
    query = f"SELECT count(*) FROM {rows}"  # noqa: S608  words of our own
    (count,) = connection.execute(query).fetchone()
    if count:
        yield f"damaged {what}: {count}{hint}"


def first_found(connection: sqlite3.Connection, limit: float) -> str | None:
    """Search for damage that keeps hetd from starting, for `limit` seconds at most.

    Returns:
        The damage found; empty: none; None: the time limit was exceeded.

    """
    teach(connection)
    for what, rows in (("a setting", SETTINGS), ("the answer to a change", KEYS)):
        query = f"SELECT 1 FROM {rows} LIMIT 1"  # noqa: S608  words of our own
        found = looked_for(connection, query, limit)
        if found is None:
            return None
        if found:
            return f"{what} does not match its checksum"
    return ""


def looked_for(
    connection: sqlite3.Connection, query: str, limit: float
) -> list[tuple[object, ...]] | None:
    """Run a query; return None if it takes longer than `limit` seconds."""
    deadline = time.monotonic() + limit
    connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
    try:
        return connection.execute(query).fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return None
    finally:
        connection.set_progress_handler(None, 0)


def drop_circuits(connection: sqlite3.Connection) -> None:
    """Drop the known failures of applications, if any of them is damaged.

    If one row is damaged, others may be unreachable. All are soon known again.
    """
    teach(connection)
    (damaged,) = connection.execute(f"SELECT count(*) FROM {CIRCUITS}").fetchone()  # noqa: S608  words of our own
    if damaged:
        log.warning("%d known failures were damaged; dropped all", damaged)
        connection.execute("DELETE FROM circuits")


def drop_measurements(connection: sqlite3.Connection) -> None:
    """Drop damaged measurements, if any; keep the others.

    All are rewritten, as damaged rows may be unreachable.
    """
    teach(connection)
    (damaged,) = connection.execute(f"SELECT count(*) FROM {SAMPLES}").fetchone()  # noqa: S608  words of our own
    if not damaged:
        return
    text = "dropped %d damaged execution times"
    log.warning(text, damaged)
    sound = f"SELECT * FROM samples WHERE sum IS {SAMPLE_SUM}"  # noqa: S608  as above
    rows = connection.execute(sound).fetchall()
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute("BEGIN IMMEDIATE")
        cursor.execute("DELETE FROM samples")
        cursor.executemany(INSERT_SAMPLE, rows)
        cursor.execute("COMMIT")
