"""The store: what is committed is there at the next start, and nothing else."""

from __future__ import annotations

import contextlib
import select
import sqlite3
from typing import TYPE_CHECKING

import pytest

from hetd.store import Batch, Store, StoreError
from hetd.store.store import FIRST_STARTS
from hetd.tasks.journal import EPOCHS
from hetsched.estimates.point import Figures, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


A_KEY = (1, "k", b"digest", b"answer", 7)


@pytest.fixture
def reopen(tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Open the store, anew after what may have been a crash."""
    opened: list[Store] = []

    def open_store() -> Store:
        opened.append(Store(tmp_path / "deep" / "hetd.db"))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


def _commit(store: Store, batch: Batch) -> list[object]:
    store.submit(batch)
    return store.flush()


def test_committed_tasks_are_there_at_the_next_start(
    reopen: Callable[[], Store],
) -> None:
    rows = [(1, 0, b"one", 7), (2, 99, b"two", 7), (3, 0, b"three", 7)]
    _commit(reopen(), Batch(tasks=rows))

    store = reopen()

    assert store.unfinished() == [b"one", b"three"]
    assert list(store.ended(100, 10)) == [(2, b"two")]
    assert (store.task(2), store.task(4)) == (b"two", None)
    assert store.last_id() == 3


def test_the_last_state_of_a_task_counts(reopen: Callable[[], Store]) -> None:
    store = reopen()
    _commit(store, Batch(tasks=[(1, 0, b"old", 7)]))
    _commit(store, Batch(tasks=[(1, 99, b"new", 7)]))

    assert store.unfinished() == []
    assert store.task(1) == b"new"


def test_ended_tasks_come_newest_first_page_by_page(
    reopen: Callable[[], Store],
) -> None:
    store = reopen()
    _commit(store, Batch(tasks=[(n, 99, b"%d" % n, 7) for n in range(1, 8)]))

    assert [task for task, _ in store.ended(100, 3)] == [7, 6, 5]
    assert [task for task, _ in store.ended(5, 3)] == [4, 3, 2]


def test_replies_come_after_their_commit(reopen: Callable[[], Store]) -> None:
    store = reopen()
    before = store.idle

    store.submit(Batch(tasks=[(1, 0, b"", 7)], replies=["told"]))
    meanwhile = store.idle
    readable, _, _ = select.select([store.wake_fd], [], [], 30)

    assert readable
    assert store.committed() == ["told"]
    assert store.committed() is None
    assert (before, meanwhile, store.idle) == (True, False, True)
    assert select.select([store.wake_fd], [], [], 0)[0] == []


def test_what_was_not_committed_is_not_there(
    reopen: Callable[[], Store], tmp_path: Path
) -> None:
    store = reopen()
    _commit(store, Batch(tasks=[(1, 0, b"kept", 7)]))
    # an open transaction, as at a crash between two commits
    crashed = sqlite3.connect(tmp_path / "deep" / "hetd.db", isolation_level=None)
    crashed.execute("BEGIN IMMEDIATE")
    crashed.execute("INSERT INTO tasks VALUES (2, 0, x'00', 0, 7, 0)")
    crashed.close()

    assert reopen().unfinished() == [b"kept"]


def test_keys_belong_to_their_owner(reopen: Callable[[], Store]) -> None:
    keys = [(1000, "k", b"digest", b"answer", 7), (2000, "k", b"other", b"", 8)]
    _commit(reopen(), Batch(keys=keys))

    store = reopen()

    assert store.key(1000, "k") == (b"digest", b"answer")
    assert store.key(2000, "k") == (b"other", b"")
    assert store.key(3000, "k") is None


def test_a_key_is_found_after_its_commit_whatever_is_written_then(
    reopen: Callable[[], Store],
) -> None:
    store = reopen()
    _commit(store, Batch(keys=[(1, "first", b"digest", b"one", 7)]))
    found = [store.key(1, "first"), store.key(1, "second")]

    store.submit(Batch(keys=[(1, "second", b"digest", b"two", 8)]))
    meanwhile = store.key(1, "first")
    store.flush()

    assert [*found, meanwhile] == [(b"digest", b"one"), None, (b"digest", b"one")]
    assert store.key(1, "second") == (b"digest", b"two")


def test_samples_are_replaced_and_forgotten(reopen: Callable[[], Store]) -> None:
    store = reopen()
    old, new = (Figures("a/1", "cpu", s, 2.0, 0.5, 3, 0.25, 9.0) for s in (1.0, 4.0))
    other = Figures("a/1", "gpu0", 7.0, 2.0)
    first, second, third = Batch(), Batch(), Batch()
    for batch, known in ((first, old), (first, other), (second, new)):
        batch.keep(known)
    third.forget(key_of(other))

    for batch in (first, second):
        _commit(store, batch)
    assert sorted(store.samples(), key=str) == [new, other]
    _commit(store, third)

    assert reopen().samples() == [new]


def test_each_start_is_counted(reopen: Callable[[], Store]) -> None:
    first = reopen().incarnation

    assert [reopen().incarnation for _ in range(2)] == [first + 1, first + 2]


def test_starts_of_different_stores_have_different_numbers(tmp_path: Path) -> None:
    numbers = []
    for name in ("one", "other"):
        with contextlib.closing(Store(tmp_path / name / "hetd.db")) as store:
            numbers.append(store.incarnation)

    assert numbers[0] != numbers[1]
    assert all(0 < number <= FIRST_STARTS for number in numbers)
    assert 2 * FIRST_STARTS * EPOCHS <= 1 << 63  # what a message and the store can hold


def test_every_commit_is_synchronised(reopen: Callable[[], Store]) -> None:
    store = reopen()

    for connection in (store._writer, store.connection):
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_write_that_fails_is_told_and_none_of_it_happens(
    reopen: Callable[[], Store],
) -> None:
    store = reopen()
    _commit(store, Batch(keys=[A_KEY]))

    with pytest.raises(StoreError, match=r"hetd.db: UNIQUE constraint failed"):
        store.submit(Batch(tasks=[(1, 0, b"", 7)], keys=[A_KEY]))

    assert reopen_after_failure(store, reopen).unfinished() == []


def reopen_after_failure(store: Store, reopen: Callable[[], Store]) -> Store:
    store._writer.rollback()  # as the end of the process would
    return reopen()


def test_a_failed_commit_tells_nothing(
    reopen: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reopen()

    class FailingDisk:
        def execute(self, _statement: str) -> None:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error

        def close(self) -> None:
            writer.close()

    writer = store._writer
    monkeypatch.setattr("hetd.store.rows.write", lambda _connection, _batch: None)
    monkeypatch.setattr(store, "_writer", FailingDisk())

    store.submit(Batch(replies=["told"]))

    with pytest.raises(StoreError, match="disk I/O error; start hetd again once"):
        store.flush()
