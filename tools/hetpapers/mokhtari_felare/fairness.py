"""Figs 7 and 8: completion by task type, and Fig. 2's example."""

from __future__ import annotations

from statistics import pstdev
from typing import TYPE_CHECKING

from hetpapers.figures import Claim, Figure
from hetpapers.mokhtari_felare.runs import Case, interval_of, mean_of, run_grid
from hetpapers.mokhtari_felare.trade_off import HEURISTICS, MEASURED
from hetsched.planning.fairness import Fairness

if TYPE_CHECKING:
    from hetpapers.figures import Row
    from hetpapers.mokhtari_felare.runs import Outcome

EXAMPLE = {"T1": 0.20, "T2": 0.60, "T3": 0.15, "T4": 0.45}
"""Completion rates of Fig. 2 (a)."""


TWO_RATE = 5.0
"""The paper has 2 tasks a second for its two applications; ours are shorter: both machines
together can do 4.4 a second."""


def figure_two(seeds: int) -> Figure:
    """Re-make the numbers of Fig. 2 (a); `seeds` does not matter."""
    fairness = Fairness()
    values = [100 * rate for rate in EXAMPLE.values()]
    limit = 100 * fairness.limit(EXAMPLE)
    suffered = fairness.suffered(EXAMPLE)
    return Figure(
        "fig2",
        [
            {"type": name, "rate %": 100 * rate, "suffers": str(name in suffered)}
            for name, rate in EXAMPLE.items()
        ],
        [
            Claim("mean", 35.0, sum(values) / len(values), "%"),
            Claim("standard deviation", 18.4, pstdev(values), "%"),
            Claim("fairness limit", 16.6, limit, "%"),
        ],
        "The fairness limit",
        source="computed",
    )


def figure_seven(seeds: int) -> Figure:
    """Re-make Fig. 7: completion by type at rate 5."""
    return _by_type("fig7", Case("mm", 5.0), seeds)


def figure_eight(seeds: int) -> Figure:
    """Re-make Fig. 8: completion of two applications at a rate just above what fits."""
    case = Case("mm", TWO_RATE, system="two-applications")
    return _by_type("fig8", case, seeds)


def _by_type(id_: str, case: Case, seeds: int) -> Figure:
    found = _runs(case, seeds)
    note = f"{seeds} traces of 2,000 tasks."
    if case.system == "two-applications":
        note = f"{note} {MEASURED} With two types and f = 1 felare is elare."
    return Figure(
        id_,
        [_row(policy, many) for policy, many in found.items()],
        _claims(found),
        f"Tasks completed in time by type, at {case.rate:g} tasks a second",
        note,
    )


def _runs(case: Case, seeds: int) -> dict[str, list[Outcome]]:
    cases = {p: Case(p, case.rate, system=case.system) for p in HEURISTICS}
    if case.system == "two-applications":
        # With two types none suffers at f = 1; a smaller factor shows the effect.
        aware = (("fairness_factor", "0.5"),)
        cases["felare, f = 0.5"] = Case(
            "felare", case.rate, system=case.system, settings=aware
        )
        cases["fair-deadline"] = Case("fair-deadline", case.rate, system=case.system)
    found = run_grid(list(cases.values()), seeds)
    return {name: found[one] for name, one in cases.items()}


def _row(policy: str, many: list[Outcome]) -> Row:
    row: Row = {"policy": policy}
    for name in many[0].types:
        row[name] = _mean_of_type(many, name)
        row[f"{name} ±"] = interval_of(many, lambda o, name=name: o.types[name])  # type: ignore[misc]  # a default binds the loop's value
    row["all"] = mean_of(many, lambda o: o.completed)
    row["all ±"] = interval_of(many, lambda o: o.completed)
    row["std over types"] = spread_of(many)
    return row


def spread_of(many: list[Outcome]) -> float:
    """Standard deviation over types of the mean completion rates."""
    return pstdev(_mean_of_type(many, name) for name in many[0].types)


def _mean_of_type(many: list[Outcome], name: str) -> float:
    return mean_of(many, lambda outcome: outcome.types[name])


def _claims(found: dict[str, list[Outcome]]) -> list[Claim]:
    total = {
        policy: mean_of(many, lambda o: o.completed) for policy, many in found.items()
    }
    return [
        Claim("felare: std over types", None, spread_of(found["felare"]), "points"),
        Claim("elare: std over types", None, spread_of(found["elare"]), "points"),
        Claim("mm: std over types", None, spread_of(found["mm"]), "points"),
        Claim(
            "felare completes less than elare",
            None,
            total["elare"] - total["felare"],
            "points",
        ),
        Claim(
            "felare completes more than mm",
            None,
            total["felare"] - total["mm"],
            "points",
        ),
    ]
