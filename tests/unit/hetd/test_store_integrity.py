"""A database that was damaged is refused with a hint, never begun anew or cut short."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from hetd.store import Batch, Store, StoreError
from hetd.store.lock import lock
from hetd.store.opening import quick_check
from hetd.store.writeahead import lost_commits

if TYPE_CHECKING:
    from pathlib import Path

TASKS = 300
HINT = "hetd does not start without it"
FRAME = 24 + 4096


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """Leave a database as a crash of its daemon leaves it: with its log and index."""
    left = tmp_path / "left"
    left.mkdir()
    with closing(Store(tmp_path / "hetd.db")) as store:
        for task in range(1, TASKS + 1):
            store.submit(Batch(tasks=[(task, 0, b"%d" % task * 99, 7)]))
            store.flush()
        for path in tmp_path.glob("hetd.db*"):
            shutil.copy(path, left)
    return left / "hetd.db"


def _log(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


def _index(database: Path) -> Path:
    return database.with_name(database.name + "-shm")


def _flip(path: Path, offset: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def _refused(database: Path, complaint: str) -> None:
    """Check that a start refuses, twice, and leaves everything as it is."""
    before = {p.name: p.read_bytes() for p in database.parent.glob("hetd.db*")}
    for _ in range(2):
        with pytest.raises(StoreError, match=f"{complaint}.*{HINT}"):
            Store(database)
    after = {p.name: p.read_bytes() for p in database.parent.glob("hetd.db*")}
    assert after == before


# ---------------------------------------------------------------- the log


def test_after_a_crash_everything_is_there(crashed: Path) -> None:
    assert lost_commits(crashed) is None
    with closing(Store(crashed)) as store:
        assert len(store.unfinished()) == TASKS


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.999])
def test_a_log_that_was_cut_is_refused(crashed: Path, share: float) -> None:
    log = _log(crashed)
    os.truncate(log, int(share * log.stat().st_size))

    _refused(crashed, "its log")


def test_a_log_that_was_removed_is_refused(crashed: Path) -> None:
    _log(crashed).unlink()

    _refused(crashed, "its log of [0-9]+ frames is gone")


def test_any_flipped_bit_in_the_log_is_refused(crashed: Path) -> None:
    log = _log(crashed)
    sound, draw = log.read_bytes(), random.Random(7)
    places = [0, 8, 16, 24, *(draw.randrange(32, len(sound)) for _ in range(12))]
    accepted = []
    for place in places:
        _flip(log, place, draw.randrange(8))
        if lost_commits(crashed) is None:
            accepted.append(place)
        log.write_bytes(sound)

    assert accepted == []


def test_a_damaged_middle_is_refused_without_the_index(crashed: Path) -> None:
    _index(crashed).unlink()
    _flip(_log(crashed), 32 + 10 * FRAME + 500)

    _refused(crashed, "commits stand behind bad frame 11")


def test_a_torn_tail_is_dropped_without_the_index(crashed: Path) -> None:
    _index(crashed).unlink()  # as after a power cut
    log = _log(crashed)
    os.truncate(log, log.stat().st_size - 100)

    with closing(Store(crashed)) as store:
        assert len(store.unfinished()) == TASKS - 1


def test_an_index_of_an_older_log_says_nothing(crashed: Path) -> None:
    stale = _index(crashed).read_bytes()
    with closing(Store(crashed)) as store:
        store.submit(Batch(tasks=[(TASKS + 1, 0, b"later", 7)]))
        store.flush()
        again = crashed.parent / "again"
        again.mkdir()
        for path in crashed.parent.glob("hetd.db*"):
            shutil.copy(path, again)
    _index(again / "hetd.db").write_bytes(stale)

    with closing(Store(again / "hetd.db")) as store:
        assert len(store.unfinished()) == TASKS + 1


# ---------------------------------------------------------------- the database


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Leave a database as an orderly end of its daemon does."""
    path = tmp_path / "hetd.db"
    with closing(Store(path)) as store:
        pages = [(n, n % 2, b"%d" % n * 99, 7) for n in range(1, TASKS + 1)]
        store.submit(Batch(tasks=pages))
        store.flush()
    return path


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", r"it is empty \(0 bytes\)"),
        (b"this is no database, but text" * 99, "it is not a database"),
        (None, "Is a directory"),
    ],
)
def test_what_is_no_database_is_refused(
    tmp_path: Path, content: bytes | None, complaint: str
) -> None:
    path = tmp_path / "hetd.db"
    path.mkdir() if content is None else path.write_bytes(content)

    with pytest.raises(StoreError, match=f"{complaint}.*{HINT}"):
        Store(path)

    assert content is None or path.read_bytes() == content


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hetd.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE songs (title TEXT)")

    _refused(path, "it is a database of another program")


def test_a_database_that_was_removed_is_not_begun_anew(crashed: Path) -> None:
    crashed.unlink()

    _refused(crashed, "it is gone, though hetd.db-wal is there")
    assert not crashed.exists()


def test_a_database_that_was_cut_is_refused(whole: Path) -> None:
    os.truncate(whole, whole.stat().st_size - 3 * 4096)

    with pytest.raises(StoreError, match=f"it is damaged.*{HINT}|malformed.*{HINT}"):
        Store(whole)


@pytest.mark.parametrize("page", range(1, 8))
def test_damage_is_told_in_one_line(whole: Path, page: int) -> None:
    size = whole.stat().st_size // 4096
    with whole.open("r+b") as file:
        file.seek(4096 * min(page, size - 1))
        file.write(b"\xff" * 300)

    with pytest.raises(StoreError, match=HINT) as caught:
        Store(whole).close()

    assert "\n" not in str(caught.value)
    assert "***" not in str(caught.value)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EIO])
def test_a_state_that_cannot_be_written_is_no_mistake_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", fail)

    with pytest.raises(StoreError, match=f"{os.strerror(number)}.*{HINT}"):
        lock(tmp_path)


def test_a_flipped_bit_in_a_waiting_tasks_page_is_noticed(whole: Path) -> None:
    page = b"42" * 99
    _flip(whole, whole.read_bytes().index(page) + 50)

    with closing(Store(whole)) as store:
        with pytest.raises(StoreError, match="the page of task 42 is damaged"):
            store.unfinished()
        with pytest.raises(StoreError, match="the page of task 42 is damaged"):
            store.task(42)
        assert store.task(41) == b"41" * 99


def test_a_check_that_takes_too_long_is_cut_short(whole: Path) -> None:
    with closing(sqlite3.connect(whole)) as database:
        database.execute(
            "CREATE TABLE filler AS WITH RECURSIVE n(x) AS "
            "(SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 50000) "
            "SELECT x FROM n"
        )

        assert quick_check(database, 60.0) == []
        assert quick_check(database, 0.0) is None
        assert quick_check(database, 60.0) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_database_is_refused(whole: Path) -> None:
    os.chown(whole, 65534, -1)

    _refused(whole, "it belongs to uid 65534, and hetd runs as uid 0")


# ---------------------------------------------------------------- a new one


def test_a_new_database_is_whole_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "hetd.db"

    def crash(_database: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hetd.store.opening.migrate", crash)
        with pytest.raises(KeyboardInterrupt):
            Store(path)

    assert not path.exists()
    with closing(Store(path)) as store:
        assert store.unfinished() == []
    assert not list(tmp_path.glob("*.new*"))
