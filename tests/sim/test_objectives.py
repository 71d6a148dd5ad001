"""Objectives: affinity by time, energy and their product; and when idling pays."""

from __future__ import annotations

import pytest

from builders import Harness, a_task
from hetsched.policies import make_policy
from hetsched.system import Resource
from hetsim.simulate import simulate
from libtask.errors import InputError
from scenario_builders import a_scenario, a_type

NODE = [
    {"name": "cpu", "kind": "cpu", "busy_watts": 90.0, "idle_watts": 30.0},
    {"name": "gpu0", "kind": "gpu", "busy_watts": 120.0, "idle_watts": 15.0},
    {"name": "fpga0", "kind": "fpga", "busy_watts": 25.0, "idle_watts": 15.0},
]
RESOURCES = [
    Resource(str(each["name"]), str(each["kind"]), busy_watts=watts)
    for each, watts in zip(NODE, (90.0, 120.0, 25.0), strict=True)
]
SECONDS = {"heat/64": {"cpu": 10.0, "gpu0": 2.0, "fpga0": 5.0}}


@pytest.mark.parametrize(
    ("objective", "affinities"),
    [
        ("performance", {"cpu": 2 / 10, "gpu0": 1.0, "fpga0": 2 / 5}),
        # 900, 240 and 125 J
        ("energy", {"cpu": 125 / 900, "gpu0": 125 / 240, "fpga0": 1.0}),
        # 9000, 480 and 625 Js
        ("edp", {"cpu": 480 / 9000, "gpu0": 1.0, "fpga0": 480 / 625}),
    ],
)
@pytest.mark.parametrize("policy", ["affinity", "work-conserving", "migration"])
def test_affinity_takes_the_form_of_the_objective(
    policy: str, objective: str, affinities: dict[str, float]
) -> None:
    harness = Harness(RESOURCES, SECONDS, policy, objective=objective)
    harness.handle(a_task(1, "heat/64"))
    system = harness.scheduler.system
    task = system.tasks[a_task(1).task]

    assert system.affinities(task.row) == pytest.approx(affinities)
    assert task.resource == max(affinities, key=affinities.__getitem__)
    assert system.seconds(task.row, "gpu0") == 2.0
    assert system.energy(task.row, "gpu0") == 240.0


def test_a_new_policy_brings_its_own_objective() -> None:
    harness = Harness(RESOURCES, SECONDS, "affinity", objective="energy")
    harness.handle(a_task(1, "heat/64", hold=True))

    harness.change_policy(make_policy("finish-time", {}))

    row = harness.scheduler.system.tasks[a_task(1).task].row
    assert harness.scheduler.system.best(row) == "gpu0"


def test_without_figures_of_power_energy_goes_with_time() -> None:
    bare = [Resource("cpu", "cpu"), Resource("gpu0", "gpu")]
    harness = Harness(bare, SECONDS, objective="energy")
    harness.handle(a_task(1, "heat/64"))

    row = harness.scheduler.system.tasks[a_task(1).task].row
    assert harness.scheduler.system.affinity(row, "cpu") == pytest.approx(0.2)


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(InputError, match="speed"):
        make_policy("migration", {"objective": "speed"})


def joules_and_makespan(
    cpu_seconds: float, least_affinity: float
) -> tuple[float, float]:
    """Run ten tasks of 4 s on the GPU under `work-conserving`, for energy."""
    scenario = a_scenario(
        NODE,
        [a_type("heat/64", cpu=cpu_seconds, gpu0=4.0)],
        [(f"t{number}", "heat/64", 0.0) for number in range(10)],
    )
    parameters = {"objective": "energy", "least_affinity": least_affinity}
    result = simulate(scenario, "work-conserving", parameters)
    return round(result.energy.total), result.makespan


@pytest.mark.parametrize(
    ("cpu_seconds", "working"),
    [
        # affinity 480 J / 1440 J = 0.33: sooner done, with more energy
        (16.0, (7200, 32.0)),
        # affinity 480 J / 2160 J = 0.22: what the CPU takes ends last, too
        (24.0, (9120, 48.0)),
    ],
)
def test_leaving_a_resource_idle_pays_where_it_fits_badly(
    cpu_seconds: float, working: tuple[float, float]
) -> None:
    assert joules_and_makespan(cpu_seconds, 0.0) == working
    assert joules_and_makespan(cpu_seconds, 0.4) == (6600, 40.0)


def test_leaving_a_resource_idle_does_not_pay_where_it_fits_well() -> None:
    # 4 s x 120 W on the GPU against 6 s x 90 W on the CPU: affinity 0.89
    working = joules_and_makespan(6.0, 0.3)
    idling = joules_and_makespan(6.0, 0.9)

    assert working[0] < idling[0]
    assert working[1] < idling[1]
    assert idling == (6600, 40.0)
