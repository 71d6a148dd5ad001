"""Fig. 3: makespan and energy of two scenarios of Set 2, and energy on average."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

from hetpapers.figures import Claim, Figure
from hetpapers.loesch_2016.reading import Reading
from hetpapers.loesch_2016.runs import run_one
from hetpapers.loesch_2016.task_sets import COUNTS, DELAYS, cases

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetpapers.figures import Row

SHOWN = (0.0, 0.25)
"""Delays at which Set 2 gains most in Table II: the figure's are two of these."""

POLICIES = ("affinity", "migration", "finish-time")


def figure_three(seeds: int) -> Figure:
    """Re-make Fig. 3, our policy beside the paper's two."""
    reading = Reading()
    rows = [
        _row("Set 2", delay, policy, seeds, reading)
        for delay in SHOWN
        for policy in POLICIES
    ]
    return Figure(
        id="fig3",
        title="Set 2: makespan in seconds and energy in kilojoules, mean and range",
        rows=rows,
        claims=_claims(seeds, reading),
        note="Energy is modelled; the powers are ours (see docs/papers/loesch-2016.md).",
    )


def _row(task_set: str, delay: float, policy: str, seeds: int, reading: Reading) -> Row:
    results = [run_one(case, reading, policy) for case in cases(task_set, delay, seeds)]
    times = [result.makespan for result in results]
    joules = [result.energy.total / 1000 for result in results]
    return {
        "delay": delay,
        "policy": policy,
        **{f"makespan {name}": measure(times) for name, measure in _MEASURES.items()},
        **{f"energy {name}": measure(joules) for name, measure in _MEASURES.items()},
    }


_MEASURES: dict[str, Callable[[list[float]], float]] = {
    "mean": mean,
    "min": min,
    "max": max,
}


def _claims(seeds: int, reading: Reading) -> list[Claim]:
    saved = [
        Claim(
            f"Set 2, delay {delay:g} s: energy saved by migration",
            8.0,
            -_growth("Set 2", delay, "migration", seeds, reading),
            "%",
        )
        for delay in SHOWN
    ]
    return [*saved, *(_average(policy, seeds, reading) for policy in POLICIES[1:])]


def _average(policy: str, seeds: int, reading: Reading) -> Claim:
    growth = mean(
        _growth(task_set, delay, policy, seeds, reading)
        for task_set in COUNTS
        for delay in DELAYS
    )
    paper = 3.0 if policy == "migration" else None
    return Claim(
        f"all scenarios: energy of {policy} above affinity", paper, growth, "%"
    )


def _growth(
    task_set: str, delay: float, policy: str, seeds: int, reading: Reading
) -> float:
    """By how many per cent a policy draws more energy than `affinity`."""
    runs = cases(task_set, delay, seeds)
    ours, theirs = (
        mean(run_one(case, reading, name).energy.total for case in runs)
        for name in (policy, "affinity")
    )
    return 100 * (ours / theirs - 1)
