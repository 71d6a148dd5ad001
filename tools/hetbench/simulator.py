"""How fast the simulator is: agenda entries handled per second of processor time.

An event is an entry taken off the agenda: an arrival, a finished or yielded task, a
timer. Checkpoints without a listener cause no events: they are computed when needed,
and counted apart. The best round counts, as other programs share the machine. Where they
leave no round alone, `calibration_steps` tells more: the time of an event relative to that
of a step of a loop of plain Python, measured in turns with it. `calls` is the number of
Python functions called for an event, which no other program changes.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

from hetbench.machine import STEPS, calibrate
from hetsched import build
from hetsched.policies import make_policy
from hetsim.scenario import FORMAT, check_scenario
from hetsim.simulation import Simulation
from hetsim.workload import expected_seconds

if TYPE_CHECKING:
    from hetsim.scenario import Scenario

TASKS = 20_000
COUNTED = 2_000
"""Tasks of the simulation in which calls are counted."""
REPEAT = 5
POLICIES = ("affinity", "work-conserving", "migration", "finish-time")

GAPS = {"light": 6.0, "heavy": 2.0, "batch": 0.0}
"""Mean seconds between two arrivals; three resources do a task in 3.4 s on average."""

SLOWER = {"cpu": 8.0, "gpu0": 2.0, "fpga0": 3.0}
"""Resource -> how much longer a task takes there that fits another one best."""


def run(tasks: int = TASKS, counted: int = COUNTED) -> list[dict[str, Any]]:
    """Measure every policy under every load; with `counted` tasks, count calls."""
    return [
        {
            "policy": policy,
            "load": load,
            "build": build.NAME,
            **measure(a_workload(gap, tasks), policy),
            "calls": round(calls_of(a_workload(gap, counted), policy), 1),
        }
        for load, gap in GAPS.items()
        for policy in POLICIES
    ]


def measure(scenario: Scenario, policy: str) -> dict[str, float]:
    """Run a scenario some times; return the rates of the quickest run."""
    spent, ratios, events = [], [], 0
    for _ in range(REPEAT):
        before = calibrate()
        nanoseconds, events = _run(scenario, policy)
        step = (before + calibrate()) / 2 / STEPS
        spent.append(nanoseconds)
        ratios.append(nanoseconds / events / step)
    strips = {kind.name: kind.strips for kind in scenario.types}
    checkpoints = sum(strips[task.type] for task in scenario.tasks)
    seconds = min(spent) / 1e9
    return {
        "events": events,
        "events_per_s": round(events / seconds),
        "checkpoints_per_s": round(checkpoints / seconds),
        "calibration_steps": round(statistics.median(ratios)),
    }


def _run(scenario: Scenario, policy: str) -> tuple[int, int]:
    """Run a scenario; return nanoseconds of processor time, and events."""
    simulation = _simulation(scenario, policy)
    gc.collect()
    gc.disable()  # as in `hetsim.simulate`
    begin = time.thread_time_ns()
    simulation.run()
    spent = time.thread_time_ns() - begin
    gc.enable()
    return spent, simulation.agenda.handled


def calls_of(scenario: Scenario, policy: str) -> float:
    """Count the Python functions that are called for an event, on average."""
    simulation = _simulation(scenario, policy)
    calls = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(profile)
    try:
        simulation.run()
    finally:
        sys.setprofile(None)
    return calls / simulation.agenda.handled


def _simulation(scenario: Scenario, policy: str) -> Simulation:
    return Simulation(scenario, make_policy(policy, {}), expected_seconds(scenario))


def a_workload(gap: float, count: int = TASKS) -> Scenario:
    """Make tasks of 30 types, ten for each resource; short ones are more frequent."""
    generator = random.Random(1)
    sizes = [(best, size) for best in SLOWER for size in range(1, 11)]
    chosen = generator.choices(sizes, [1 / size for _, size in sizes], k=count)
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
