"""`builds`: do both builds of the scheduler make the same decisions, one by one?

python -m torture builds --seeds 1000

Each seed draws a scenario and a policy. Two processes simulate them, one with the sources of
hetsched, the other with the wheel hetd-compiled, which must be installed or in `HETD_WHEEL`
(a folder that it is unpacked in). They print a digest of all events and actions.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from hetsched import build
from hetsched.policies import POLICIES, make_policy
from hetsim.arena.generator import draw, read_generator
from hetsim.scenario import Crash, Outage, Scenario
from hetsim.simulation import Simulation
from hetsim.workload import expected_seconds

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from hetsched.actions import Action
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds

COMPARED = sorted(POLICIES.keys() - {"mttf-lp"})
"""Policies; how long the solver of `mttf-lp` computes depends on the clock."""
SHOWN = 3
"""Complaints of one run."""


def run(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare the builds over a number of seeds; return one row."""
    if not has_compiled():
        return [
            {"seeds": 0, "complaints": ["hetd-compiled does not run (make wheels)"]}
        ]
    pure, compiled = (lines_of(name, chosen.first, chosen.seeds) for name in "01")
    found = list(complaints(pure, compiled))
    events = sum(int(line.split()[2]) for line in pure)
    return [{"seeds": len(pure), "events": events, "complaints": found[:SHOWN]}]


def has_compiled() -> bool:
    """Return whether a process would use the wheel, if none is forbidden to."""
    return lines_of("1", 0, 0) == ["compiled"]


def complaints(pure: list[str], compiled: list[str]) -> Iterator[str]:
    """Say where the builds differ, with the first different decision of a seed."""
    if len(pure) != len(compiled):
        yield f"{len(pure)} seeds were simulated, and {len(compiled)}"
    for one, other in zip(pure, compiled, strict=False):
        if one != other:
            seed = int(one.split()[0])
            yield f"pure {one}; compiled {other}; first: {first_difference(seed)}"


def first_difference(seed: int) -> str:
    """Find the first line of a seed's trace that differs."""
    pure, compiled = (lines_of(name, seed, 1, "trace") for name in "01")
    for one, other in zip(pure, compiled, strict=False):
        if one != other:
            return f"{one[:300]} | {other[:300]}"
    return "one trace is the beginning of the other"


def lines_of(compiled: str, first: int, count: int, *more: str) -> list[str]:
    """Run a build in a process of its own (`HETD_COMPILED`); return what it prints."""
    given = {"HETD_COMPILED": compiled, "PYTHONHASHSEED": "0"}
    paths = [os.environ.get("HETD_WHEEL", ""), *sys.path]
    given["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    words = [sys.executable, "-m", "torture.builds", str(first), str(count), *more]
    ended = subprocess.run(
        words, env={**os.environ, **given}, capture_output=True, text=True, check=False
    )
    return ended.stdout.splitlines() if not ended.returncode else [ended.stderr]


# ------------------------------------------------------------ in the other processes


def main() -> None:
    """Print the name of the build, or a line for each seed."""
    first, count, *trace = sys.argv[1:]
    if count == "0":
        print(build.NAME)
    for seed in range(int(first), int(first) + int(count)):
        name, lines = simulated(seed)
        if trace:
            print("\n".join(lines))
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
        print(seed, name, len(lines), digest, flush=True)


def simulated(seed: int) -> tuple[str, list[str]]:
    """Simulate the scenario of a seed; return the policy, and its events with actions."""
    chance = random.Random(f"builds {seed}")
    name = COMPARED[seed % len(COMPARED)]
    scenario = troubled(draw(seed, read_generator()).scenario, chance)
    lines: list[str] = []

    def note(events: list[Event], now: Nanoseconds, actions: list[Action]) -> None:
        lines.append(f"{now} {events} {actions}")

    expected = expected_seconds(scenario, chance.choice((0.0, 0.3)), chance)
    policy = make_policy(name, {})
    correct = chance.random() < 0.5
    Simulation(scenario, policy, expected, note, correct=correct, seed=seed).run()
    return name, lines


def troubled(scenario: Scenario, chance: random.Random) -> Scenario:
    """Add priorities, predecessors, a crash, and a resource that is away for a while."""
    tasks = []
    for number, task in enumerate(scenario.tasks):
        before = [scenario.tasks[chance.randrange(number)].id] if number else []
        changed = msgspec.structs.replace(
            task,
            priority=chance.choice((0, 0, 0, 1)),
            after=before if chance.random() < 0.2 else None,
        )
        tasks.append(changed)
    away, crashing = chance.choice(scenario.resources), chance.choice(scenario.types)
    start, drain = chance.uniform(0.0, 50.0), chance.random() < 0.5
    outage = Outage(away.name, start, start + 20.0, drain)
    crash = Crash(crashing.name, away.name, start=start, finish=start + 30.0)
    return msgspec.structs.replace(
        scenario,
        tasks=tasks,
        outages=[outage] if chance.random() < 0.5 else [],
        crashes=[crash] if chance.random() < 0.3 else [],
    )


if __name__ == "__main__":
    main()
