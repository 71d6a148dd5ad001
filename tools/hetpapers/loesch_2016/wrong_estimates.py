"""By how much `finish-time` takes longer when the expected times are wrong by +-30 %."""

from __future__ import annotations

from statistics import mean

from hetpapers.figures import Claim, Figure, Row
from hetpapers.loesch_2016.reading import Reading
from hetpapers.loesch_2016.runs import Errors, run_one
from hetpapers.loesch_2016.task_sets import COUNTS, DELAYS, Case, cases

NOISE = 0.3
SEEDS = 20
"""Draws of the errors for each cell."""


def wrong_estimates(seeds: int) -> Figure:
    """Run every cell of Table II, in one order, with right and with wrong expectations."""
    draws = max(seeds, SEEDS)
    rows = [
        _row(case, draws)
        for task_set in COUNTS
        for delay in DELAYS
        for case in cases(task_set, delay, 1)
    ]
    worst = max(_mean_of(rows, task_set) for task_set in COUNTS)
    return Figure(
        id="wrong-estimates",
        title="Makespan of finish-time that grows when expected times are wrong by 30 %",
        rows=rows,
        claims=[
            Claim("growth with strips that correct them: worst set", None, worst, "%")
        ],
        note=f"Mean over {draws} draws of the errors, one for each type and resource. "
        "Corrected: strips correct the expected times while they run, as in the daemon.",
    )


def _mean_of(rows: list[Row], task_set: str) -> float:
    return mean(float(row["corrected %"]) for row in rows if row["set"] == task_set)


def _row(case: Case, draws: int) -> Row:
    return {
        "set": case.task_set,
        "delay": case.delay,
        "uncorrected %": growth(case, draws, correct=False),
        "corrected %": growth(case, draws, correct=True),
    }


def growth(case: Case, draws: int, *, correct: bool) -> float:
    """Per cent by which the makespan grows, in the mean over the draws of the errors."""
    reading = Reading()
    right = run_one(case, reading, "finish-time").makespan
    wrong = (
        run_one(case, reading, "finish-time", Errors(NOISE, correct, seed)).makespan
        for seed in range(draws)
    )
    return 100 * (mean(wrong) / right - 1)
