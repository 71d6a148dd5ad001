"""How the constants of the central reading were chosen: run by hand, offline.

    python -m hetpapers.loesch_2016.search --candidates 300 --seed 1

Draws readings at random, keeps those that put every type into its bin and give it its
best resource, and prints those whose Table II comes closest to the printed one. Our own
policy has no part in it.
"""

from __future__ import annotations

import math
import random
from statistics import mean
from typing import TYPE_CHECKING

import click

from hetpapers.loesch_2016.reading import Reading, faults
from hetpapers.loesch_2016.table_two import PRINTED, speedups

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDERS = 3
"""Permutations of each set a candidate is judged by: a tenth of a point is not the aim."""

KEPT = 10


def draw(generator: random.Random) -> Reading:
    """Draw one reading: all that the paper leaves open, in ranges that are plausible."""

    def between(low: float, high: float) -> float:
        return math.exp(generator.uniform(math.log(low), math.log(high)))

    def ratios(other: str, low: float, high: float) -> dict[str, float]:
        return {"cpu": between(4, 20), other: between(low, high)}

    return Reading(
        ratios={
            "G": ratios("gpu0", 1.2, 4),
            "H": ratios("fpga0", 1.5, 8),
            "M": ratios("fpga0", 2, 15),
            "C": ratios("fpga0", 2, 15),
        },
        setups={
            "cpu": 0.01,
            "gpu0": between(0.6, 1.2),
            "fpga0": between(0.6, 1.5),
        },
        strip_s=between(0.1, 1.0),
        migration_s=between(0.05, 0.5),
        cpu_slots=generator.choice([2, 3, 4]),
    )


def candidates(count: int, generator: random.Random) -> Iterator[Reading]:
    """Draw readings that agree with Table I."""
    while count:
        reading = draw(generator)
        if not faults(reading):
            count -= 1
            yield reading


def distance(reading: Reading) -> tuple[float, str]:
    """Measure how far the reading's Table II is from the printed one, in log ratios."""
    found = {baseline: speedups(reading, baseline, ORDERS) for baseline in PRINTED}
    off = [
        (math.log(mean(found[baseline][task_set])) - math.log(mean(printed))) ** 2
        # a point against affinity says more than one against work-conserving
        * (25.0 if baseline == "affinity" else 1.0)
        for baseline, rows in PRINTED.items()
        for task_set, printed in rows.items()
    ]
    means = {
        baseline: [round(mean(row), 3) for row in rows.values()]
        for baseline, rows in found.items()
    }
    return math.sqrt(mean(off)), str(means)


@click.command()
@click.option("--candidates", "count", default=100, show_default=True)
@click.option("--seed", default=1, show_default=True)
def search(count: int, seed: int) -> None:
    """Print the readings that come closest to Table II."""
    judged = []
    for reading in candidates(count, random.Random(seed)):
        judged.append((*distance(reading), reading))
        judged.sort(key=lambda found: found[0])
        del judged[KEPT:]
    for off, means, reading in judged:
        click.echo(f"{off:.3f} {means}\n  {reading}")


if __name__ == "__main__":
    search()
