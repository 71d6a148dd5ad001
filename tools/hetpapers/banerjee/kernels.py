"""Figs 5 and 6: execution times of kernels over those of the oracle's schedule.

As in the paper a kernel's time is that in which it computes, without waiting; a policy that
waits for a quiet accelerator looks perfect. The oracle is the best of a few schedules of the
job alone, without other programs; the paper's is found by exhaustive search.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TYPE_CHECKING

import msgspec

from hetpapers.banerjee.networks import learned
from hetpapers.banerjee.runs import FIRST_SEED, Contender, result_of
from hetpapers.banerjee.testbed import Setting, make_scenario
from hetpapers.figures import Claim, Figure
from hetpapers.pictures import open_canvas, save_canvas
from hetsim.processes import on_all_cores
from hetsim.simulate import simulate

if TYPE_CHECKING:
    from pathlib import Path

    from hetpapers.figures import Row
    from hetsim.result import Result

RACK = Setting()
ORACLES: tuple[tuple[str, dict[str, str]], ...] = (
    ("heft", {}),
    ("contention-aware", {}),
    ("contention-aware", {"least_gain": "0"}),
    ("contention-aware", {"harm_weight": "0"}),
    ("contention-aware", {"harm_weight": "3"}),
    ("lookahead", {"futures": "1"}),
)
"""Schedules of a job alone, of which the best is the oracle's."""
POLICIES = ("contention-aware", "heft", "graphene", "paragon", "sparrow")
LITTLE, SOME = 0.05, 0.2
"""Losses up to which a run counts as undegraded, and as little degraded."""
BUCKETS = (0.05, 0.2, 0.5, 1.0)
PERCENTILES = {"median": "#4477aa", "P90": "#ccbb44", "P99": "#ee6677"}
RATIOS = (1, 2, 5, 10)
LOSS_COLOURS = ("#228833", "#66ccee", "#ccbb44", "#ee6677", "#aa3377")


@dataclass(frozen=True, slots=True)
class RunAgainstOracle:
    """One run.

    Attributes:
        ratios: time of each kernel over that in the oracle's schedule.
        loss: sum of the kernels' times over that of the oracle's, less 1.
        completion: of the job over the oracle's.

    """

    ratios: list[float]
    loss: float
    completion: float


def contenders() -> dict[str, Contender]:
    """Return the policies that are compared."""
    found = {"learned": learned(RACK)}
    return found | {policy: Contender(policy, RACK) for policy in POLICIES}


def oracle_of(seed: int) -> tuple[dict[str, float], float]:
    """Return the kernels' times and the completion time of the oracle's schedule."""
    quiet = replace(RACK, counters="none")
    scenario = msgspec.structs.replace(make_scenario(quiet, seed), background=[])
    results = [simulate(scenario, name, dict(given)) for name, given in ORACLES]
    best = min(results, key=lambda result: result.makespan)
    return _times(best), best.makespan


def _times(result: Result) -> dict[str, float]:
    return {
        str(task.id): sum(part.finish - part.start for part in task.segments)
        for task in result.tasks
    }


def against_oracle(
    case: tuple[Contender, int, tuple[dict[str, float], float]],
) -> RunAgainstOracle:
    """Run a contender on a draw, beside the oracle's times of it."""
    contender, seed, (times, whole) = case
    result = result_of((contender, seed))
    found = _times(result)
    ratios = [found[task] / seconds for task, seconds in times.items()]
    loss = sum(found.values()) / sum(times.values()) - 1.0
    return RunAgainstOracle(ratios, loss, result.makespan / whole)


def run_all(draws: int) -> dict[str, list[RunAgainstOracle]]:
    """Run each policy on the same draws."""
    seeds = [FIRST_SEED + number for number in range(draws)]
    oracles = on_all_cores(oracle_of, seeds)
    named = contenders()
    cases = [
        (contender, seed, oracle)
        for contender in named.values()
        for seed, oracle in zip(seeds, oracles, strict=True)
    ]
    found = on_all_cores(against_oracle, cases)
    return {
        name: found[number * draws : (number + 1) * draws]
        for number, name in enumerate(named)
    }


