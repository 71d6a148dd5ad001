"""Figs 3, 4 and 6: energy, deadlines and waste over the arrival rate; Fig. 5: of two apps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetpapers.figures import Claim, Figure
from hetpapers.mokhtari_felare.runs import Case, interval_of, mean_of, run_grid
from hetpapers.mokhtari_felare.systems import BATTERY_J, TWO_BATTERY_J

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetpapers.figures import Row
    from hetpapers.mokhtari_felare.runs import Outcome

HEURISTICS = ("mm", "msd", "mmu", "elare", "felare")
BASELINES = ("mm", "msd", "mmu")
RATES = (1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0, 100.0)
MODERATE = 10.0
"""Rates up to this are "low to moderate" in the claims."""
TWO_RATES = (1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0)


def grid(
    system: str, rates: tuple[float, ...], seeds: int
) -> dict[Case, list[Outcome]]:
    """Run all heuristics at all rates."""
    cases = [Case(p, rate, system=system) for p in HEURISTICS for rate in rates]
    return run_grid(cases, seeds)


def figure_three(seeds: int) -> Figure:
    """Re-make Fig. 3: energy against deadline misses."""
    found = grid("table1", RATES, seeds)
    rows: list[Row] = [
        {
            "policy": case.policy,
            "rate": case.rate,
            "energy J": mean_of(many, lambda o: o.energy),
            "energy ±": interval_of(many, lambda o: o.energy),
            "miss %": mean_of(many, lambda o: o.unsuccessful),
            "miss ±": interval_of(many, lambda o: o.unsuccessful),
        }
        for case, many in found.items()
    ]
    return Figure(
        "fig3",
        rows,
        [
            Claim(
                f"rates up to {MODERATE:g} at which {policy} is dominated by a baseline",
                0,
                _dominated(rows, policy),
                "rates",
            )
            for policy in ("elare", "felare")
        ],
        "Energy and share of tasks that miss their deadline",
        f"{seeds} traces of 2,000 tasks a point; ± is half the 95 % interval.",
    )


def _dominated(rows: list[Row], policy: str) -> int:
    """Count the moderate rates at which a baseline is better in both respects."""
    at = {(row["policy"], row["rate"]): row for row in rows}
    return sum(
        any(
            at[other, rate]["energy J"] < at[policy, rate]["energy J"]
            and at[other, rate]["miss %"] < at[policy, rate]["miss %"]
            for other in BASELINES
        )
        for rate in RATES
        if rate <= MODERATE
    )


def figure_four(seeds: int) -> Figure:
    """Re-make Fig. 4: energy spent on tasks that miss their deadline."""
    found = grid("table1", RATES, seeds)
    rows = _waste_rows(found, BATTERY_J)
    at = {(row["policy"], row["rate"]): row["wasted %"] for row in rows}
    return Figure(
        "fig4",
        rows,
        [
            Claim(
                "elare wastes less than mm at rate 4",
                12.6,
                at["mm", 4.0] - at["elare", 4.0],
                "points",
            ),
            Claim(
                "felare wastes less than mm at rate 4",
                None,
                at["mm", 4.0] - at["felare", 4.0],
                "points",
            ),
            Claim(
                "largest difference between policies at rate 100",
                None,
                _range([at[policy, 100.0] for policy in HEURISTICS]),
                "points",
            ),
        ],
        "Energy wasted on missed tasks, percent of the initial energy",
        f"{seeds} traces a point; initial energy {BATTERY_J:g} J, which the paper does "
        "not give.",
    )


def figure_five(seeds: int) -> Figure:
    """Re-make Fig. 5: energy wasted by two applications on two machines."""
    found = grid("two-applications", TWO_RATES, seeds)
    rows = _waste_rows(found, TWO_BATTERY_J)
    at = {(row["policy"], row["rate"]): row["wasted %"] for row in rows}
    worst = max(at["elare", rate] - at["mm", rate] for rate in TWO_RATES)
    return Figure(
        "fig5",
        rows,
        [
            Claim(
                "elare wastes less than mm, mean over the rates",
                None,
                sum(at["mm", r] - at["elare", r] for r in TWO_RATES) / len(TWO_RATES),
                "points",
            ),
            Claim("most that elare wastes above mm", 0, max(worst, 0.0), "points"),
        ],
        "Two applications on a CPU and a GPU: energy wasted on missed tasks",
        MEASURED,
    )


MEASURED = (
    "The paper does not print the execution times of its two applications. These are "
    "measured ones of two of ours (docs/measurements/felare-two-applications.json), on a "
    "CPU and an emulated GPU: compare directions only."
)


def _waste_rows(found: dict[Case, list[Outcome]], battery: float) -> list[Row]:
    def wasted(outcome: Outcome) -> float:
        return 100.0 * outcome.wasted / battery

    return [
        {
            "policy": case.policy,
            "rate": case.rate,
            "wasted %": mean_of(many, wasted),
            "±": interval_of(many, wasted),
        }
        for case, many in found.items()
    ]


def _range(values: list[float]) -> float:
    return max(values) - min(values)


def figure_six(seeds: int) -> Figure:
    """Re-make Fig. 6: unsuccessful tasks of MM and ELARE, cancelled or missed."""
    found = grid("table1", RATES, seeds)
    at = {
        (case.policy, case.rate): many
        for case, many in found.items()
        if case.policy in ("mm", "elare")
    }
    rows: list[Row] = [
        {
            "policy": policy,
            "rate": rate,
            "cancelled %": mean_of(many, lambda o: o.cancelled),
            "missed %": mean_of(many, lambda o: o.missed),
            "unsuccessful %": mean_of(many, lambda o: o.unsuccessful),
            "±": interval_of(many, lambda o: o.unsuccessful),
        }
        for (policy, rate), many in at.items()
    ]
    return Figure(
        "fig6",
        rows,
        [
            Claim(
                "fewer unsuccessful tasks with elare than mm at rate 3",
                8.9,
                mean_of(at["mm", 3.0], _lost) - mean_of(at["elare", 3.0], _lost),
                "points",
            ),
            _cancelled(at, "elare", 3.0),
            _cancelled(at, "mm", 3.0),
            _cancelled(at, "mm", 100.0),
        ],
        "Unsuccessful tasks: cancelled before they were mapped, or missed after",
        f"{seeds} traces a point.",
    )


def _lost(outcome: Outcome) -> float:
    return outcome.unsuccessful


def _cancelled(
    at: dict[tuple[str, float], list[Outcome]], policy: str, rate: float
) -> Claim:
    many = at[policy, rate]
    cancelled: Callable[[Outcome], float] = lambda o: o.cancelled  # noqa: E731  a field
    share = 100 * mean_of(many, cancelled) / max(mean_of(many, _lost), 1e-9)
    text = f"share of {policy}'s unsuccessful tasks that are cancelled at rate {rate:g}"
    return Claim(text, None, share, "%")
