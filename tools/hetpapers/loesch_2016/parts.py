"""The gain of one task on several resources at once: random nodes, with and without.

    python -m hetpapers.loesch_2016.parts --scenarios 200 --seed 900000

All tasks of a scenario of the arena offer their strips, or none does; the policy is
`finish-time`. Ratios of makespans: below 1, splitting ends sooner.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import click
from msgspec import structs

from hetsim.arena.generator import draw, read_generator
from hetsim.simulate import simulate

if TYPE_CHECKING:
    from hetsim.scenario import Scenario

ALIKE = 0.01
"""Ratios that differ from 1 by less count as equal."""
MERGE_S = 0.5
"""Time to set up a part and to merge it, as the daemon assumes without data to write."""


def _ratio(scenario: Scenario) -> float:
    """Return the makespan with parts, relative to that without."""
    types = [
        structs.replace(kind, parallel=True, merge_s=MERGE_S) for kind in scenario.types
    ]
    with_parts = simulate(structs.replace(scenario, types=types), "finish-time")
    return with_parts.makespan / simulate(scenario, "finish-time").makespan


def _line(name: str, ratios: list[float]) -> str:
    sooner = sum(ratio < 1.0 - ALIKE for ratio in ratios) / len(ratios)
    later = sum(ratio > 1.0 + ALIKE for ratio in ratios) / len(ratios)
    return (
        f"{name:<28} mean {statistics.mean(ratios):.3f}  best {min(ratios):.2f}  "
        f"worst {max(ratios):.2f}  sooner {sooner:.0%}  later {later:.0%}"
    )


@click.command
@click.option("--scenarios", default=200, show_default=True)
@click.option("--seed", default=900_000, show_default=True)
def measure(scenarios: int, seed: int) -> None:
    """Print the makespans of random scenarios with parts, relative to those without."""
    generator = read_generator()
    known = structs.replace(generator, arrivals=["static"])
    for name, each in (("as drawn", generator), ("all tasks at the start", known)):
        seeds = range(seed, seed + scenarios)
        click.echo(_line(name, [_ratio(draw(n, each).scenario) for n in seeds]))


if __name__ == "__main__":
    measure()
