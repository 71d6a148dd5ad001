"""Power cuts: what the store said is durable is there afterwards."""

from __future__ import annotations

import pytest

from torture.powercuts import cut_often, possible

OBSTACLE = possible()
pytestmark = pytest.mark.skipif(OBSTACLE is not None, reason=OBSTACLE or "")


def test_nothing_acknowledged_is_lost() -> None:
    outcome = cut_often(20)

    assert (outcome.cuts, outcome.lost, outcome.refusals) == (20, 0, [])
    assert outcome.acknowledged > 20


def test_the_method_sees_what_a_careless_store_loses() -> None:
    outcome = cut_often(3, careless=True)

    assert outcome.lost or outcome.refusals


def test_no_snapshot_that_was_told_is_lost_or_torn() -> None:
    outcome = cut_often(20, subject="snapshots")

    assert (outcome.cuts, outcome.lost, outcome.refusals) == (20, 0, [])
    assert outcome.acknowledged > 0


def test_the_method_sees_what_unforced_snapshots_lose() -> None:
    outcome = cut_often(5, subject="snapshots", careless=True)

    assert outcome.lost or outcome.refusals
