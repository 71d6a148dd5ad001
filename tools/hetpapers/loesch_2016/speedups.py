"""Table II, and the same table for our own policy beside the lower bound."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

from hetpapers.figures import Claim, Figure
from hetpapers.loesch_2016.reading import Reading
from hetpapers.loesch_2016.runs import bounds, makespans
from hetpapers.loesch_2016.table_two import (
    PRINTED,
    TEXT_MEANS,
    speedups,
)
from hetpapers.loesch_2016.task_sets import COUNTS, DELAYS, cases

if TYPE_CHECKING:
    from hetpapers.figures import Row


def table_two(seeds: int) -> Figure:
    """Re-make Table II, both halves."""
    reading = Reading()
    found = {baseline: speedups(reading, baseline, seeds) for baseline in PRINTED}
    rows = [
        row
        for baseline, sets in found.items()
        for task_set, cells in sets.items()
        for row in _rows(baseline, task_set, cells)
    ]
    claims = [
        Claim(
            f"mean speed-up of migration over {baseline}",
            TEXT_MEANS[baseline],
            mean(mean(cells) for cells in sets.values()),
            "x",
        )
        for baseline, sets in found.items()
    ]
    return Figure(
        "table2", rows, claims, "Speed-up of the scheduler with migration", _NOTE
    )


_NOTE = (
    "Ratio of mean makespans over the orders of arrival. The printed second half has six "
    "values a row; the last five of each, whose mean is that of the text, are shown."
)


def _rows(baseline: str, task_set: str, cells: list[float]) -> list[Row]:
    """Make a row for each delay and one for their mean."""
    printed = PRINTED[baseline][task_set]
    delays = [*(f"{delay:g}" for delay in DELAYS), "mean"]
    return [
        {"over": baseline, "set": task_set, "delay": delay, "paper": p, "ours": ours}
        for delay, p, ours in zip(
            delays, [*printed, mean(printed)], [*cells, mean(cells)], strict=True
        )
    ]


def table_two_ours(seeds: int) -> Figure:
    """Set our policy beside the paper's and the lower bound."""
    reading = Reading()
    rows = [
        _comparison(task_set, delay, seeds, reading)
        for task_set in COUNTS
        for delay in DELAYS
    ]
    return Figure(
        id="finish-time",
        title="Speed-up over affinity, and makespan in multiples of the lower bound",
        rows=rows,
        claims=_claims(rows),
        note="No schedule is shorter than the lower bound; see docs/papers/loesch-2016.md.",
    )


def _comparison(task_set: str, delay: float, seeds: int, reading: Reading) -> Row:
    runs = cases(task_set, delay, seeds)
    times = {
        policy: makespans(runs, reading, policy)
        for policy in ("affinity", "migration", "finish-time")
    }
    least = mean(bounds(runs, reading))
    means = {policy: mean(found) for policy, found in times.items()}
    pairs = zip(times["affinity"], times["finish-time"], strict=True)
    return {
        "set": task_set,
        "delay": delay,
        "migration": means["affinity"] / means["migration"],
        "finish-time": means["affinity"] / means["finish-time"],
        "at best": means["affinity"] / least,
        "worst order": min(affinity / ours for affinity, ours in pairs),
        "migration / bound": means["migration"] / least,
        "finish-time / bound": means["finish-time"] / least,
    }


def _claims(rows: list[Row]) -> list[Claim]:
    points = 100 * mean(row["finish-time"] - row["migration"] for row in rows)
    over = [
        Claim(
            f"{task_set}: mean speed-up of finish-time over affinity",
            None,
            mean(row["finish-time"] for row in rows if row["set"] == task_set),
            "x",
        )
        for task_set in COUNTS
    ]
    return [
        *over,
        Claim("finish-time above migration, mean", None, points, "points"),
        Claim("worst cell", None, min(row["finish-time"] for row in rows), "x"),
        Claim("worst single run", None, min(row["worst order"] for row in rows), "x"),
        Claim(
            "makespan over the lower bound, mean",
            None,
            mean(row["finish-time / bound"] for row in rows),
            "x",
        ),
    ]
