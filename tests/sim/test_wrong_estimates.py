"""Expected times that are wrong: what strips correct, and what that is worth."""

from __future__ import annotations

from statistics import mean

import pytest
from msgspec.structs import replace

from hetpapers.loesch_2016.task_sets import COUNTS, DELAYS, cases
from hetpapers.loesch_2016.wrong_estimates import growth
from hetsim.simulate import simulate
from scenario_builders import a_node, a_scenario, a_type

DRAWS = 2


@pytest.mark.timeout(240)  # 45 schedules
@pytest.mark.parametrize("task_set", COUNTS)
def test_errors_of_30_percent_cost_finish_time_5_percent_at_most(task_set: str) -> None:
    found = [
        growth(case, DRAWS, correct=True)
        for delay in DELAYS
        for case in cases(task_set, delay, 1)
    ]

    assert mean(found) <= 5.0


def test_strips_correct_what_is_expected_of_a_resource() -> None:
    # the GPU is expected to be the quicker one; its first strips show that it is not
    scenario = a_scenario(
        a_node("cpu", "gpu0"),
        [a_type("g", cpu=20, gpu0=10, strips=100)],
        [("g1", "g", 0), ("g2", "g", 0)],
    )
    really = {"cpu": 20.0, "gpu0": 60.0}
    tasks = [replace(task, actual_seconds=really) for task in scenario.tasks]
    scenario = replace(scenario, tasks=tasks)

    blind = simulate(scenario, "finish-time")
    corrected = simulate(scenario, "finish-time", correct=True)

    assert blind.makespan == 60.0
    assert corrected.makespan < 35.0  # both on the CPU from the start: 40
