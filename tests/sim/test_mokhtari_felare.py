"""What mokhtari-felare claims, in direction, on few and short traces."""

from __future__ import annotations

from collections import Counter
from statistics import fmean, stdev
from typing import TYPE_CHECKING

import pytest

from hetpapers.mokhtari_felare.fairness import figure_two, spread_of
from hetpapers.mokhtari_felare.runs import (
    Case,
    interval_of,
    mean_of,
    over_seeds,
    run_case,
)
from hetpapers.mokhtari_felare.systems import TABLE_I
from hetpapers.mokhtari_felare.traces import TraceReading, make_trace

if TYPE_CHECKING:
    from hetpapers.mokhtari_felare.runs import Outcome
    from hetsim.scenario import Scenario

SEEDS = 2
TASKS = 1000


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, float], list[Outcome]]:
    """Outcomes by policy and rate."""
    policies = ("mm", "elare", "felare", "fair-deadline")
    return {
        (policy, rate): [
            run_case(case)
            for case in over_seeds(Case(policy, rate, tasks=TASKS), SEEDS)
        ]
        for policy in policies
        for rate in (3.0, 5.0)
    }


Found = dict[tuple[str, float], list["Outcome"]]


def test_equation_4_gives_the_deadlines() -> None:
    allowed = TABLE_I.time_allowed()

    assert [round(seconds, 3) for seconds in allowed.values()] == [
        4.566,
        4.641,
        4.701,
        4.563,
    ]


def test_figure_2() -> None:
    claims = figure_two(1).claims

    assert [round(claim.ours or 0.0, 1) for claim in claims] == [35.0, 18.4, 16.6]
    suffers = {row["type"]: row["suffers"] for row in figure_two(1).rows}
    assert [name for name, so in suffers.items() if so == "True"] == ["T3"]


def test_elare_completes_more_than_mm_and_wastes_less(found: Found) -> None:
    for rate in (3.0, 5.0):
        elare, mm = found["elare", rate], found["mm", rate]

        assert mean_of(elare, completed) > mean_of(mm, completed) + 5.0
        assert mean_of(elare, wasted) < mean_of(mm, wasted) / 2


def test_elare_cancels_where_mm_misses(found: Found) -> None:
    elare, mm = found["elare", 3.0], found["mm", 3.0]

    assert all(outcome.cancelled > outcome.missed for outcome in elare)
    assert all(outcome.cancelled < outcome.missed for outcome in mm)


def test_felare_is_fair_and_loses_little(found: Found) -> None:
    felare, elare = found["felare", 5.0], found["elare", 5.0]

    assert spread_of(felare) < 1.0
    assert spread_of(elare) > 10.0
    assert mean_of(elare, completed) - mean_of(felare, completed) < 3.0


def test_fair_deadline_beats_felare_at_no_more_energy(found: Found) -> None:
    for rate in (3.0, 5.0):
        ours, felare = found["fair-deadline", rate], found["felare", rate]

        assert mean_of(ours, completed) > mean_of(felare, completed) + 3.5
        assert mean_of(ours, energy) <= mean_of(felare, energy)
        assert spread_of(ours) < 0.6


def test_checkpoints_make_it_better_still(found: Found) -> None:
    movable = TraceReading(strips=50)
    cases = over_seeds(Case("fair-deadline", 5.0, trace=movable, tasks=TASKS), SEEDS)

    outcomes = [run_case(case) for case in cases]

    assert mean_of(outcomes, completed) > mean_of(
        found["fair-deadline", 5.0], completed
    )
    assert mean_of(outcomes, energy) <= mean_of(found["felare", 5.0], energy)


@pytest.mark.parametrize("system", ["one favoured", "two and two"])
def test_fair_deadline_sees_what_a_fairness_limit_cannot(system: str) -> None:
    felare, ours = (
        [run_case(Case(policy, 5.0, system=system))]
        for policy in ("felare", "fair-deadline")
    )

    assert spread_of(felare) > 5.0
    assert spread_of(ours) < 2.0
    assert mean_of(ours, completed) > mean_of(felare, completed)


def test_with_two_types_felare_is_elare() -> None:
    felare, elare = (
        run_case(Case(policy, 2.0, system="two-applications", tasks=500))
        for policy in ("felare", "elare")
    )

    assert felare == elare


# ------------------------------------------------------------ traces


def test_arrivals_and_times_are_as_stated() -> None:
    trace = make_trace(TABLE_I, 4.0, 1)
    ratios = ratios_on("m2", trace)
    arrivals = [task.arrival or 0.0 for task in trace.tasks]
    counts = Counter(task.type for task in trace.tasks)

    assert len(arrivals) == 2000
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] == pytest.approx(500.0, rel=0.1)
    assert fmean(ratios) == pytest.approx(1.0, abs=0.01)
    assert stdev(ratios) == pytest.approx(0.1, abs=0.01)
    assert all(400 < count < 600 for count in counts.values())
    assert all(
        (task.deadline or 0.0) - (task.arrival or 0.0)
        == pytest.approx(TABLE_I.time_allowed()[task.type])
        for task in trace.tasks
    )


def test_the_authors_traces_are_even_streams_with_even_times() -> None:
    reading = TraceReading(distribution="uniform", streams=True)
    trace = make_trace(TABLE_I, 4.0, 1, reading)
    ratios = ratios_on("m2", trace)

    assert Counter(task.type for task in trace.tasks) == dict.fromkeys(
        TABLE_I.seconds, 500
    )
    assert 0.82 < min(ratios) < 0.83
    assert 1.17 < max(ratios) < 1.18
    assert stdev(ratios) == pytest.approx(0.1, abs=0.01)


def test_a_trace_depends_on_its_seed_alone() -> None:
    assert make_trace(TABLE_I, 4.0, 1) == make_trace(TABLE_I, 4.0, 1)
    assert make_trace(TABLE_I, 4.0, 1) != make_trace(TABLE_I, 4.0, 2)


def test_the_interval_is_that_of_student() -> None:
    outcomes = [run_case(Case("mm", 3.0, seed, tasks=50)) for seed in range(3)]
    values = [outcome.completed for outcome in outcomes]

    assert interval_of(outcomes, completed) == pytest.approx(
        4.302653 * stdev(values) / 3**0.5, rel=1e-6
    )
    assert interval_of(outcomes[:1], completed) is None


def ratios_on(machine: str, trace: Scenario) -> list[float]:
    """Actual seconds of each task on a machine by what is expected."""
    return [
        ((task.actual_seconds or {})[machine] or 0.0)
        / TABLE_I.seconds[task.type][machine]
        for task in trace.tasks
    ]


def completed(outcome: Outcome) -> float:
    return outcome.completed


def wasted(outcome: Outcome) -> float:
    return outcome.wasted


def energy(outcome: Outcome) -> float:
    return outcome.energy
