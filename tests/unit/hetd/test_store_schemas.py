"""Databases of every schema there was: taken over whole, or not touched."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from hetd.store import Store, StoreError
from hetd.store.checksums import page_sum
from hetd.store.schema import SCHEMA, STEPS
from hetd.tasks.journal import Journal
from hetsched.estimates.point import Figures
from libtask.errors import InputError
from libtask.messages import Submitted, decode_from_daemon

STORED = Path(__file__).parents[2] / "data"
KEY = "a key of two tasks"
"""What `make_database.py` leaves, besides tasks of every state."""


@pytest.fixture(params=range(1, SCHEMA))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Copy a database that a daemon of an older schema left."""
    path = tmp_path / "hetd.db"
    shutil.copy(STORED / f"schema-{request.param}.db", path)
    return path


def _version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])


def test_every_task_is_taken_over(old: Path) -> None:
    with closing(Store(old)) as store:
        journal = Journal(store)
        live = {entry.id: entry.state for entry in journal.restore(2e9)}
        ended = {e.id: e.state for e in journal.newest(None, 100)} | live

        assert live == {3: "held", 4: "waiting", 6: "held", 7: "held"}
        assert ended == live | {1: "completed", 2: "failed", 5: "cancelled"}
        assert [task for task, _ in store.ended(99, 99, marked=True)] == [5, 2]
        assert (store.last_id(), store.incarnation) == (7, 2)
    assert _version(old) == SCHEMA


def test_keys_and_measurements_are_taken_over(old: Path) -> None:
    with closing(Store(old)) as store:
        found = store.key(_owner(store), KEY)
        assert found is not None
        answer = decode_from_daemon(found[1])
        assert isinstance(answer, Submitted)
        assert answer.ids == [6, 7]
        known = Figures("synthetic/1", "cpu", 2.5, 4.0, 0.1, 3, 0.25, 9.0)
        assert known in store.samples()


def _owner(store: Store) -> int:
    entry = store.task(6)
    assert entry is not None
    return int(msgspec.msgpack.decode(entry)["owner"])


def test_pages_that_are_taken_over_have_their_checksums(old: Path) -> None:
    Store(old).close()

    with closing(sqlite3.connect(old)) as database:
        rows = database.execute("SELECT id, ended, entry, sum FROM tasks").fetchall()
    assert len(rows) == 7
    assert all(page_sum(*row[:3]) == row[3] for row in rows)


def test_a_step_that_fails_has_not_happened(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _version(old)
    half = (*STEPS[:-1], f"{STEPS[-1]} DROP TABLE meta; SELECT no_such_function();")
    with monkeypatch.context() as patch:
        patch.setattr("hetd.store.schema.STEPS", half)
        with pytest.raises(StoreError, match="no such function"):
            Store(old)

    assert _version(old) == max(before, SCHEMA - 1)
    with closing(Store(old)) as store:
        assert len(store.unfinished()) == 4


def test_a_database_of_a_newer_schema_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "hetd.db"
    Store(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {SCHEMA + 96}")
    before = path.read_bytes()

    with pytest.raises(InputError, match=rf"newer hetd \(schema {SCHEMA + 96}"):
        Store(path)

    assert path.read_bytes() == before
    assert {left.name for left in tmp_path.iterdir()} == {"hetd.db", "hetd.db.reserve"}


def test_a_new_database_takes_the_same_steps(old: Path, tmp_path: Path) -> None:
    Store(old).close()
    Store(tmp_path / "new.db").close()

    assert _shape(old) == _shape(tmp_path / "new.db")


def _shape(path: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT name, sql FROM sqlite_master")
        return {
            (name, " ".join(str(sql).replace('"', "").split())) for name, sql in rows
        }


def test_a_damaged_page_is_not_given_a_new_checksum(tmp_path: Path) -> None:
    path = tmp_path / "hetd.db"
    shutil.copy(STORED / f"schema-{SCHEMA - 1}.db", path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE tasks SET sum = sum + 1 WHERE id = 3")
        database.commit()

    with closing(Store(path)) as store, pytest.raises(StoreError, match="task 3"):
        store.unfinished()
