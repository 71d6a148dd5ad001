"""Sensitivity of the results to the reconstructed parameters, one at a time."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING, Any

from hetpapers.figures import Claim, Figure
from hetpapers.loesch_2016.reading import Reading, faults
from hetpapers.loesch_2016.runs import NO_ERRORS, Errors, makespans
from hetpapers.loesch_2016.task_sets import COUNTS, DELAYS, cases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetpapers.figures import Row

MOST_ORDERS = 3
"""Orders of arrival for each cell: enough to see a trend."""

POLICIES = ("migration", "finish-time", "work-conserving")


def sensitivity(seeds: int) -> Figure:
    """Sweep the parameters of the reading, and errors of the estimates."""
    orders = min(seeds, MOST_ORDERS)
    rows = [
        _row(name, value, reading, NO_ERRORS, orders)
        for name, value, reading in sweep()
    ]
    noisy = [
        _row(name, noise, Reading(), Errors(noise, correct), orders)
        for name, correct in (
            ("estimates wrong by", False),
            ("the same, corrected by strips", True),
        )
        for noise in (0.1, 0.3, 0.5)
    ]
    return Figure(
        id="sensitivity",
        title="Mean speed-up over affinity when one parameter changes",
        rows=rows + noisy,
        claims=[
            Claim(
                "finish-time above migration: least over the sweep",
                None,
                100 * min(row["finish-time"] - row["migration"] for row in rows),
                "points",
            ),
            Claim(
                "finish-time over affinity: worst cell of the sweep",
                None,
                min(row["worst cell"] for row in rows),
                "x",
            ),
            Claim(
                "the same with wrong estimates",
                None,
                min(row["worst cell"] for row in noisy),
                "x",
            ),
        ],
        note="Worst cell: the least of the means over the orders, for finish-time. Under "
        "wrong estimates affinity also chooses by them.",
    )


def sweep() -> Iterator[tuple[str, object, Reading]]:
    """List the readings that differ from the central one in one parameter.

    Those that no longer agree with Table I are left out.
    """
    central = Reading()
    found: list[tuple[str, object, Reading]] = [("central", "-", central)]
    for resource, name in (("cpu", "CPU"), ("gpu0", "GPU"), ("fpga0", "FPGA")):
        found += [
            (f"{name} speed ratio x", scale, scaled(central, resource, scale))
            for scale in (0.5, 0.75, 1.5, 2.0)
        ]
    for field, (name, values) in _SWEPT.items():
        found += [(name, v, replace(central, **{field: v})) for v in values]
    return (entry for entry in found if not faults(entry[2]))


_SWEPT: dict[str, tuple[str, tuple[Any, ...]]] = {
    "strip_s": ("strip seconds", (0.05, 0.1, 0.25, 1.0, 2.0)),
    "link_scale": ("link speed x", (0.1, 0.25, 4.0)),
    "migration_s": ("move seconds", (0.0, 0.1, 1.0, 2.0)),
    "cpu_slots": ("CPU slots", (1, 3, 4, 8)),
}


def scaled(reading: Reading, resource: str, scale: float) -> Reading:
    """Make a resource slower, or faster, than the leading one by a factor."""
    ratios = {
        app: {r: ratio * (scale if r == resource else 1.0) for r, ratio in row.items()}
        for app, row in reading.ratios.items()
    }
    return replace(reading, ratios=ratios)


def _row(
    name: str, value: object, reading: Reading, errors: Errors, orders: int
) -> Row:
    cells = {policy: _cells(reading, policy, errors, orders) for policy in POLICIES}
    over = mean(
        migration / other
        for migration, other in zip(
            cells["migration"], cells["work-conserving"], strict=True
        )
    )
    return {
        "parameter": name,
        "value": value,
        "migration": mean(cells["migration"]),
        "finish-time": mean(cells["finish-time"]),
        "worst cell": min(cells["finish-time"]),
        "migration over work-conserving": over,
    }


def _cells(reading: Reading, policy: str, errors: Errors, orders: int) -> list[float]:
    """Speed-up over affinity for each set and delay."""
    return [
        mean(makespans(runs, reading, "affinity", errors))
        / mean(makespans(runs, reading, policy, errors))
        for task_set in COUNTS
        for delay in DELAYS
        for runs in [cases(task_set, delay, orders)]
    ]
