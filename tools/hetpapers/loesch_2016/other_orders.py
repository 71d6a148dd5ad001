"""The paper's sets in orders of arrival that no figure shows: how `finish-time` stands.

    python -m hetpapers.loesch_2016.other_orders --first 500 --orders 12

Ratios of makespans of single runs; above 1, `finish-time` is faster.
"""

from __future__ import annotations

from statistics import mean

import click

from hetpapers.loesch_2016.reading import Reading
from hetpapers.loesch_2016.runs import bounds, makespans
from hetpapers.loesch_2016.task_sets import COUNTS, DELAYS, Case

OTHERS = ("affinity", "work-conserving", "migration")
CLEARLY = 0.99
"""Below this share of the best one's speed a run counts as lost."""


@click.command
@click.option(
    "--first", type=click.IntRange(min=0), default=500, show_default=True, help="Order."
)
@click.option("--orders", type=click.IntRange(min=1), default=12, show_default=True)
def measure(first: int, orders: int) -> None:
    """Print how `finish-time` stands beside the paper's policies."""
    points: list[float] = []
    above: list[float] = []
    ratios: list[tuple[float, str, float, int]] = []
    for task_set in COUNTS:
        for delay in DELAYS:
            runs = [Case(task_set, delay, first + number) for number in range(orders)]
            ours = makespans(runs, Reading(), "finish-time")
            others = {name: makespans(runs, Reading(), name) for name in OTHERS}
            base = mean(others["affinity"])
            points.append(base / mean(ours) - base / mean(others["migration"]))
            above.append(mean(ours) / mean(bounds(runs, Reading())))
            ratios += [
                (min(theirs) / own, run.task_set, run.delay, run.order)
                for run, own, *theirs in zip(runs, ours, *others.values(), strict=True)
            ]
    lost = sorted(ratio for ratio in ratios if ratio[0] < CLEARLY)
    click.echo(f"orders {first} to {first + orders - 1}, {len(ratios)} runs")
    click.echo(f"above migration, mean: {100 * mean(points):.1f} points over affinity")
    click.echo(f"below {CLEARLY} of the best of the three: {len(lost)} runs")
    for ratio, task_set, delay, order in lost:
        click.echo(f"  {ratio:.3f}  {task_set}, delay {delay:g} s, order {order}")
    click.echo(f"worst {min(ratios)[0]:.3f}")
    click.echo(f"makespan over the lower bound, mean: {mean(above):.3f}")


if __name__ == "__main__":
    measure()
