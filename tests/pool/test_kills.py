"""A batch of 200 jobs while processes of the pool are killed at random: see `torture pool`."""

from __future__ import annotations

import argparse

import pytest

from torture.pool_kills import run

KILLS = 20


@pytest.mark.timeout(500)
def test_nothing_is_lost_or_changed_by_kills() -> None:
    (row,) = run(argparse.Namespace(first=1, seeds=1, count=KILLS))

    assert row["complaints"] == []
    assert sum(row["kills"].values()) > 0
