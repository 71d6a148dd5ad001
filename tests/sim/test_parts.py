"""One task on several resources at once, simulated: who gets a part, and what comes of it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from hetsched.policies import make_policy
from hetsim.simulate import simulate
from hetsim.simulation import Simulation
from hetsim.workload import expected_seconds
from scenario_builders import a_node, a_scenario, a_type, run_trace

if TYPE_CHECKING:
    from hetsim.scenario import Scenario
    from hetsim.workload import Job

CPU_GPU = a_node("cpu", "gpu0")


def test_an_idle_resource_does_its_part_of_the_last_task() -> None:
    # the GPU gives up 24 of 100 strips; these take the CPU as long as the GPU the others
    scenario = a_scenario(
        CPU_GPU,
        [a_type("blur", 100, cpu=30, gpu0=10, parallel=True)],
        [("b", "blur", 0)],
    )

    assert run_trace(scenario, "finish-time") == {"b": "gpu0 0-7.6, cpu 0.1-7.3"}


def test_a_task_is_not_split_unless_its_type_allows_it() -> None:
    scenario = a_scenario(
        CPU_GPU, [a_type("heat", 100, cpu=30, gpu0=10)], [("h", "heat", 0)]
    )

    assert run_trace(scenario, "finish-time") == {"h": "gpu0 0-10"}


@pytest.mark.parametrize("costs", [{"merge_s": 3.0}, {"migration_s": 9.0}])
def test_a_task_is_not_split_where_that_costs_more_than_it_saves(
    costs: dict[str, Any],
) -> None:
    scenario = a_scenario(
        CPU_GPU,
        [a_type("blur", 100, cpu=30, gpu0=10, parallel=True, **costs)],
        [("b", "blur", 0)],
    )

    assert run_trace(scenario, "finish-time") == {"b": "gpu0 0-10"}


def test_a_task_is_not_split_on_a_guess() -> None:
    blur = a_type("b", 100, cpu=30, gpu0=10, parallel=True, spread={"cpu": 2.9})
    scenario = a_scenario(CPU_GPU, [blur], [("b", "b", 0)])

    assert run_trace(scenario, "finish-time") == {"b": "gpu0 0-10"}


def test_what_waits_goes_before_parts() -> None:
    scenario = a_scenario(
        CPU_GPU,
        [a_type("blur", 100, gpu0=10, cpu=10, parallel=True), a_type("c", cpu=20)],
        [("b", "blur", 0), ("c", "c", 0)],
    )

    assert run_trace(scenario, "finish-time")["c"] == "cpu 0-20"


def test_a_lost_part_is_done_again() -> None:
    scenario = a_scenario(
        CPU_GPU,
        [a_type("blur", 100, cpu=30, gpu0=10, parallel=True)],
        [("b", "blur", 0)],
        outages=[{"resource": "cpu", "start": 5.0}],
    )

    (task,) = simulate(scenario, "finish-time").tasks

    assert task.state == "completed"
    assert [s.resource for s in task.segments].count("gpu0") > 1
    assert task.finish == pytest.approx(10.0)


def _random_scenario(seed: int, *, parallel: bool, calm: bool = False) -> Scenario:
    """Draw a scenario; in a calm one all tasks are there at the start, and nothing fails."""
    generator = random.Random(seed)
    types = [
        a_type(
            f"type{number}",
            generator.choice([4, 20, 100]),
            parallel=parallel,
            merge_s=generator.choice([0.0, 0.5]),
            state_bytes=generator.choice([0, 1e8]),
            **{
                name: generator.uniform(5, 60)
                for name in generator.sample(["cpu", "gpu0", "fpga0"], 2)
            },
        )
        for number in range(3)
    ]
    tasks = [
        (
            f"t{number}",
            f"type{generator.randrange(3)}",
            0.0 if calm else generator.uniform(0, 60),
        )
        for number in range(generator.randint(1, 6))
    ]
    outages = [
        {"resource": name, "start": start, "finish": start + 5.0, "drain": drain}
        for name in ("cpu", "gpu0")
        for start in [generator.uniform(0, 60)]
        for drain in [generator.random() < 0.5]
    ]
    node = a_node("cpu", "gpu0", "fpga0", link_bytes_per_s=1e9)
    if generator.random() < 0.5:
        node[0]["sharing"], node[0]["slots"] = "processor", 2
    return a_scenario(node, types, tasks, outages=[] if calm else outages)


@pytest.mark.parametrize("seed", range(40))
def test_each_strip_is_done_once(seed: int) -> None:
    scenario = _random_scenario(seed, parallel=True)
    expected = expected_seconds(scenario)
    simulation = Simulation(scenario, make_policy("finish-time", {}), expected)

    def check(*_told: object) -> None:
        simulation.scheduler.check()

    simulation.recorder = check
    simulation.run()

    stretches: dict[Job, list[range]] = {}
    for job in simulation.all_jobs():
        assert job.outcome == "completed"
        assert job.done == job.limit
        stretch = range(job.start, job.limit)
        stretches.setdefault(job.part_of or job, []).append(stretch)
    for whole, parts in stretches.items():
        strips = sorted(strip for part in parts for strip in part)
        assert strips == list(range(whole.strips))


def test_splitting_ends_sooner_and_never_later_if_all_is_known() -> None:
    whole, split = (
        [
            simulate(
                _random_scenario(seed, parallel=parallel, calm=True), "finish-time"
            ).makespan
            for seed in range(40)
        ]
        for parallel in (False, True)
    )

    ratios = [after / before for before, after in zip(whole, split, strict=True)]
    assert sum(ratios) / len(ratios) < 0.95
    assert max(ratios) <= 1.0 + 1e-9
