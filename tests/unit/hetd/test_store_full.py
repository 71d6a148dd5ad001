"""No room on the disk: nothing is told that is not durable, and room is noticed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from hetd.clock import Clock
from hetd.store import Batch, Store, StoreError, StoreFullError
from hetd.store.reserve import MARGIN, ROOM, Reserve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1e6

    def clock(self) -> Clock:
        return Clock(lambda: int(self.seconds * 1e9), lambda: self.seconds)


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def store(tmp_path: Path, hands: Hands) -> Iterator[Store]:
    with closing(Store(tmp_path / "hetd.db", clock=hands.clock())) as store:
        yield store


def _limit(store: Store, pages: int | None) -> None:
    """Let the database have so many pages more; None: as many as it likes."""
    count = store._writer.execute("PRAGMA page_count").fetchone()[0]
    most = 1_000_000_000 if pages is None else count + pages
    store._writer.execute(f"PRAGMA max_page_count = {most}")


def _large(*tasks: int) -> Batch:
    pages = [(task, 0, b"%d" % task * 9000, 7) for task in tasks]
    return Batch(tasks=pages, replies=list(tasks))


def _settle(store: Store) -> list[Any]:
    """Wait for the commit under way as the loop does."""
    import select

    select.select([store.wake_fd], [], [], 30)
    return store.committed() or []


def test_what_does_not_fit_is_kept_and_not_told(store: Store, hands: Hands) -> None:
    _limit(store, 0)

    store.submit(_large(1, 2))
    told = _settle(store)

    assert (told, store.idle) == ([], False)
    assert store.stuck is not None
    assert store.shortage == "database or disk is full"
    assert store.task(1) is None


def test_it_is_written_and_told_once_there_is_room(store: Store, hands: Hands) -> None:
    _limit(store, 0)
    store.submit(_large(1, 2))
    _settle(store)

    hands.seconds += 2
    assert store.committed() is None  # tries again
    assert _settle(store) == []
    _limit(store, None)
    hands.seconds += 2
    store.committed()
    told = _settle(store)

    assert told == [1, 2]
    assert (store.idle, store.stuck, store.task(2)) == (True, None, b"2" * 9000)
    assert store.shortage is not None  # until the reserve is there again
    hands.seconds += 2
    store.committed()
    assert store.shortage is None


def test_an_end_without_room_is_told_as_a_failure(store: Store) -> None:
    _limit(store, 0)
    store.submit(_large(1))
    _settle(store)

    with pytest.raises(StoreFullError, match="what happened last is not written"):
        store.flush()


def test_a_start_takes_the_reserve_and_a_shortage_gives_it_up(
    store: Store, tmp_path: Path
) -> None:
    reserve = tmp_path / "hetd.db.reserve"
    assert reserve.stat().st_size == ROOM
    assert reserve.stat().st_blocks * 512 >= ROOM

    _limit(store, 0)
    store.submit(_large(1))
    _settle(store)

    assert not reserve.exists()


def test_the_reserve_comes_back_only_with_room_to_spare(tmp_path: Path) -> None:
    import resource

    reserve = Reserve(tmp_path / "reserve")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MARGIN - 1, hard))
    try:
        narrow = reserve.make(MARGIN), reserve.there
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    wide = reserve.make(MARGIN), reserve.there

    assert narrow == ("File too large", False)
    assert wide == (None, True)


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        (sqlite3.SQLITE_FULL, True),
        (sqlite3.SQLITE_READONLY, True),
        (sqlite3.SQLITE_IOERR_FSYNC, False),
        (sqlite3.SQLITE_IOERR_DIR_FSYNC, False),
        (sqlite3.SQLITE_IOERR_WRITE, False),  # as the disk has room, it is worse
        (sqlite3.SQLITE_CORRUPT, False),
    ],
)
def test_only_want_of_room_may_pass(store: Store, code: int, *, passes: bool) -> None:
    error = sqlite3.OperationalError("as injected")
    error.sqlite_errorcode = code
    store._committing = batch = Batch(replies=["told"])
    store._outcomes.put(error)

    if passes:
        assert store._settle() is None
        assert store.stuck is batch
    else:
        with pytest.raises(StoreError, match="start hetd again once the disk is sound"):
            store._settle()
