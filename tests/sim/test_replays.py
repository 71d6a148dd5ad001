"""Recorded runs replay alike under every policy that a node offers.

A modelled node takes the place of a real one: its tasks arrive apart, take other times than
expected, move, and need time before their first strip. What a node would report of them is
written as `hetctl trace` writes it, and simulated again.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, cast

import pytest

from hetctl.export.scenario import ScenarioWriter
from hetsched.policies import POLICIES
from hetsim.scenario import check_scenario
from hetsim.simulate import simulate
from libtask import messages as m
from scenario_builders import a_node, a_scenario, a_type

if TYPE_CHECKING:
    from hetsim.result import Result
    from hetsim.scenario import Scenario, TaskModel

EPOCH = 1_000_000_000.0
KINDS: dict[str, m.Kind] = {"cpu": "cpu", "gpu0": "gpu", "fpga0": "fpga"}
TASKS = 12
APART_S = 0.05


def a_run(seed: int) -> Scenario:
    """Make tasks that arrive apart, so that batches are planned beside running ones."""
    chance = random.Random(seed)
    types = [
        a_type(
            f"app{number}/1",
            strips=chance.choice([4, 20, 40]),
            spread=dict.fromkeys(KINDS, 0.1),
            cpu=chance.uniform(0.3, 2.0),
            gpu0=chance.uniform(0.1, 1.0),
            fpga0=chance.uniform(0.1, 1.0),
        )
        for number in range(3)
    ]
    tasks = [_a_task(number, chance.choice(types), chance) for number in range(TASKS)]
    return a_scenario(
        a_node("cpu", slots=2) + a_node("gpu0", "fpga0"), types, tasks, report_s=0.1
    )


def _a_task(number: int, kind: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    arrival = round(number * APART_S + chance.uniform(0.0, 0.03), 6)
    slower = chance.uniform(0.8, 1.3)
    return {
        "id": number + 1,
        "type": kind["name"],
        "arrival": arrival,
        "deadline": arrival + chance.uniform(2.0, 9.0) if number % 3 == 0 else None,
        "set_up_s": chance.choice([0.0, 0.02, 0.4]),
        "actual_seconds": {n: slower * kind["seconds"][n] for n in KINDS},
    }


def recorded(scenario: Scenario, ran: Result) -> list[m.TaskInfo]:
    """List the tasks as a node reports them."""
    kinds = {kind.name: kind for kind in scenario.types}
    return [
        m.TaskInfo(
            id=int(task.id),
            app=task.type.partition("/")[0],
            type=task.type,
            state=cast("m.TaskState", what.state),
            owner="uid:0",
            submitted=EPOCH + (task.arrival or 0.0),
            deadline=None if task.deadline is None else EPOCH + task.deadline,
            finished=None if what.finish is None else EPOCH + what.finish,
            segments=_segments(what, task, kinds[task.type].strips),
            kinds=["cpu", "gpu", "fpga"],
            expected={
                n: s for n, s in kinds[task.type].seconds.items() if s is not None
            },
            spread=kinds[task.type].spread,
        )
        for task, what in zip(scenario.tasks, ran.tasks, strict=True)
    ]


def _segments(what: Any, task: TaskModel, strips: int) -> list[m.Segment]:
    """List stretches as they are reported: the first one begins before its first strip."""
    whole = task.actual_seconds or {}
    segments = []
    for index, segment in enumerate(what.segments):
        share = (segment.finish - segment.start) / (whole[segment.resource] or 1.0)
        set_up = (task.set_up_s or 0.0) if index == 0 else 0.0
        segments.append(
            m.Segment(
                segment.resource,
                EPOCH + segment.start - set_up,
                EPOCH + segment.finish,
                strips=round(strips * share),
                computed=EPOCH + segment.finish,
                set_up=set_up,
            )
        )
    return segments


def traced(scenario: Scenario, ran: Result, policy: str) -> Scenario:
    devices = [
        m.DeviceInfo(
            m.DeviceSpec(each.name, KINDS[each.name], "null"), slots=each.slots
        )
        for each in scenario.resources
    ]
    writer = ScenarioWriter(devices, [], m.PolicyInfo(0, policy, {}, {}))
    return check_scenario(writer.document(recorded(scenario, ran)))


def places(ran: Result) -> list[list[str]]:
    return [[segment.resource for segment in task.segments] for task in ran.tasks]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_recorded_run_takes_the_same_places(policy: str) -> None:
    for seed in range(3):
        scenario = a_run(seed)
        ran = simulate(scenario, policy)

        again = simulate(traced(scenario, ran, policy), policy)

        assert places(again) == places(ran), seed
        assert again.makespan == pytest.approx(ran.makespan, rel=1e-3)
