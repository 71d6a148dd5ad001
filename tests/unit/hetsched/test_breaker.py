"""The circuit breaker by itself: when pairs open, who may try them, what is kept."""

from __future__ import annotations

import msgspec
import pytest

from builders import a_task
from hetsched.breaker import (
    LONGEST_NS,
    OWNERS,
    PAIRS_OF_OWNER,
    SECOND,
    Breaker,
    Circuit,
    Fault,
    Pair,
)
from hetsched.ids import TaskId

PAIR = Pair(7, "heat", "gpu0")
CRASH = Fault("v1", "crash", "killed by signal 6 (SIGABRT)")
TASK = a_task(1, "heat/1", owner=7, app="heat", version="v1")
OTHER = a_task(2, "heat/1", owner=7, app="heat", version="v1")


@pytest.fixture
def breaker() -> Breaker:
    return Breaker(60 * SECOND)


def _circuit(breaker: Breaker, pair: Pair = PAIR) -> Circuit:
    return dict(breaker)[pair]


def test_a_pair_that_failed_is_avoided_by_tasks_of_that_owner_application_and_version(
    breaker: Breaker,
) -> None:
    breaker.fail(PAIR, CRASH, 0, 0)

    assert breaker.avoided(TASK) == {"gpu0"}
    other = msgspec.structs.replace
    for task in (
        other(TASK, owner=8),
        other(TASK, app="markov"),
        other(TASK, version="v2"),
    ):
        assert breaker.avoided(task) == frozenset()
        assert breaker.find(task, "gpu0") is None


def test_the_time_doubles_with_each_failure_up_to_a_day(breaker: Breaker) -> None:
    now, pauses = 0, []
    for _ in range(14):
        breaker.fail(PAIR, CRASH, now, now)
        pauses.append(_circuit(breaker).retry_at - now)
        now = _circuit(breaker).retry_at

    assert pauses[:4] == [60 * SECOND, 120 * SECOND, 240 * SECOND, 480 * SECOND]
    assert pauses[-1] == LONGEST_NS


def test_failures_of_tasks_that_ran_at_the_same_time_are_one(breaker: Breaker) -> None:
    breaker.fail(PAIR, CRASH, 0, 10)
    breaker.fail(PAIR, CRASH, 5, 11)

    assert _circuit(breaker).failures == 1
    assert _circuit(breaker).retry_at == 11 + 60 * SECOND


def test_one_task_may_try_when_the_time_is_over(breaker: Breaker) -> None:
    breaker.fail(PAIR, CRASH, 0, 0)
    assert breaker.due(60 * SECOND - 1) == []
    assert breaker.offers(TASK) == []

    assert breaker.due(60 * SECOND) == [PAIR]
    assert breaker.next_retry() is None
    assert breaker.offers(TASK) == ["gpu0"]
    breaker.give_trial(TASK, "gpu0")

    assert breaker.offers(OTHER) == []
    assert breaker.avoided(TASK) == frozenset()
    assert breaker.avoided(OTHER) == {"gpu0"}


def test_a_checkpoint_closes_a_pair_unless_the_task_was_there_before(
    breaker: Breaker,
) -> None:
    breaker.fail(PAIR, CRASH, 0, 100)

    assert not breaker.worked(PAIR, "v1", 99)
    assert not breaker.worked(PAIR, "v2", 200)
    assert breaker.avoided(TASK) == {"gpu0"}
    assert breaker.worked(PAIR, "v1", 100)
    assert not breaker
    assert breaker.changed == {PAIR: None}


def test_a_failed_trial_opens_the_pair_for_longer(breaker: Breaker) -> None:
    breaker.fail(PAIR, CRASH, 0, 0)
    breaker.due(60 * SECOND)
    breaker.give_trial(TASK, "gpu0")

    breaker.fail(PAIR, CRASH, 61 * SECOND, 62 * SECOND)

    assert breaker.trial_of(TaskId(1)) is None
    assert _circuit(breaker).retry_at == (62 + 120) * SECOND
    assert breaker.avoided(TASK) == {"gpu0"}


def test_a_trial_that_nobody_makes_is_offered_again_later(breaker: Breaker) -> None:
    breaker.fail(PAIR, CRASH, 0, 0)
    breaker.due(60 * SECOND)
    breaker.give_trial(TASK, "gpu0")

    assert breaker.release(TaskId(1), 70 * SECOND)
    assert not breaker.release(TaskId(1), 70 * SECOND)

    assert breaker.next_retry() == 130 * SECOND
    assert _circuit(breaker).failures == 1
    assert breaker.due(130 * SECOND) == [PAIR]
    assert breaker.offers(OTHER) == ["gpu0"]


def test_another_version_supersedes_what_was_known(breaker: Breaker) -> None:
    breaker.fail(PAIR, CRASH, 0, 0)

    assert breaker.supersede(TASK) == []
    newer = a_task(3, owner=7, app="heat", version="v2")
    assert breaker.supersede(newer) == [PAIR]
    assert not breaker


def test_a_repaired_resource_may_be_tried_at_once(breaker: Breaker) -> None:
    breaker.fail(PAIR, CRASH, 0, 0)

    breaker.expire("gpu0", 5)

    assert breaker.next_retry() == 5


def test_one_owner_has_no_more_than_so_many_pairs(breaker: Breaker) -> None:
    breaker.fail(Pair(8, "theirs", "gpu0"), CRASH, 0, 0)
    changed: set[tuple[int, str]] = set()
    for number in range(PAIRS_OF_OWNER + 10):
        changed = breaker.fail(Pair(7, f"app{number}", "gpu0"), CRASH, number, number)

    kept = [pair for pair, _ in breaker]
    assert len(kept) == PAIRS_OF_OWNER + 1
    assert Pair(8, "theirs", "gpu0") in kept
    assert changed == {(7, f"app{PAIRS_OF_OWNER + 9}"), (7, "app9")}


def test_no_more_than_so_many_owners_are_known(breaker: Breaker) -> None:
    for owner in range(OWNERS + 5):
        breaker.fail(Pair(owner, "heat", "gpu0"), CRASH, 0, 0)

    owners = {pair.owner for pair, _ in breaker}
    assert owners == set(range(5, OWNERS + 5))
