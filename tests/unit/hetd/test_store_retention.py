"""History is kept as long as configured, and removed in steps."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from hetd.clock import Clock
from hetd.store import Batch, Retention, Store
from hetd.store.retention import DAY, KEY_S, PAUSE_S, REST_S, STEP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TODAY = 2_000_000_000


class Hands:
    """A clock that is moved by hand; the time of day stands still."""

    def __init__(self) -> None:
        self.seconds = 1e6
        self.clock = Clock(lambda: int(self.seconds * 1e9), lambda: float(TODAY))


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def keep(tmp_path: Path, hands: Hands) -> Iterator[Callable[..., Store]]:
    """Open a store that keeps so many days, or tasks."""
    opened: list[Store] = []

    def open_store(days: float = 90.0, tasks: int = 1000) -> Store:
        retention = Retention(days, tasks)
        opened.append(Store(tmp_path / "hetd.db", retention, hands.clock))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


def _write(store: Store, ended: dict[int, int]) -> None:
    store.submit(Batch(tasks=[(task, at, b"page", 7) for task, at in ended.items()]))
    store.flush()


def _rest(store: Store, hands: Hands, steps: int = 1) -> None:
    """Let so many steps be taken, as an idle loop does."""
    hands.seconds += REST_S
    for _ in range(steps):
        assert store.committed() is None
        store.flush()
        hands.seconds += PAUSE_S


def _kept(store: Store) -> list[int]:
    return [task for task, _ in store.ended(1 << 40, 100_000)][::-1]


def test_the_newest_so_many_are_kept(keep: Callable[..., Store], hands: Hands) -> None:
    store = keep(tasks=3)
    # the time of the end counts, not the id; within a second, the id does
    _write(store, {1: TODAY, 2: TODAY - 5, 3: TODAY - 9, 4: TODAY - 5, 5: TODAY - 5})

    _rest(store, hands)

    assert _kept(store) == [1, 4, 5]


def test_what_is_older_than_so_many_days_goes(
    keep: Callable[..., Store], hands: Hands
) -> None:
    store = keep(days=2)
    _write(store, {1: TODAY - 3 * DAY, 2: TODAY - 2 * DAY + 60, 3: 0, 4: TODAY})

    _rest(store, hands)

    assert _kept(store) == [2, 4]
    assert store.task(3) is not None  # it has not ended


def test_the_newest_id_is_never_forgotten(
    keep: Callable[..., Store], hands: Hands
) -> None:
    store = keep(tasks=0)
    _write(store, {7: TODAY - 1, 8: TODAY - 2})

    _rest(store, hands)

    assert _kept(store) == [8]
    assert keep(tasks=0).last_id() == 8


def test_much_goes_in_steps(keep: Callable[..., Store], hands: Hands) -> None:
    store = keep(tasks=10)
    _write(store, {task: TODAY + task for task in range(1, 2 * STEP + 101)})

    counts = []
    _rest(store, hands)
    counts.append(len(_kept(store)))
    hands.seconds -= REST_S
    _rest(store, hands)
    counts.append(len(_kept(store)))
    _rest(store, hands)
    counts.append(len(_kept(store)))

    assert counts == [STEP + 100, 100, 10]


def test_with_a_commit_goes_a_step(keep: Callable[..., Store], hands: Hands) -> None:
    store = keep(tasks=1)
    _write(store, {1: TODAY - 3, 2: TODAY - 2})
    hands.seconds += REST_S

    _write(store, {3: TODAY})

    assert _kept(store) == [3]


def test_an_idle_store_does_not_write_all_the_time(
    keep: Callable[..., Store], hands: Hands
) -> None:
    store = keep(tasks=1)
    _rest(store, hands, steps=2)

    store.committed()

    assert store.idle


def test_keys_are_kept_for_a_day_and_not_longer(
    keep: Callable[..., Store], hands: Hands
) -> None:
    store = keep(tasks=0)
    old, young = TODAY - KEY_S - 1, TODAY - KEY_S + 60
    store.submit(Batch(keys=[(1, "old", b"", b"", old), (1, "young", b"", b"", young)]))
    store.flush()

    _rest(store, hands)

    assert (store.key(1, "old"), store.key(1, "young")) == (None, (b"", b""))


def test_the_log_stays_small_under_many_writes_and_after_a_long_reader(
    keep: Callable[..., Store], tmp_path: Path
) -> None:
    store, log = keep(), tmp_path / "hetd.db-wal"
    sizes = []

    def write(times: int) -> None:
        for turn in range(times):
            page = b"%3d" % turn * 70_000  # what does not change is not written
            store.submit(Batch(tasks=[(turn % 5 + 1, 0, page, 7)]))
            store.flush()
        sizes.append(log.stat().st_size >> 20)

    write(100)
    with closing(sqlite3.connect(tmp_path / "hetd.db")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM tasks").fetchone()
        write(100)
    write(50)

    before, held, after = sizes
    assert before <= 8
    assert held > 16  # so long as somebody reads the old state, it cannot be cut
    assert after <= 16


@pytest.mark.parametrize("days", [400, -400])
def test_a_key_is_kept_when_the_time_of_day_jumps_across_a_restart(
    tmp_path: Path, hands: Hands, days: int
) -> None:
    with closing(Store(tmp_path / "hetd.db", clock=hands.clock)) as store:
        store.submit(Batch(keys=[(1, "k", b"", b"", TODAY)]))
        store.flush()
    later = Clock(hands.clock.now, lambda: float(TODAY + days * DAY))

    with closing(Store(tmp_path / "hetd.db", clock=later)) as store:
        _rest(store, hands)
        assert store.key(1, "k") is not None
        hands.seconds += KEY_S
        _rest(store, hands)
        kept = store.key(1, "k") is not None

    assert kept == (days < 0), "it has been kept for a day of the daemon's own time"
