"""Workload traces: tasks that arrive at random and take a random time."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsim.scenario import FORMAT, ResourceModel, Scenario, TaskModel, TypeModel

if TYPE_CHECKING:
    from hetpapers.mokhtari_felare.systems import EdgeSystem

TASKS = 2000


@dataclass(frozen=True, slots=True)
class TraceReading:
    """Parameters of the traces that the paper leaves open.

    Attributes:
        distribution: of execution times around the EET: `gamma`, or `uniform` with the
            same coefficient of variation.
        variation: that coefficient (CV).
        streams: each type is a Poisson stream of its own with an equal share of the
            tasks; else one stream whose types are drawn evenly.
        strips: equal parts between which a running task can be preempted.

    """

    distribution: str = "gamma"
    variation: float = 0.1
    streams: bool = False
    strips: int = 1


def make_trace(
    system: EdgeSystem,
    rate: float,
    seed: int,
    reading: TraceReading | None = None,
    tasks: int = TASKS,
) -> Scenario:
    """Draw a trace of tasks that arrive at `rate` tasks a second.

    Every task's times are drawn for all machines, so that all policies meet the same.
    """
    reading = reading or TraceReading()
    generator = random.Random(f"{seed}/{rate}")
    arrivals = (_streams if reading.streams else _one_stream)(
        list(system.seconds), rate, tasks, generator
    )
    allowed = system.time_allowed()
    return Scenario(
        format=FORMAT,
        resources=_resources(system),
        types=_types(system, reading.strips),
        tasks=[
            TaskModel(
                id=number,
                type=name,
                arrival=at,
                deadline=at + allowed[name],
                actual_seconds={
                    machine: draw_seconds(mean, reading, generator)
                    for machine, mean in system.seconds[name].items()
                },
            )
            for number, (at, name) in enumerate(arrivals)
        ],
    )


def draw_seconds(mean: float, reading: TraceReading, generator: random.Random) -> float:
    """Draw the time that one task takes on one machine."""
    if reading.variation == 0.0:
        return mean
    if reading.distribution == "uniform":
        half = reading.variation * math.sqrt(3.0)
        return mean * generator.uniform(1.0 - half, 1.0 + half)
    shape = reading.variation**-2
    return generator.gammavariate(shape, mean / shape)


def _one_stream(
    names: list[str], rate: float, tasks: int, generator: random.Random
) -> list[tuple[float, str]]:
    found = []
    at = 0.0
    for _ in range(tasks):
        at += generator.expovariate(rate)
        found.append((at, names[int(generator.random() * len(names))]))
    return found


def _streams(
    names: list[str], rate: float, tasks: int, generator: random.Random
) -> list[tuple[float, str]]:
    share = len(names)
    found = []
    for name in names:
        stream = _one_stream([name], rate / share, tasks // share, generator)
        found.extend(stream)
    return sorted(found)


def _resources(system: EdgeSystem) -> list[ResourceModel]:
    return [
        ResourceModel(
            name=name,
            # Every machine is a kind of its own.
            kind=name,
            queue_limit=system.places,
            busy_watts=watts,
            idle_watts=system.idle_watts,
        )
        for name, watts in system.busy_watts.items()
    ]


def _types(system: EdgeSystem, strips: int) -> list[TypeModel]:
    return [
        TypeModel(
            name=name, seconds=dict(row), strips=strips, overrun="stop_at_deadline"
        )
        for name, row in system.seconds.items()
    ]
