"""Cost profiles: how the work of a type is spread over its iterations."""

from __future__ import annotations

import math
import random

import pytest

from hetsched.estimates.point import own_type
from hetsched.estimates.profile import (
    BINS,
    MOST_TYPES,
    CostProfile,
    CostProfiles,
    RunRecorder,
)


def a_hill(number: int) -> float:
    """Return the cost of a bin in a task whose middle costs most."""
    return math.exp(-(((number + 0.5) / BINS - 0.5) ** 2) / 0.02)


HILL = [a_hill(number) for number in range(BINS)]


def recorded(costs: list[float], reports: int) -> RunRecorder:
    """Record a run whose bins cost so much, in reports of as many iterations each."""
    run = RunRecorder()
    ends = [sum(costs[:n]) for n in range(BINS + 1)]

    def cost(progress: float) -> float:
        place = min(progress * BINS, BINS - 1e-9)
        return ends[int(place)] + (place - int(place)) * costs[int(place)]

    for number in range(reports):
        seconds = cost((number + 1) / reports) - cost(number / reports)
        run.report((number + 1) / reports, seconds, seconds)
    return run


def test_without_runs_iterations_cost_the_same() -> None:
    profiles = CostProfiles()

    assert profiles.done("pi", 0.3) == 0.3
    assert profiles.part("pi", 0.2, 0.3) == pytest.approx(0.1)


def test_a_run_is_recorded_by_the_time_of_its_parts() -> None:
    run = recorded(HILL, reports=4 * BINS)

    assert run.seconds == pytest.approx(HILL, rel=1e-6)
    assert run.measured == pytest.approx(sum(HILL))


def test_few_reports_spread_their_time_evenly() -> None:
    run = recorded(HILL, reports=4)

    assert sum(run.seconds) == pytest.approx(sum(HILL))
    assert run.seconds[8] == pytest.approx(run.seconds[15])
    assert run.seconds[8] > 5 * run.seconds[7]


def test_a_compilation_in_the_first_report_does_not_count() -> None:
    run = RunRecorder()
    run.report(0.1, 30.0, 30.0)
    for number in range(2, 11):
        run.report(number / 10, 1.0, 1.0)

    assert sum(run.seconds) == pytest.approx(10.0)


def test_runs_show_how_the_work_is_spread() -> None:
    profiles = CostProfiles()
    for _ in range(8):
        profiles.take("hill", HILL)

    # half of the work, and nearly all of it within the middle third
    assert profiles.done("hill", 0.5) == pytest.approx(0.5)
    assert profiles.part("hill", 1 / 3, 2 / 3) > 0.85
    assert [profiles.done("hill", each) for each in (0.0, 1.0)] == [0.0, 1.0]


def test_done_never_falls_whatever_was_recorded() -> None:
    profile = CostProfile()
    drawn = random.Random(1)
    for _ in range(20):
        profile.take([drawn.expovariate(1.0) ** 4 for _ in range(BINS)])
        values = [profile.done(n / 1000) for n in range(1001)]
        assert values == sorted(values)
        assert values[0] == 0.0
        assert values[-1] == pytest.approx(1.0)


def test_a_little_unevenness_is_none() -> None:
    profiles = CostProfiles()

    _, changed = profiles.take("even", [1.0 + 0.2 * (n % 2) for n in range(BINS)])

    assert not changed
    assert profiles.done("even", 0.3) == 0.3


def test_parts_that_hold_hardly_any_work_say_nothing() -> None:
    profiles = CostProfiles()
    for _ in range(8):
        profiles.take("hill", HILL)

    assert profiles.part("hill", 0.0, 0.05) == 0.0
    assert profiles.part("hill", 0.45, 0.5) > 0.1


def test_a_type_that_changes_is_learned_anew() -> None:
    profiles = CostProfiles()
    for _ in range(8):
        profiles.take("app", HILL)
    early = [1.0 if n < 4 else 0.01 for n in range(BINS)]

    for _ in range(30):
        profiles.take("app", early)

    assert profiles.done("app", 4 / BINS) > 0.85


def test_a_changed_profile_is_said_to_have_changed() -> None:
    profiles = CostProfiles()

    changes = [profiles.take("hill", HILL)[1] for _ in range(3)]

    assert changes == [True, False, False]


def test_the_number_of_types_is_bounded() -> None:
    profiles = CostProfiles()
    for number in range(MOST_TYPES + 5):
        profiles.take(f"type {number}", HILL)

    assert profiles.surplus() == [f"type {number}" for number in range(5)]
    assert profiles.surplus() == []
    assert not profiles.drop("type 4")
    assert profiles.drop("type 5")


def test_a_user_with_many_types_makes_only_their_own_forgotten() -> None:
    profiles = CostProfiles()
    profiles.take("heat", HILL)
    for number in range(MOST_TYPES + 1):
        profiles.take(own_type(1000, f"type {number}"), HILL)

    assert profiles.surplus() == [own_type(1000, f"type {n}") for n in range(2)]
    assert profiles.knows("heat")
    assert profiles.knows(own_type(2000, "heat")), "of all, where it is not their own"
