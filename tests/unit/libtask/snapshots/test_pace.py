"""The pace: how often a snapshot is worth its time."""

from __future__ import annotations

import math

import pytest

from libtask.messages import SnapshotSettings
from libtask.snapshots import SnapshotInterval


def test_the_interval_is_that_of_young_and_daly() -> None:
    pace = SnapshotInterval(SnapshotSettings(mtbf_s=86_400.0, minimum_s=1.0), 0)
    pace.took(0.5)

    assert pace.interval_s == pytest.approx(math.sqrt(2 * 0.5 * 86_400) - 0.5)
    assert pace.worthwhile(None)
    assert pace.worthwhile(0.51 * pace.interval_s)
    assert not pace.worthwhile(0.49 * pace.interval_s)


def test_the_interval_has_bounds_and_an_end() -> None:
    never = SnapshotInterval(SnapshotSettings(mtbf_s=0.0), 1 << 30)
    least = SnapshotInterval(SnapshotSettings(mtbf_s=1.0, minimum_s=10.0), 0)
    slow = SnapshotInterval(SnapshotSettings(mtbf_s=1.0, minimum_s=0.0), 0)
    slow.took(7.0)

    assert never.interval_s == math.inf
    assert not never.worthwhile(1e9)
    assert least.interval_s == 10.0
    assert slow.interval_s == 7.0


def test_a_larger_state_is_expected_to_take_longer() -> None:
    options = SnapshotSettings(minimum_s=0.0)
    small, large = (
        SnapshotInterval(options, 1 << 20),
        SnapshotInterval(options, 1 << 32),
    )

    assert small.interval_s < large.interval_s


def test_where_none_can_be_written_it_is_tried_less_often() -> None:
    pace = SnapshotInterval(SnapshotSettings(), 0)
    before = pace.interval_s

    pace.failed()
    pace.failed()
    after = pace.interval_s
    pace.took(0.02)

    assert after == 4 * before
    assert pace.interval_s == before
