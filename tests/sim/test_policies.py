"""Every policy, through everything at once: no task is lost and no decision loops."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from hetsched.policies import POLICIES, make_policy
from hetsim.simulation import Simulation
from hetsim.workload import expected_seconds
from scenario_builders import a_node, a_scenario, a_type

if TYPE_CHECKING:
    from hetsim.scenario import Scenario


def a_rough_scenario(generator: random.Random) -> Scenario:
    """Make a scenario with outages, deadlines, priorities, chains and sharing."""
    node = a_node("cpu", slots=3, sharing=generator.choice(["processor", None]))
    node += a_node("gpu0", "fpga0", link_bytes_per_s=1e9)
    return a_scenario(
        node,
        [_a_rough_type(f"app/{number}", generator) for number in range(6)],
        [_a_rough_task(number, generator) for number in range(60)],
        outages=[
            {
                "resource": name,
                "start": generator.uniform(0, 40),
                "finish": generator.uniform(40, 60),
                "drain": generator.random() < 0.5,
            }
            for name in ("gpu0", "fpga0")
        ],
    )


def _a_rough_type(name: str, generator: random.Random) -> dict[str, Any]:
    return a_type(
        name,
        strips=generator.choice([1, 4, 50]),
        cpu=generator.uniform(0.5, 30),
        gpu0=generator.choice([None, generator.uniform(0.5, 10)]),
        fpga0=generator.choice([None, generator.uniform(0.5, 10)]),
        migration_s=generator.choice([0.0, 0.5]),
        state_bytes=generator.choice([0, 1e9]),
        overrun=generator.choice(["continue", "stop_at_deadline"]),
    )


def _a_rough_task(number: int, generator: random.Random) -> dict[str, Any]:
    arrival = generator.choice([0.0, generator.uniform(0, 60)])
    return {
        "id": number,
        "type": f"app/{generator.randrange(6)}",
        "arrival": arrival,
        "deadline": generator.choice([None, arrival + generator.uniform(1, 80)]),
        "priority": generator.randrange(2),
        "after": [generator.randrange(number)] if number % 7 == 6 else [],
    }


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_every_task_ends_and_the_invariants_hold(policy: str, seed: int) -> None:
    generator = random.Random(seed)
    scenario = a_rough_scenario(generator)
    expected = expected_seconds(scenario, 0.3, generator)
    simulation = Simulation(
        scenario,
        make_policy(policy, {}),
        expected,
        recorder=lambda *_: simulation.scheduler.check(),
    )

    simulation.run()

    assert [job.name for job in simulation.jobs if job.outcome is None] == []
    assert simulation.scheduler.system.tasks == {}
