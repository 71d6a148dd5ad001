"""zhao-2018-tpds, Figs 2 to 9: SJF, LJF, CIM, NIM and NCJM."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hetpapers.figures import Catalogue, Claim, Figure, Recipe
from hetpapers.zhao_2018 import tpds_runs as runs
from hetpapers.zhao_2018.drawings import lines
from hetpapers.zhao_2018.study import gain, improvement, note_on, over_seeds, summed_up
from hetpapers.zhao_2018.testbed import figure_2a, figure_2b
from hetpapers.zhao_2018.workload import TPDS, Case, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hetpapers.figures import Row
    from hetpapers.zhao_2018.study import Sample

RESPONDERS = [10, 20, 30, 40, 50, 60]
REQUESTERS = [50, 100, 200, 350]
CASES: tuple[Case, ...] = ("computation", "network", "both")
BATCH = 200
"""Jobs a batch where throughput is measured: so that 150 accelerators are full at about
the four batches a second at which the paper's system is."""


def figure_3(case: Case, seeds: int) -> Figure:
    """Makespan by responders (200 requesters) and by requesters (30 responders)."""
    base = replace(TPDS, case=case)
    by_responder = [replace(base, responders=count) for count in RESPONDERS]
    counts = REQUESTERS if case != "computation" else REQUESTERS[::3]  # no difference
    by_requester = [replace(base, requesters=count) for count in counts]
    found = _rows(runs.makespans, by_responder + by_requester, seeds)
    cut = len(RESPONDERS)
    rows = [{"by": "responders", "hosts": w.responders, **row} for w, row in zip(by_responder, found[:cut], strict=True)]  # fmt: skip
    rows += [{"by": "requesters", "hosts": w.requesters, **row} for w, row in zip(by_requester, found[cut:], strict=True)]  # fmt: skip
    letter = "abc"[CASES.index(case)]
    title = (
        f"makespan (s), {case}-intensive" if case != "both" else "makespan (s), both"
    )
    return Figure(f"fig3{letter}", rows, _claims_3(case, rows), title, note_on(seeds))  # fmt: skip


def _claims_3(case: str, rows: list[Row]) -> list[Claim]:
    best = max(improvement(row["paper"], row["sjf"]) for row in rows)
    at = {(row["by"], row["hosts"]): row for row in rows}
    last = at["requesters", 350]
    claims = {
        "computation": [
            _less(
                "CIM less than SJF, 40 responders", 27.81, at["responders", 40], "sjf"
            )
        ],
        "network": [],
        "both": [
            _less("NCJM less than SJF, 350 requesters", 36.25, last, "sjf"),
            _less("NCJM less than LJF, 350 requesters", 46.81, last, "ljf"),
        ],
    }[case]
    return [
        *claims,
        Claim("less than SJF at most, any point", None, best, "%"),
        Claim("paper's plan above the bound, mean", None, _above(rows, "paper"), "%"),
        Claim("our plan above the bound, mean", None, _above(rows, "ours"), "%"),
        Claim("our plan less than SJF, mean", None, _mean_less(rows, "ours", "sjf"), "%"),
        Claim("our plan less than LJF, mean", None, _mean_less(rows, "ours", "ljf"), "%"),
    ]  # fmt: skip


