"""The lower bound: exact where one can see it, and never above a makespan."""

from __future__ import annotations

import math
import random

import pytest

from hetsim.bound import lower_bound_of
from hetsim.lawler_labetoulle import Batch, preemptive_makespan
from hetsim.simulate import simulate
from scenario_builders import a_node, a_scenario, a_type


def test_equal_machines_share_the_work_but_no_task_runs_twice_at_once() -> None:
    assert preemptive_makespan([Batch((4.0, 4.0), 3)], [1, 1]) == pytest.approx(6)
    assert preemptive_makespan([Batch((4.0, 4.0))], [1, 1]) == pytest.approx(4)
    assert preemptive_makespan([Batch((4.0,), 3)], [3]) == pytest.approx(4)


def test_unlike_machines_split_a_task_by_their_speeds() -> None:
    # t on the fast, t on the slow machine: t/2 + t/4 = 2 tasks
    assert preemptive_makespan([Batch((2.0, 4.0), 2)], [1, 1]) == pytest.approx(8 / 3)


def test_arrivals_count() -> None:
    early, late = Batch((2.0,), 1, 0.0), Batch((2.0,), 1, 5.0)

    assert preemptive_makespan([early, late], [1]) == pytest.approx(7)
    assert preemptive_makespan([Batch((2.0,), 4, 0.0), late], [1]) == pytest.approx(10)


def test_what_cannot_run_is_left_out() -> None:
    assert preemptive_makespan([Batch((math.inf,))], [1]) == 0.0


def test_times_beyond_the_solver_leave_a_bound() -> None:
    """HiGHS takes no coefficient of 1e15; what it gets instead only lowers the bound."""
    found = preemptive_makespan([Batch((1e15,)), Batch((1.0, 1e15))], [1, 1])

    assert 1e13 < found <= 1e15


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("policy", ["affinity", "migration", "finish-time"])
def test_no_schedule_is_shorter(policy: str, seed: int) -> None:
    generator = random.Random(seed)
    types = [
        a_type(
            f"t{number}",
            cpu=generator.uniform(1, 20),
            gpu0=generator.uniform(1, 20),
        )
        for number in range(4)
    ]
    tasks = [
        (str(n), f"t{generator.randrange(4)}", generator.uniform(0, 30))
        for n in range(40)
    ]
    scenario = a_scenario(a_node("cpu", "gpu0"), types, tasks)

    assert lower_bound_of(scenario) <= simulate(scenario, policy).makespan
