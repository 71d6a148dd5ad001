"""The simulator is deterministic, and decides as the daemon's core does."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import pytest

from builders import UNSTAGED, estimates
from hetpapers.loesch_2016.reading import Reading
from hetpapers.loesch_2016.scenarios import make_scenario
from hetpapers.loesch_2016.task_sets import Case
from hetsched.estimates.series import PRIOR_SPREAD
from hetsched.policies import make_policy
from hetsched.policy import Place, Wake
from hetsched.scheduler import Scheduler
from hetsched.tasks import State
from hetsim.simulate import simulate
from hetsim.simulation import Simulation
from hetsim.workload import expected_seconds, resources_of
from scenario_builders import a_node, a_scenario, a_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.actions import Action
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.policy import Decision
    from hetsched.system import System
    from hetsim.result import Result
    from hetsim.scenario import Scenario

POLICIES = ("affinity", "work-conserving", "migration", "finish-time")
SCENARIO = make_scenario(Case("Set 2", 0.25, 0), Reading())


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_trace(policy: str) -> None:
    first, second, other = (
        _timeless(simulate(SCENARIO, policy, noise=0.3, seed=seed))
        for seed in (7, 7, 8)
    )

    assert first == second
    assert first != other


def _timeless(result: Result) -> Result:
    return msgspec.structs.replace(result, simulation_seconds=0.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_daemons_core_decides_the_same_on_the_same_events(policy: str) -> None:
    told: list[tuple[list[Event], Nanoseconds, list[Action]]] = []
    scenario = _as_uncertain_as_a_table(_slow_everywhere_else(SCENARIO))
    expected = expected_seconds(scenario)
    simulation = Simulation(
        scenario,
        make_policy(policy, {}),
        expected,
        recorder=lambda events, now, actions: told.append((events, now, actions)),
    )
    simulation.run()

    core = Scheduler(
        resources_of(scenario),
        estimates(expected),
        make_policy(policy, {}),
        limits=UNSTAGED,
    )
    decisions = [
        (
            events,
            now,
            core.handle(events[0], now)
            if len(events) == 1
            else core.handle_all(events, now),
        )
        for events, now, _ in told
    ]

    assert decisions == told
    assert len(told) > len(scenario.tasks)


def _as_uncertain_as_a_table(scenario: Scenario) -> Scenario:
    """Let expectations be as sure as those of a table that has seen nothing."""
    types = [
        msgspec.structs.replace(kind, spread=dict.fromkeys(kind.seconds, PRIOR_SPREAD))
        for kind in scenario.types
    ]
    return msgspec.structs.replace(scenario, types=types)


def _slow_everywhere_else(scenario: Scenario) -> Scenario:
    """Let every type run everywhere: the daemon's table holds finite times only."""
    slow = {resource.name: 1000.0 for resource in scenario.resources}
    types = [
        msgspec.structs.replace(kind, seconds={**slow, **kind.seconds})
        for kind in scenario.types
    ]
    return msgspec.structs.replace(scenario, types=types)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(8))
def test_every_strip_runs_once_and_no_resource_does_too_much(
    policy: str, seed: int
) -> None:
    """Random scenarios: work adds up, and every task is completed."""
    generator = random.Random(seed)
    types = [
        a_type(
            f"t{number}",
            strips=generator.choice([1, 3, 10]),
            cpu=generator.uniform(1, 20),
            gpu0=generator.uniform(1, 20),
            migration_s=generator.choice([0.0, 0.3]),
        )
        for number in range(5)
    ]
    tasks = [
        (str(n), f"t{generator.randrange(5)}", generator.uniform(0, 60))
        for n in range(40)
    ]
    scenario = a_scenario(a_node("cpu", "gpu0"), types, tasks)

    result = simulate(scenario, policy)

    assert result.counts["completed"] == len(tasks)
    seconds = {kind.name: kind.seconds for kind in scenario.types}
    for task, (_, kind, _) in zip(result.tasks, tasks, strict=True):
        shares = [
            (s.finish - s.start) / (seconds[kind][s.resource] or 1)
            for s in task.segments
        ]
        assert sum(shares) == pytest.approx(1, abs=1e-6)
    for name in ("cpu", "gpu0"):
        spans = sorted(
            (s.start, s.finish)
            for task in result.tasks
            for s in task.segments
            if s.resource == name
        )
        assert all(a[1] <= b[0] for a, b in pairwise(spans))


@dataclass(frozen=True)
class Restless:
    """Ask to be woken again, always; `places`: let tasks run, too."""

    places: bool
    pause: int = 0

    def react(
        self, _event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        for task in list(system.unplaced) if self.places else ():
            yield Place(task.id, "cpu")
        yield Wake(now + self.pause)


@pytest.mark.parametrize(("places", "finished"), [(True, 2), (False, 0)])
@pytest.mark.parametrize("pause", [0, 50_000_000])
def test_a_policy_that_always_wants_to_be_woken_has_an_end(
    pause: int, *, places: bool, finished: int
) -> None:
    # the second one arrives long after the end of the first
    scenario = a_scenario(
        a_node("cpu"),
        [a_type("t", cpu=2.0)],
        [
            {"id": "a", "type": "t", "arrival": 0.0},
            {"id": "b", "type": "t", "arrival": 20.0},
        ],
    )
    policy = Restless(places, pause)
    simulation = Simulation(scenario, policy, expected_seconds(scenario))

    simulation.run()

    ended = [job.id for job in simulation.jobs if job.outcome is State.COMPLETED]
    assert len(ended) == finished