def figure_4(seeds: int) -> Figure:
    """Makespan by jobs; 2000 requesters, 1500 accelerators."""
    seeds = max(1, seeds // 3)  # large instances, little spread
    counts = [1500, 3000]
    rows: list[Row] = []
    for case in CASES:
        base = replace(TPDS, case=case, requesters=2000, responders=300)
        points = [replace(base, jobs=count) for count in counts]
        found = _rows(runs.makespans, points, seeds)
        rows += [{"case": case, "jobs": c, **r} for c, r in zip(counts, found, strict=True)]  # fmt: skip
    return Figure("fig4", rows, [], "makespan (s) by jobs", note_on(seeds))


def figure_5(seeds: int) -> Figure:
    """Throughput by batches a second; 200 requesters, 150 accelerators."""
    rates = [1.0, 2.0, 4.0, 6.0]
    rows: list[Row] = []
    claims = []
    printed = {"computation": (22.88, 35.64), "network": (20.17, 36.05), "both": (16.47, 27.57)}  # fmt: skip
    for case in CASES:
        points = [(replace(TPDS, case=case, jobs=BATCH), rate) for rate in rates]
        found = _rows(runs.throughputs, points, seeds)
        rows += [{"case": case, "batches a second": r, **row} for r, row in zip(rates, found, strict=True)]  # fmt: skip
        gains = [gain(row["paper"], row["sjf"]) for row in found]
        ours = max(gain(row["ours"], row["sjf"]) for row in found)
        low, high = printed[case]
        claims += [
            Claim(f"{case}: more than SJF, least", low, min(gains), "%"),
            Claim(f"{case}: more than SJF, most", high, max(gains), "%"),
            Claim(f"{case}: our plan, most", None, ours, "%"),
        ]
    return Figure(
        "fig5", rows, claims, "jobs a second by batches a second", note_on(seeds)
    )


def figure_6(seeds: int) -> Figure:
    """Makespan by the share of computation-intensive jobs; the rest transfers only."""
    shares = [0.0, 0.25, 0.5, 0.75, 1.0]
    found = _rows(runs.mixtures, [(TPDS, share) for share in shares], seeds)
    rows = [{"computing %": 100 * s, **row} for s, row in zip(shares, found, strict=True)]  # fmt: skip
    gaps = [improvement(row["multi-wave"], row["sjf"]) for row in rows]
    claims = [
        Claim("multi-wave less than SJF, no computing", None, gaps[0], "%"),
        Claim("multi-wave less than SJF, computing only", None, gaps[-1], "%"),
    ]
    return Figure(
        "fig6",
        rows,
        claims,
        "makespan (s) by share of computation-intensive jobs",
        note_on(seeds),
    )


def figure_7(seeds: int) -> Figure:
    """Average completion time and makespan by groups; 0 groups is SJF."""
    counts = [1, 2, 3, 4, 6, 8, 0]
    base = replace(TPDS, case="network")
    found = _rows(runs.groups, [(base, float(count)) for count in counts], seeds)
    names = [str(count) if count else "SJF" for count in counts]
    rows = [{"groups": c or None, "plan": n, **row} for c, n, row in zip(counts, names, found, strict=True)]  # fmt: skip
    six, sjf = rows[4], rows[-1]
    claims = []
    for name in ("paper", "ours"):
        time, average = f"{name}: makespan", f"{name}: average"
        less = improvement(six[time], sjf[time])
        more = gain(six[average], sjf[average])
        schemes = "the paper's schemes" if name == "paper" else "our plan"
        claims += [
            Claim(f"6 groups, {schemes}: makespan less than SJF", 7.2, less, "%"),
            Claim(f"6 groups, {schemes}: average above SJF", 0.0, more, "%"),
        ]
    return Figure(
        "fig7",
        rows,
        claims,
        "makespan and average completion time (s) by groups",
        note_on(seeds),
    )


def figure_8(seeds: int) -> Figure:
    """Makespan by error of the estimates; 40 responders, computation-intensive."""
    errors = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    base = replace(TPDS, case="computation", responders=40)
    found = _rows(runs.misjudged_makespans, [(base, error) for error in errors], seeds)
    rows = [{"error": 100 * e, **row} for e, row in zip(errors, found, strict=True)]
    grown = {n: 100 * (rows[3][n] / rows[0][n] - 1) for n in ("paper", "ours", "sjf")}
    claims = [Claim(f"{n}: increase at 30 % error", None, grown[n], "%") for n in grown]
    return Figure(
        "fig8",
        rows,
        claims,
        "makespan (s) by error of the estimates (%)",
        note_on(seeds),
    )


def figure_9(_seeds: int) -> Figure:
    """Milliseconds of planning by requesters; one run after the other, no repetitions."""
    rows = []
    for count in REQUESTERS:
        sample = runs.planning_times(Workload(requesters=count), 0)
        rows.append({"requesters": count, **summed_up([sample])})
    title = "planning time (ms), 1000 jobs, 150 accelerators"
    return Figure("fig9", rows, [], title, source="measured on this machine")


def _rows(measure: Callable[[Any, int], Sample], points: Sequence[Any], seeds: int) -> list[Row]:  # fmt: skip
    return [summed_up(samples) for samples in over_seeds(measure, points, seeds)]


def _less(text: str, printed: float, row: Row, theirs: str) -> Claim:
    return Claim(text, printed, improvement(row["paper"], row[theirs]), "%")


def _above(rows: list[Row], name: str) -> float:
    above = [100 * (row[name] / row["bound"] - 1) for row in rows]
    return float(sum(above) / len(above))


def _mean_less(rows: list[Row], ours: str, theirs: str) -> float:
    less = [improvement(row[ours], row[theirs]) for row in rows]
    return sum(less) / len(less)


_DRAW_3 = lines("hosts", "makespan, s", split="by", label="number of {panel}")

FIGURES = Catalogue(
    {
        "fig2a": Recipe(figure_2a),
        "fig2b": Recipe(figure_2b),
        "fig3a": Recipe(partial(figure_3, "computation"), _DRAW_3),
        "fig3b": Recipe(partial(figure_3, "network"), _DRAW_3),
        "fig3c": Recipe(partial(figure_3, "both"), _DRAW_3),
        "fig4": Recipe(figure_4, lines("jobs", "makespan, s", split="case")),
        "fig5": Recipe(figure_5, lines("batches a second", "jobs a second", split="case")),
        "fig6": Recipe(figure_6, lines("computing %", "makespan, s", label="computation-intensive jobs, %")),
        "fig7": Recipe(figure_7, lines("groups", "seconds", label="groups by size")),
        "fig8": Recipe(figure_8, lines("error", "makespan, s", label="error of the estimates, %")),
        "fig9": Recipe(figure_9, lines("requesters", "milliseconds")),
    },
    seeds=3,
)  # fmt: skip
