"""zhao-2018-icc, Figs 2 to 5: SCT, MMI and MTTF-LP."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hetpapers.figures import Catalogue, Claim, Figure, Recipe
from hetpapers.zhao_2018.drawings import lines
from hetpapers.zhao_2018.stream import throughput
from hetpapers.zhao_2018.study import gain, improvement, note_on, over_seeds, summed_up
from hetpapers.zhao_2018.workload import ICC, Workload, draw, misjudged
from hetsched.planning.batch.bounds import lower_bound
from hetsched.planning.batch.executor import carry_out_again
from hetsched.planning.batch.planners import (
    MakespanIncrease,
    Planner,
    SmallestCompletion,
    TransmissionFirst,
)

if TYPE_CHECKING:
    from hetpapers.figures import Row
    from hetpapers.zhao_2018.study import Sample

PLANNERS: dict[str, Planner] = {
    "sct": SmallestCompletion(),
    "mmi": MakespanIncrease(),
    "paper": TransmissionFirst(),
    "ours": TransmissionFirst("prices", improve=True, order="johnson", search=True),
}
"""`paper`: rounding and Theorem 3; `ours`: prices, moves and swaps, Johnson's rule, or
the largest jobs first where that is better."""

BATCHES = 6
"""Batches in a throughput run; the paper does not say."""


def measure(workload: Workload, seed: int) -> Sample:
    """Makespan of each planner, seconds."""
    problem = draw(workload, seed)
    sample = {name: each.plan(problem).makespan for name, each in PLANNERS.items()}
    return {**sample, "bound": lower_bound(problem)}


def measure_error(point: tuple[Workload, float], seed: int) -> Sample:
    """Makespan where the plan was made with wrong computing times."""
    problem = draw(point[0], seed)
    believed = misjudged(problem, point[1], seed)
    plans = {name: each.plan(believed) for name, each in PLANNERS.items()}
    return {n: carry_out_again(problem, plan).makespan for n, plan in plans.items()}


def measure_throughput(point: tuple[Workload, float], seed: int) -> Sample:
    """Jobs a second at an interval between batches."""
    batches = [draw(point[0], 100 * seed + number) for number in range(BATCHES)]
    return {n: throughput(each, batches, point[1]) for n, each in PLANNERS.items()}


def figure_2(seeds: int) -> Figure:
    """Makespan by jobs in a batch; 50 responders."""
    counts = [200, 400, 600, 800, 1000, 1200]
    points = [replace(ICC, jobs=count) for count in counts]
    found = [summed_up(each) for each in over_seeds(measure, points, seeds)]
    rows = [{"jobs": c, **row} for c, row in zip(counts, found, strict=True)]
    middle = [row for row in rows if row["jobs"] in (600, 800)]
    claims = [
        Claim("less than MMI at 600 to 800 jobs", 10.0, _mean(middle, "paper", "mmi"), "%"),
        Claim("less than SCT at 600 to 800 jobs", 32.0, _mean(middle, "paper", "sct"), "%"),
        Claim("less than MMI at 200 jobs", 0.0, _mean(rows[:1], "paper", "mmi"), "%"),
        Claim("less than MMI at 1200 jobs", 0.0, _mean(rows[-1:], "paper", "mmi"), "%"),
        Claim("our plan: less than MMI, 600 to 800", None, _mean(middle, "ours", "mmi"), "%"),
        Claim("our plan: above the bound, all points", None, _above(rows), "%"),
    ]  # fmt: skip
    return Figure("fig2", rows, claims, "makespan (s) by jobs", note_on(seeds))


def figure_3(seeds: int) -> Figure:
    """Makespan by responders; 1000 jobs."""
    counts = [20, 40, 60, 80, 100]
    points = [replace(ICC, responders=count) for count in counts]
    found = [summed_up(each) for each in over_seeds(measure, points, seeds)]
    rows = [{"responders": c, **row} for c, row in zip(counts, found, strict=True)]
    slowing = rows[0]["paper"] / rows[-1]["paper"]
    claims = [
        Claim("20 to 100 responders: MTTF-LP falls by a factor below 5", None, slowing, "x"),
        Claim("less than MMI, mean of all", None, _mean(rows, "paper", "mmi"), "%"),
        Claim("less than SCT, mean of all", None, _mean(rows, "paper", "sct"), "%"),
        Claim("our plan: above the bound, all points", None, _above(rows), "%"),
    ]  # fmt: skip
    return Figure("fig3", rows, claims, "makespan (s) by responders", note_on(seeds))  # fmt: skip


def figure_4(seeds: int) -> Figure:
    """Throughput by interval between batches; 50 responders, 1000 jobs a batch."""
    seeds = max(1, seeds // 4)  # a run has six batches
    intervals = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    points = [(ICC, interval) for interval in intervals]
    found = [summed_up(each) for each in over_seeds(measure_throughput, points, seeds)]
    rows = [{"interval": i, **row} for i, row in zip(intervals, found, strict=True)]
    over_sct = [gain(row["paper"], row["sct"]) for row in rows]
    over_mmi = [gain(row["paper"], row["mmi"]) for row in rows]
    claims = [
        Claim("more than MMI, most", 11.0, max(over_mmi), "%"),
        Claim("more than SCT, least", 20.0, min(over_sct), "%"),
        Claim("more than SCT, most", 29.0, max(over_sct), "%"),
        Claim("our plan: more than MMI, most", None, _most_gain(rows, "mmi"), "%"),
        Claim("our plan: more than SCT, most", None, _most_gain(rows, "sct"), "%"),
    ]
    return Figure("fig4", rows, claims, "jobs a second by interval between batches (s)", note_on(seeds))  # fmt: skip


def figure_5(seeds: int) -> Figure:
    """Makespan by error of the estimates; 50 responders, 1000 jobs."""
    errors = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    points = [(ICC, error) for error in errors]
    found = [summed_up(each) for each in over_seeds(measure_error, points, seeds)]
    rows = [{"error": 100 * e, **row} for e, row in zip(errors, found, strict=True)]
    grown = {n: 100 * (rows[3][n] / rows[0][n] - 1) for n in PLANNERS}
    claims = [
        Claim("MTTF-LP: increase at 30 % error", 5.0, grown["paper"], "%"),
        Claim("SCT: increase at 30 % error", None, grown["sct"], "%"),
        Claim("MMI: increase at 30 % error", None, grown["mmi"], "%"),
        Claim("our plan: increase at 30 % error", None, grown["ours"], "%"),
        Claim("SCT less than MMI at 50 % error", None, _mean(rows[-1:], "sct", "mmi"), "%"),
    ]  # fmt: skip
    return Figure("fig5", rows, claims, "makespan (s) by error of the estimates (%)", note_on(seeds))  # fmt: skip


def _mean(rows: list[Row], ours: str, theirs: str) -> float:
    return sum(improvement(row[ours], row[theirs]) for row in rows) / len(rows)


def _above(rows: list[Row]) -> float:
    above = [100 * (row["ours"] / row["bound"] - 1) for row in rows]
    return float(sum(above) / len(above))


def _most_gain(rows: list[Row], theirs: str) -> float:
    return float(max(gain(row["ours"], row[theirs]) for row in rows))


FIGURES = Catalogue(
    {
        "fig2": Recipe(figure_2, lines("jobs", "makespan, s")),
        "fig3": Recipe(figure_3, lines("responders", "makespan, s")),
        "fig4": Recipe(
            figure_4,
            lines("interval", "jobs a second", label="seconds between batches"),
        ),
        "fig5": Recipe(
            figure_5, lines("error", "makespan, s", label="error of the estimates, %")
        ),
    },
    seeds=20,
)
