"""Tasks that share memory and links slow each other down; cases worked by hand."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from hetsched import events as e
from hetsched.policies import make_policy
from hetsim.scenario import SharedModel, check_scenario
from hetsim.simulate import simulate
from hetsim.simulation import Simulation
from hetsim.workload import expected_seconds
from libtask.errors import InputError
from sim.test_policies import a_rough_scenario

if TYPE_CHECKING:
    from hetsim.scenario import Scenario


def a_type(name: str, strips: int = 1, **fields: Any) -> dict[str, Any]:
    """Make a type of 10 s: 0.8 of demand on memory, which half of its time depends on."""
    return {
        "name": name,
        "seconds": {"cpu": 10.0},
        "strips": strips,
        "load": {"cpu": {"mem": 0.8}},
        "bound": {"cpu": {"mem": 0.5}},
        **fields,
    }


def a_node(tasks: list[dict[str, Any]], **keys: Any) -> Scenario:
    document = {
        "format": "hetsim/scenario-1",
        "resources": [
            {"name": "cpu", "slots": 2, "uses": {"memory": "mem"}},
            {"name": "gpu0", "uses": {"link": "pcie"}},
        ],
        "shared": [
            {"name": "mem", "kind": "memory"},
            {"name": "pcie", "kind": "link", "bytes_per_s": 100.0},
        ],
        "types": [a_type("t")],
        "tasks": tasks,
    }
    return check_scenario(document | keys)


def finishes(scenario: Scenario, seed: int = 0) -> dict[str | int, float | None]:
    result = simulate(scenario, "affinity", seed=seed)
    return {task.id: task.finish for task in result.tasks}


def test_a_task_alone_takes_its_time() -> None:
    scenario = a_node([{"id": "a", "type": "t"}])

    assert finishes(scenario) == {"a": 10.0}


@pytest.mark.parametrize(
    ("law", "factor"),
    [
        ("max", 0.5 + 0.5 * 1.6),
        ("queue", 0.5 + 0.5 * (1.0 + 1.3 * 1.1)),
        ("thrash", 0.5 + 0.5 * 1.6**1.6),
    ],
)
def test_two_tasks_slow_each_other_down_by_the_law(law: str, factor: float) -> None:
    tasks = [{"id": "a", "type": "t"}, {"id": "b", "type": "t"}]
    scenario = a_node(tasks, contention={"law": law})

    ends = finishes(scenario)

    assert ends["a"] == ends["b"] == pytest.approx(10.0 * factor, abs=1e-6)


@pytest.mark.parametrize("policy", ["affinity", "migration", "finish-time", "elare"])
def test_what_no_task_loads_changes_nothing(policy: str) -> None:
    scenario = a_rough_scenario(random.Random(3))
    shared = [SharedModel("mem", "memory")]

    plain = simulate(scenario, policy, noise=0.3, seed=1)
    beside = simulate(
        msgspec.structs.replace(scenario, shared=shared), policy, noise=0.3, seed=1
    )

    assert msgspec.structs.replace(beside, simulation_seconds=0.0) == (
        msgspec.structs.replace(plain, simulation_seconds=0.0)
    )


def test_rates_change_when_a_task_comes_and_goes() -> None:
    """Alone for 5 s, then both at 1 / 1.3, then the second alone again."""
    tasks: list[dict[str, Any]] = [
        {"id": "a", "type": "t"},
        {"id": "b", "type": "t", "arrival": 5.0},
    ]

    ends = finishes(a_node(tasks))

    assert ends["a"] == pytest.approx(5.0 + 5.0 * 1.3, abs=1e-6)
    assert ends["b"] == pytest.approx(5.0 + 5.0 * 1.3 + 5.0, abs=1e-6)


def test_other_programs_slow_a_task_down_while_they_run() -> None:
    """Load 0.8 + 1.2 from 2 s to 5 s: the factor is 1.5, so 2 s of work are done by then."""
    background = [{"shared": "mem", "steps": [[2.0, 1.2], [5.0, 0.0]]}]
    scenario = a_node([{"id": "a", "type": "t"}], background=background)

    assert finishes(scenario)["a"] == pytest.approx(11.0, abs=1e-6)


def test_inputs_cross_the_link_and_are_a_part_of_the_tasks_time() -> None:
    """200 bytes at 100 a second are 2 s, all bound to the link: loaded twice, they are 4."""
    gpu: dict[str, Any] = {"name": "u", "seconds": {"gpu0": 3.0}}
    types = [a_type("t", output_bytes=200), gpu]
    tasks: list[dict[str, Any]] = [
        {"id": "a", "type": "t"},
        {"id": "b", "type": "u", "inputs": [{"from": "a"}]},
    ]

    free = finishes(a_node(tasks, types=types))
    busy = finishes(
        a_node(
            tasks,
            types=types,
            background=[{"shared": "pcie", "steps": [[0.0, 1.6]]}],
        )
    )

    assert free["b"] == pytest.approx(10.0 + 3.0 + 2.0, abs=1e-6)
    # the load is 1.6 + 2 / 5 of demand: 2 s of the 5 take twice as long
    assert busy["b"] == pytest.approx(10.0 + 3.0 + 2.0 * 2.0, abs=1e-6)


def test_progress_is_reported_at_the_true_rate() -> None:
    background = [{"shared": "mem", "steps": [[0.0, 1.2]]}]
    scenario = a_node(
        [{"id": "a", "type": "t"}],
        types=[a_type("t", strips=10)],
        background=background,
    )
    seen: list[e.StripsDone] = []
    simulation = Simulation(
        scenario,
        make_policy("affinity", {}),
        expected_seconds(scenario),
        recorder=lambda events, _now, _actions: seen.extend(
            event for event in events if isinstance(event, e.StripsDone)
        ),
    )

    simulation.run()

    assert [report.progress for report in seen] == [0.2, 0.4, 0.6, 0.8]
    assert [report.seconds for report in seen] == pytest.approx([3.0] * 4)


def test_a_preempted_task_goes_on_where_it_stopped() -> None:
    """It stops at the checkpoint of 3 s, and does the other 70 % in 14 s elsewhere."""
    scenario = a_node(
        [{"id": "a", "type": "t"}],
        types=[a_type("t", strips=10, seconds={"cpu": 10.0, "gpu0": 20.0})],
        outages=[{"resource": "cpu", "start": 2.5, "drain": True}],
    )

    assert finishes(scenario)["a"] == pytest.approx(17.0, abs=1e-6)


DRAWN = {"levels": [0.0, 1.5], "weights": [0.5, 0.5], "mean_s": 4.0}


def test_what_is_drawn_depends_on_the_seed_alone() -> None:
    tasks = [{"id": number, "type": "t"} for number in range(6)]
    scenario = a_node(tasks, background=DRAWN, counters={})

    first, second, other = (finishes(scenario, seed) for seed in (1, 1, 2))

    assert first == second
    assert first != other


def test_counters_show_the_load_with_noise_and_gaps() -> None:
    scenario = a_node(
        [{"id": "a", "type": "t"}],
        background=[{"shared": "mem", "steps": [[0.0, 1.2]]}],
        counters={"samples": 50, "missing": 0.3, "every_s": 0.05},
    )
    seen: list[e.CounterReading] = []
    simulation = Simulation(
        scenario,
        make_policy("affinity", {}),
        expected_seconds(scenario),
        recorder=lambda events, _now, _actions: seen.extend(
            reading
            for event in events
            if isinstance(event, e.CountersRead)
            for reading in event.readings
        ),
    )

    simulation.run()

    stalls = [x.mean for x in seen if (x.shared, x.counter) == ("mem", "stall")]
    assert sum(stalls) / len(stalls) == pytest.approx(0.5, abs=0.01)
    assert len(seen) == pytest.approx(0.7 * 4 * 300, rel=0.1)


def test_the_simulation_ends_though_its_tasks_never_run() -> None:
    scenario = a_node(
        [{"id": "a", "type": "t"}],
        background=DRAWN,
        counters={},
        outages=[{"resource": "cpu", "start": 0.0, "drain": True}],
    )

    assert finishes(scenario) == {"a": None}


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        (
            {"resources": [{"name": "cpu", "uses": {"memory": "none"}}]},
            r'resources\[0\].uses.memory: no shared resource "none"',
        ),
        (
            {"resources": [{"name": "cpu", "uses": {"memory": "pcie"}}]},
            r'resources\[0\].uses.memory: "pcie" is of kind "link"',
        ),
        (
            {
                "resources": [
                    {
                        "name": "cpu",
                        "sharing": "processor",
                        "uses": {"memory": "mem"},
                    }
                ]
            },
            r'resources\[0\].sharing: not with "uses"',
        ),
        (
            {"types": [a_type("t", load={"cpu": {"what": 1.0}})]},
            r'types\[0\].load.cpu: no shared resource "what"',
        ),
        (
            {"types": [a_type("t", bound={"cpu": {"mem": 1.7}})]},
            r"types\[0\].bound.cpu.*: expected a number <= 1.0",
        ),
        (
            {"background": [{"shared": "none", "steps": []}]},
            r'background\[0\].shared: no shared resource "none"',
        ),
        (
            {"background": {"levels": [0.0], "weights": [0.5, 0.5]}},
            r"background.weights: expected one for each level",
        ),
        (
            {"background": {"levels": [0.0], "weights": [0.0]}},
            r"background.weights: all are 0",
        ),
        (
            {"counters": {"noise": {"heat": 0.1}}},
            r'counters.noise: no counter "heat"',
        ),
    ],
)
def test_nonsense_is_refused(keys: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        a_node([], **keys)
