"""Pauses that double each time they are needed again soon."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hetd.backoff import Backoff
from hetd.transport.connection_guard import (
    LONGEST_REFUSAL_S,
    MOST_REFUSED,
    REFUSAL_S,
)


@pytest.mark.parametrize("forget", [None, LONGEST_REFUSAL_S])
def test_each_pause_is_twice_as_long_as_one_that_ended_a_moment_ago(
    forget: float | None,
) -> None:
    backoff = Backoff[int](REFUSAL_S, LONGEST_REFUSAL_S, MOST_REFUSED, forget)

    # the third comes while a pause lasts, the last long after
    found = [backoff.begin(5, at) for at in (100.0, 101.5, 102.0, 104.0, 109.0, 1e3)]

    assert found == [1.0, 2.0, None, 4.0, 8.0, 1.0]


def test_a_pause_is_never_longer_than_the_longest() -> None:
    backoff = Backoff[str](60, 200, most=10)
    at, lengths = 0.0, []
    for _ in range(4):
        lengths.append(backoff.begin("a", at) or 0.0)
        at += lengths[-1]

    assert lengths == [60, 120, 200, 200]


def test_it_lasts_up_to_its_end_and_for_its_key_alone() -> None:
    backoff = Backoff[str](60, 200, most=10)
    backoff.begin("a", 5)

    assert backoff.lasts("a", 64)
    assert not backoff.lasts("a", 65)
    assert not backoff.lasts("b", 6)


@pytest.mark.parametrize(("forget", "length"), [(None, 1), (30, 2)])
def test_how_long_a_pause_makes_the_next_one_longer(
    forget: float | None, length: float
) -> None:
    backoff = Backoff[str](1, 60, most=10, forget=forget)
    backoff.begin("a", 0)

    assert backoff.begin("a", 20) == length


def test_the_keys_are_bounded() -> None:
    backoff = Backoff[int](1, 60, most=3)
    for key, later in pairwise(range(5)):
        backoff.begin(key, 0)
        assert backoff.lasts(key, 0)
        assert not backoff.lasts(later, 0)

    assert [key for key in range(5) if backoff.lasts(key, 0)] == [1, 2, 3]
