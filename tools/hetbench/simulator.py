"""How fast the simulator is: agenda entries handled per second, on one core.

An event is an entry taken off the agenda: an arrival, a finished or yielded task, a
timer. Checkpoints without a listener cause no events: they are computed when needed,
and counted apart. The best repetition counts, for other programs share the machine.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hetsim.scenario import FORMAT, check_scenario
from hetsim.simulate import simulate

if TYPE_CHECKING:
    from hetsim.scenario import Scenario

TASKS = 20_000
REPEAT = 5
POLICIES = ("affinity", "work-conserving", "migration", "finish-time")

GAPS = {"light": 6.0, "heavy": 2.0, "batch": 0.0}
"""Mean seconds between two arrivals; three resources do a task in 3.4 s on average."""

SLOWER = {"cpu": 8.0, "gpu0": 2.0, "fpga0": 3.0}
"""Resource -> how much longer a task takes there that fits another one best."""


def run() -> list[dict[str, Any]]:
    """Measure every policy under every load."""
    return [
        {"policy": policy, "load": load, **measure(a_workload(gap), policy)}
        for load, gap in GAPS.items()
        for policy in POLICIES
    ]


def measure(scenario: Scenario, policy: str) -> dict[str, float]:
    """Run a scenario some times; return the rates of the quickest run."""
    results = [simulate(scenario, policy) for _ in range(REPEAT)]
    seconds = min(result.simulation_seconds for result in results)
    strips = {kind.name: kind.strips for kind in scenario.types}
    checkpoints = sum(strips[task.type] for task in scenario.tasks)
    return {
        "events": results[0].events,
        "events_per_s": round(results[0].events / seconds),
        "checkpoints_per_s": round(checkpoints / seconds),
    }


def a_workload(gap: float) -> Scenario:
    """Make tasks of 30 types, ten for each resource; short ones are more frequent."""
    generator = random.Random(1)
    sizes = [(best, size) for best in SLOWER for size in range(1, 11)]
    chosen = generator.choices(sizes, [1 / size for _, size in sizes], k=TASKS)
    now = 0.0
    tasks = []
    for number, (best, size) in enumerate(chosen):
        tasks.append({"id": number, "type": f"{best}/{size}", "arrival": now})
        now += generator.expovariate(1 / gap) if gap else 0.0
    return check_scenario(
        {
            "format": FORMAT,
            "resources": [{"name": r, "kind": r.rstrip("0")} for r in SLOWER],
            "types": [_type(best, size) for best, size in sizes],
            "tasks": tasks,
        }
    )


def _type(best: str, size: int) -> dict[str, Any]:
    seconds = {r: size * (1.0 if r == best else slow) for r, slow in SLOWER.items()}
    return {"name": f"{best}/{size}", "seconds": seconds, "strips": 20 * size}
