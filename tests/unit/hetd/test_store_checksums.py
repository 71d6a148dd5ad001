"""Flipped bits in rows: what carries a promise keeps hetd from starting, the rest is dropped."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from hetd.maintenance import backup, check
from hetd.store import Batch, Store, StoreError
from hetsched.estimates.point import Figures, key_of

if TYPE_CHECKING:
    from pathlib import Path

HINT = "hetd does not start without it"
KEY, DIGEST, ANSWER = "the key of a submit", b"its digest", b"what it was answered"
VALUE = b"who wants it so, and since when"
HEAT = Figures("heat/4096", "gpu0", 9.25, 4096.0, 0.125, 7, 0.5, 80.0)
OTHERS = [Figures(f"markov/{n}", "cpu", 1.5, float(n)) for n in (10, 100)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Leave a store as an orderly end of its daemon does."""
    path = tmp_path / "hetd.db"
    with closing(Store(path)) as store:
        store.submit(
            Batch(
                keys=[(1000, KEY, DIGEST, ANSWER, 1_700_000_000)],
                samples={key_of(each): each for each in (HEAT, *OTHERS)},
                settings={("drained", "fpga-of-the-lab"): VALUE},
            )
        )
        store.flush()
    return path


def flip(path: Path, text: bytes) -> None:
    """Flip the lowest bit in the middle of what stands in the file once."""
    content = bytearray(path.read_bytes())
    assert content.count(text) == 1
    content[content.index(text) + len(text) // 2] ^= 1
    path.write_bytes(content)


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement)
        database.commit()


def test_what_is_sound_is_read_as_it_was_written(path: Path) -> None:
    assert check(path).problems == []
    assert check(path).settings == 1
    with closing(Store(path)) as store:
        assert store.key(1000, KEY) == (DIGEST, ANSWER)
        assert sorted(store.samples(), key=key_of) == [HEAT, *OTHERS]
        assert store.settings() == {("drained", "fpga-of-the-lab"): VALUE}


# ---------------------------------------------------------------- keys and settings


@pytest.mark.parametrize("part", [KEY.encode() + DIGEST[:2], DIGEST, ANSWER])
def test_a_flipped_bit_in_a_key_keeps_hetd_from_starting(
    path: Path, part: bytes
) -> None:
    flip(path, part)

    for _ in range(2):
        with pytest.raises(StoreError, match=rf"answer to a change .*{HINT}"):
            Store(path)
    # a flipped key is missing in the index, too
    assert check(path).problems[-1] == "damaged answers to changes: 1"


@pytest.mark.parametrize("column", ["owner", "at"])
def test_a_changed_number_of_a_key_is_noticed_too(path: Path, column: str) -> None:
    change(path, f"UPDATE keys SET {column} = {column} + 1")  # noqa: S608  words of ours

    with pytest.raises(StoreError, match=HINT):
        Store(path)


def test_a_key_that_is_damaged_meanwhile_is_not_taken_for_a_new_one(
    path: Path,
) -> None:
    with closing(Store(path)) as store:
        change(path, "UPDATE keys SET answer = x'00'")

        with pytest.raises(StoreError, match=f"key '{KEY}' of uid 1000 is damaged"):
            store.key(1000, KEY)


@pytest.mark.parametrize("part", [b"drained", b"fpga-of-the-lab", VALUE])
def test_a_flipped_bit_in_a_setting_keeps_hetd_from_starting(
    path: Path, part: bytes
) -> None:
    flip(path, part)

    with pytest.raises(StoreError, match=rf"a setting .*{HINT}"):
        Store(path)
    assert check(path).problems == ["damaged settings of operators: 1"]


# ---------------------------------------------------------------- measurements


@pytest.mark.parametrize("column", ["grain", "seconds", "work", "spread", "count"])
def test_a_damaged_measurement_is_dropped_and_the_others_stay(
    path: Path, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    statement = f"UPDATE samples SET {column} = {column} + 2 WHERE resource = 'gpu0'"  # noqa: S608  words of ours
    change(path, statement)
    (problem,) = check(path).problems
    assert problem == "damaged measured execution times: 1; a start drops them"

    with caplog.at_level(logging.WARNING, "hetd"), closing(Store(path)) as store:
        assert sorted(store.samples(), key=key_of) == OTHERS

    assert caplog.messages == ["dropped 1 damaged execution times"]
    assert check(path).problems == []


@pytest.mark.parametrize("place", [HEAT.type.encode(), b"gpu0"])
def test_a_measurement_of_who_knows_what_is_dropped(path: Path, place: bytes) -> None:
    flip(path, place)

    with closing(Store(path)) as store:
        assert sorted(store.samples(), key=key_of) == OTHERS
        store.submit(Batch(samples={key_of(HEAT): HEAT}))
        store.flush()
        assert sorted(store.samples(), key=key_of) == [HEAT, *OTHERS]


@pytest.mark.parametrize("nonsense", ["'many'", "x'ff00'", "9e999", "-1"])
def test_no_measurement_however_damaged_stops_the_start(
    path: Path, nonsense: str
) -> None:
    change(path, f"UPDATE samples SET seconds = {nonsense}, joules = {nonsense}")  # noqa: S608  words of ours
    change(path, "UPDATE samples SET type = CAST(x'ff' || type AS TEXT)")

    with closing(Store(path)) as store:
        assert store.samples() == []


# ---------------------------------------------------------------- owners, backups


def test_a_changed_owner_is_told(path: Path) -> None:
    page = b"\x81\xa5owner\xcd\x03\xe8"  # a page says itself that it is of uid 1000
    with closing(Store(path)) as store:
        store.submit(Batch(tasks=[(n, 9, page, 1000) for n in (1, 2)]))
        store.flush()
    change(path, "UPDATE tasks SET owner = 1001 WHERE id = 2")

    assert check(path).problems == ["damaged owners of tasks: 2"]


def test_a_backup_has_all_of_it_and_its_sums(path: Path, tmp_path: Path) -> None:
    backup(path, tmp_path / "saved.db")

    assert check(tmp_path / "saved.db").problems == []
    flip(tmp_path / "saved.db", VALUE)
    assert check(tmp_path / "saved.db").problems == ["damaged settings of operators: 1"]
