"""Applications that crash on a resource, under every policy."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from hetsched import actions as a
from hetsched import events as e
from hetsched.policies import POLICIES, make_policy
from hetsched.system import SECOND
from hetsim.simulate import simulate
from hetsim.simulation import Simulation
from hetsim.workload import expected_seconds
from libtask.errors import InputError
from scenario_builders import a_node, a_scenario, a_type, run_trace

if TYPE_CHECKING:
    from hetsched.actions import Action
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsim.scenario import Scenario

CRASH = {"type": "blur/1", "resource": "gpu0", "after": 0.5}


def _mixed(**crash: Any) -> Scenario:
    """Make a scenario in which one of two applications crashes where it fits best."""
    types = [a_type("blur/1", cpu=4.0, gpu0=1.0), a_type("heat/1", cpu=4.0, gpu0=2.0)]
    tasks = [(f"b{n}", "blur/1", 8.0 * n) for n in range(30)]
    tasks += [(f"h{n}", "heat/1", 8.0 * n + 1.0) for n in range(30)]
    node = a_node("cpu", "gpu0", slots=1)
    return a_scenario(node, types, tasks, crashes=[{**CRASH, **crash}])


def _followed(
    scenario: Scenario, policy: str
) -> list[tuple[float, list[Event], list[Action]]]:
    steps: list[tuple[float, list[Event], list[Action]]] = []

    def note(events: list[Event], now: Nanoseconds, actions: list[Action]) -> None:
        steps.append((now / SECOND, events, actions))

    decider = make_policy(policy, {})
    Simulation(scenario, decider, expected_seconds(scenario), recorder=note).run()
    return steps


@pytest.mark.parametrize("policy", POLICIES)
def test_what_crashes_on_one_resource_completes_on_another(policy: str) -> None:
    result = simulate(_mixed(), policy)

    assert result.counts["completed"] == len(result.tasks)
    ran = {
        task.id: {segment.resource for segment in task.segments}
        for task in result.tasks
    }
    assert all(ran[f"b{n}"] == {"cpu"} for n in range(30))
    assert any(ran[f"h{n}"] == {"gpu0"} for n in range(30)), "its fault is not theirs"


@pytest.mark.parametrize("policy", POLICIES)
def test_it_is_tried_by_single_tasks_less_and_less_often(policy: str) -> None:
    steps = _followed(_mixed(), policy)

    crashed = [at for at, events, _ in steps if any(map(_is_loss, events))]
    pauses = [after - before for before, after in pairwise(crashed)]
    assert len(crashed) <= 3, "within four minutes, at 60 s and 180 s"
    assert all(pause >= 60.0 * 2**n for n, pause in enumerate(pauses))


def _is_loss(event: Event) -> bool:
    return isinstance(event, e.WorkerLost)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_resource_that_works_again_is_used_again(policy: str) -> None:
    # more than the CPU can do, so that every policy wants the GPU
    types = [a_type("blur/1", cpu=4.0, gpu0=1.0)]
    tasks = [(f"b{n}", "blur/1", 2.0 * n) for n in range(60)]
    crash = {**CRASH, "finish": 30.0}
    scenario = a_scenario(a_node("cpu", "gpu0"), types, tasks, crashes=[crash])

    steps = _followed(scenario, policy)

    closed = [
        at
        for at, _, actions in steps
        for action in actions
        if isinstance(action, a.KeepCircuit) and action.circuit is None
    ]
    assert len(closed) == 1
    assert closed[0] > 60.0


@pytest.mark.parametrize("policy", POLICIES)
def test_what_crashes_everywhere_fails_soon(policy: str) -> None:
    node = a_node("cpu", "gpu0")
    types = [a_type("blur/1", cpu=4.0, gpu0=1.0)]
    crashes = [{**CRASH, "resource": name} for name in ("cpu", "gpu0")]
    tasks = [(f"b{n}", "blur/1", 0.0) for n in range(6)]

    result = simulate(a_scenario(node, types, tasks, crashes=crashes), policy)

    assert result.counts["failed"] == 6
    assert all(not task.segments for task in result.tasks)


def test_a_crash_is_no_stretch_and_no_migration() -> None:
    types = [a_type("blur/1", cpu=4.0, gpu0=1.0)]
    scenario = a_scenario(
        a_node("cpu", "gpu0"), types, [("b", "blur/1", 0.0)], crashes=[CRASH]
    )

    assert run_trace(scenario, "affinity") == {"b": "cpu 0.5-4.5"}
    assert simulate(scenario, "affinity").tasks[0].migrations == 0


@pytest.mark.parametrize(("key", "name"), [("type", "nosuch"), ("resource", "gpu9")])
def test_a_crash_of_something_unknown_is_refused(key: str, name: str) -> None:
    with pytest.raises(InputError, match=rf"crashes\[0\].{key}: no {key} \"{name}\""):
        _mixed(**{key: name})
