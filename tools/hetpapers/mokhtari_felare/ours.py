"""Beyond the paper: fair-deadline beside felare on the same traces, and its blind spots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetpapers.figures import Claim, Figure
from hetpapers.mokhtari_felare.fairness import spread_of
from hetpapers.mokhtari_felare.runs import Case, mean_of, run_grid
from hetpapers.mokhtari_felare.traces import TraceReading

if TYPE_CHECKING:
    from hetpapers.figures import Row
    from hetpapers.mokhtari_felare.runs import Outcome

RATES = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
CLAIMED = (3.0, 4.0, 5.0)
STRIPS = 50
"""Checkpoints of a task where running tasks may be preempted: every 2 % of it."""

WHOLE = "fair-deadline"
MOVABLE = "fair-deadline, preemptive"


def figure_ours(seeds: int) -> Figure:
    """Set our policy beside felare on the same traces."""
    found = _runs(seeds)
    rows = [
        _row(name, rate, many, found["felare", rate])
        for (name, rate), many in found.items()
    ]
    return Figure(
        WHOLE,
        rows,
        [claim for rate in CLAIMED for claim in _claims(rate, rows)],
        "fair-deadline beside felare on the same traces",
        f"{seeds} traces a point; preemptive: checkpoints at every {100 // STRIPS} % of a "
        "task, moves cost nothing but the time until the next checkpoint.",
    )


def _runs(seeds: int) -> dict[tuple[str, float], list[Outcome]]:
    movable = TraceReading(strips=STRIPS)
    cases = {
        **{("felare", rate): Case("felare", rate) for rate in RATES},
        **{(WHOLE, rate): Case(WHOLE, rate) for rate in RATES},
        **{(MOVABLE, rate): Case(WHOLE, rate, trace=movable) for rate in RATES},
    }
    found = run_grid(list(cases.values()), seeds)
    return {key: found[case] for key, case in cases.items()}


def _row(name: str, rate: float, many: list[Outcome], base: list[Outcome]) -> Row:
    def gain(index: int) -> float:
        return many[index].completed - base[index].completed

    return {
        "policy": name,
        "rate": rate,
        "on time %": mean_of(many, lambda o: o.completed),
        "more than felare": sum(map(gain, range(len(many)))) / len(many),
        "worst trace": min(map(gain, range(len(many)))),
        "energy J": mean_of(many, lambda o: o.energy),
        "energy / felare": mean_of(many, lambda o: o.energy)
        / mean_of(base, lambda o: o.energy),
        "std over types": spread_of(many),
        "std, mean of traces": mean_of(many, lambda o: o.spread),
    }


def _claims(rate: float, rows: list[Row]) -> list[Claim]:
    at = {row["policy"]: row for row in rows if row["rate"] == rate}
    whole, movable = at[WHOLE], at[MOVABLE]
    return [
        Claim(
            f"more on time than felare at rate {rate:g}, nothing preempted",
            None,
            whole["more than felare"],
            "points",
        ),
        Claim(
            f"more on time than felare at rate {rate:g}, with preemption",
            None,
            movable["more than felare"],
            "points",
        ),
        Claim(
            f"energy of felare at rate {rate:g}", None, whole["energy / felare"], "x"
        ),
        Claim(
            f"std over types at rate {rate:g}", None, whole["std over types"], "points"
        ),
    ]


def figure_blind(seeds: int) -> Figure:
    """Show what a fairness factor of 1 cannot see among four types."""
    systems = ("one favoured", "two and two")
    policies = ("elare", "felare", WHOLE)
    cases = [Case(p, 5.0, system=s) for s in systems for p in policies]
    found = run_grid(cases, seeds)
    rows: list[Row] = [
        {
            "system": case.system,
            "policy": case.policy,
            **{
                name: mean_of(many, lambda o, name=name: o.types[name])  # type: ignore[misc]  # a default binds the loop's value
                for name in many[0].types
            },
            "all": mean_of(many, lambda o: o.completed),
            "std over types": spread_of(many),
        }
        for case, many in found.items()
    ]
    return Figure(
        "blind-spots",
        rows,
        [
            Claim(
                f"{row['system']}: std over types, {row['policy']}",
                None,
                row["std over types"],
                "points",
            )
            for row in rows
            if row["policy"] != "elare"
        ],
        "Table I with one or two types twice as fast, at 5 tasks a second",
        "With one type far above three, or two above two, no rate is below the mean less "
        "one standard deviation: no type counts as suffering.",
    )
