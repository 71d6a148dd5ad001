"""Checkpoints and strip sizes."""

from __future__ import annotations

import itertools

import pytest

from libtask.checkpoint import GROWTH, LARGEST, Checkpoint, StripSizer
from libtask.messages import CheckpointRecord

MILLISECOND = 1_000_000


def test_strips_cover_the_loop_once() -> None:
    checkpoint = Checkpoint(CheckpointRecord(3, 10), StripSizer(1, fixed=3))

    assert list(checkpoint.strips()) == [range(3, 6), range(6, 9), range(9, 10)]
    assert checkpoint.complete
    assert checkpoint.drawn == 10


def test_strips_are_multiples_of_the_granule_but_for_the_last() -> None:
    checkpoint = Checkpoint(CheckpointRecord(0, 10), StripSizer(1, fixed=5))

    assert list(checkpoint.strips(granule=4)) == [range(4), range(4, 8), range(8, 10)]


def test_a_granule_below_one_is_refused() -> None:
    checkpoint = Checkpoint(CheckpointRecord(0, 10), StripSizer(1, fixed=5))

    with pytest.raises(
        ValueError, match="granule: expected a whole number from 1, got 0"
    ):
        next(checkpoint.strips(granule=0))


def test_a_granule_larger_than_the_strip_size_wins() -> None:
    checkpoint = Checkpoint(CheckpointRecord(0, 20), StripSizer(1, fixed=5))

    assert list(checkpoint.strips(granule=16)) == [range(16), range(16, 20)]


def test_without_a_total_there_is_always_another_strip() -> None:
    checkpoint = Checkpoint(CheckpointRecord(), StripSizer(1, fixed=2))

    some = list(itertools.islice(checkpoint.strips(), 3))

    assert some == [range(2), range(2, 4), range(4, 6)]
    assert not checkpoint.complete


def test_the_record_holds_what_is_finished_not_what_is_drawn() -> None:
    checkpoint = Checkpoint(CheckpointRecord(0, 4, {"a": 1}), StripSizer(1, fixed=2))
    next(checkpoint.strips())

    assert checkpoint.record() == CheckpointRecord(0, 4, {"a": 1})
    checkpoint.done = 2
    assert checkpoint.record() == CheckpointRecord(2, 4, {"a": 1})


def test_what_the_app_keeps_is_a_copy() -> None:
    record = CheckpointRecord(0, 4, {"residual": 1.0})
    checkpoint = Checkpoint(record, StripSizer(1))
    checkpoint.extra["residual"] = 0.5

    assert record.extra == {"residual": 1.0}
    assert checkpoint.record().extra == {"residual": 0.5}


def test_sizer_aims_at_the_interval() -> None:
    sizer = StripSizer(50 * MILLISECOND, first=100)
    sizer.measured(100, 40 * MILLISECOND)

    assert sizer.size == 125


def test_sizer_grows_in_bounds_and_shrinks_at_once() -> None:
    sizer = StripSizer(50 * MILLISECOND)
    sizer.measured(10, 1)
    assert sizer.size == 10 * GROWTH

    sizer.measured(1000, 5000 * MILLISECOND)
    assert sizer.size == 10

    sizer.measured(1, 5000 * MILLISECOND)
    assert sizer.size == 1


def test_strips_that_do_nothing_stay_countable() -> None:
    sizer = StripSizer(50 * MILLISECOND)
    for _ in range(100):
        sizer.measured(sizer.size, 1)

    assert sizer.size == LARGEST


def test_a_fixed_size_stays() -> None:
    sizer = StripSizer(50 * MILLISECOND, fixed=7, first=3)
    sizer.measured(7, 1)

    assert sizer.size == 7


def test_a_strip_too_short_to_time_is_no_division_by_zero() -> None:
    sizer = StripSizer(50 * MILLISECOND)
    sizer.measured(1, 0)

    assert sizer.size == GROWTH


def test_given_up_strips_are_not_drawn() -> None:
    checkpoint = Checkpoint(CheckpointRecord(0, 20), StripSizer(1, fixed=3))
    strips = checkpoint.strips()
    first = next(strips)

    given = checkpoint.give_up(10, granule=4)

    assert [first, *strips] == [range(3 * n, 3 * n + 3) for n in range(4)]
    assert given == range(12, 20)
    assert checkpoint.complete


def test_strips_that_are_drawn_are_not_given_up() -> None:
    checkpoint = Checkpoint(CheckpointRecord(0, 10), StripSizer(1, fixed=7))
    next(checkpoint.strips())

    assert checkpoint.give_up(2, granule=1) == range(7, 10)
    assert not checkpoint.give_up(2, granule=8)
    assert checkpoint.limit == 7


def test_what_others_did_counts_once_it_is_merged() -> None:
    checkpoint = Checkpoint(CheckpointRecord(0, 10), StripSizer(1, fixed=5))
    checkpoint.give_up(5, granule=1)
    list(checkpoint.strips())

    checkpoint.take_back()

    assert checkpoint.record() == CheckpointRecord(10, 10)
    assert checkpoint.complete