def figure_five(draws: int) -> Figure:
    """Tabulate the distribution of the kernels' times over the oracle's."""
    runs = run_all(draws)
    ratios = {
        name: sorted(ratio for run in found for ratio in run.ratios)
        for name, found in runs.items()
    }
    rows: list[Row] = [
        {
            "policy": name,
            "median": median(found),
            "P90": quantile(found, 0.9),
            "P99": quantile(found, 0.99),
            "job / oracle": fmean(run.completion for run in runs[name]),
            "share up to 1.05": sum(x <= 1.0 + LITTLE for x in found) / len(found),
        }
        for name, found in ratios.items()
    ]
    ours, theirs = ratios["learned"], ratios["paragon"]
    middle = 100.0 * (1.0 - median(ours) / median(theirs))
    tail = 100.0 * (1.0 - quantile(ours, 0.99) / quantile(theirs, 0.99))
    return Figure(
        "fig5",
        rows,
        [
            Claim("below paragon at the median", 32.0, middle, "%"),
            Claim("below paragon at the 99th percentile", 32.0, tail, "%"),
            Claim(
                "over the oracle at the 99th percentile",
                6.0,
                100.0 * (quantile(ours, 0.99) - 1.0),
                "%",
            ),
        ],
        f"Kernel times over the oracle's, {draws} jobs among unknown tenants",
        "The time of a kernel excludes waiting, as in the paper; `job / oracle` includes it. "
        "A ratio is below 1 where a quicker processor was used than in the oracle's schedule.",
    )


def figure_six(draws: int) -> Figure:
    """Tabulate the share of jobs by loss over the oracle."""
    runs = run_all(draws)
    rows: list[Row] = []
    for name, found in runs.items():
        losses = [run.loss for run in found]
        row: Row = {"policy": name, "mean loss": fmean(losses)}
        below = 0
        for edge in BUCKETS:
            upto = sum(loss <= edge for loss in losses)
            row[f"to {100 * edge:.0f} %"] = (upto - below) / len(losses)
            below = upto
        row["more"] = 1.0 - below / len(losses)
        rows.append(row)
    losses = [run.loss for run in runs["learned"]]
    return Figure(
        "fig6",
        rows,
        [
            Claim("jobs with at most 5 % loss", 60.0, _percent(losses, LITTLE), "%"),
            Claim("jobs with at most 20 % loss", 100.0, _percent(losses, SOME), "%"),
        ],
        f"Share of jobs by the loss of their kernels over the oracle, {draws} jobs",
        "Loss: sum of the kernels' times over the oracle's sum, less 1 (the paper prints "
        "the negative of it).",
    )


def quantile(ordered: list[float], share: float) -> float:
    """Return a quantile of ascending values."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _percent(losses: list[float], edge: float) -> float:
    return 100.0 * sum(loss <= edge for loss in losses) / len(losses)


def draw_five(figure: Figure, path: Path) -> None:
    """Draw median, 90th and 99th percentile of each policy."""
    canvas, [axes] = open_canvas(figure, 8, 4)
    names = [row["policy"] for row in figure.rows]
    for number, (key, colour) in enumerate(PERCENTILES.items()):
        places = [place + 0.27 * (number - 1) for place in range(len(names))]
        values = [row[key] for row in figure.rows]
        axes.bar(places, values, 0.25, label=key, color=colour)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("kernel time / oracle's")
    axes.set_yscale("log")
    axes.set_yticks(RATIOS, [f"{ratio:g}" for ratio in RATIOS])
    axes.set_yticks([], minor=True)
    save_canvas(canvas, path)


def draw_six(figure: Figure, path: Path) -> None:
    """Draw the shares of jobs by loss, stacked."""
    canvas, [axes] = open_canvas(figure, 8, 4)
    names = [row["policy"] for row in figure.rows]
    keys = [key for key in figure.rows[0] if key not in ("policy", "mean loss")]
    below = [0.0] * len(names)
    for key, colour in zip(keys, LOSS_COLOURS, strict=True):
        values = [100.0 * row[key] for row in figure.rows]
        label = key if key == "more" else f"loss {key}"
        axes.bar(names, values, bottom=below, label=label, color=colour)
        below = [a + b for a, b in zip(below, values, strict=True)]
    axes.set_ylabel("share of jobs, %")
    save_canvas(canvas, path)
