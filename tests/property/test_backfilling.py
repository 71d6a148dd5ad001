"""Backfilling: no task waits beyond its reservation, and the cores are well used.

Expected times are exact here: reservations are computed from them.
"""

from __future__ import annotations

import random
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.policies import POLICIES, make_policy
from hetsim.scenario import check_scenario
from hetsim.simulation import Simulation
from hetsim.workload import expected_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetsched.ids import Nanoseconds, TaskId
    from hetsim.scenario import Scenario

CORES = 8
SECOND = 1_000_000_000
KEEPS_ORDER = ("affinity", "work-conserving", "migration", "finish-time")
"""Policies that drop no task and let the mechanism order equal ones."""


def a_scenario(tasks: list[tuple[float, float, int]]) -> Scenario:
    """Make a scenario of one CPU from tasks: (arrival, seconds, cores)."""
    lengths = sorted({seconds for _, seconds, _ in tasks})
    document: dict[str, Any] = {
        "format": "hetsim/scenario-1",
        "cores": CORES,
        "resources": [{"name": "cpu", "kind": "cpu", "slots": 64}],
        "types": [{"name": f"t{s:g}", "seconds": {"cpu": s}} for s in lengths],
        "tasks": [
            {"id": number, "type": f"t{seconds:g}", "arrival": at, "cores": cores}
            for number, (at, seconds, cores) in enumerate(tasks)
        ],
    }
    return check_scenario(document)


def run(
    scenario: Scenario, policy: str
) -> tuple[Simulation, dict[TaskId, Nanoseconds]]:
    """Run a scenario; return also the first reservation of each task that had one."""
    reserved: dict[TaskId, Nanoseconds] = {}

    def note(*_: object) -> None:
        simulation.scheduler.check()
        kept = simulation.scheduler.state.needs.reservation()
        if kept is not None:
            reserved.setdefault(kept.task.id, kept.at)

    simulation = Simulation(
        scenario, make_policy(policy, {}), expected_seconds(scenario), recorder=note
    )
    simulation.run()
    return simulation, reserved


TASKS = st.lists(
    st.tuples(
        st.integers(0, 40).map(lambda n: n / 2),
        st.integers(1, 30).map(lambda n: n / 2),
        st.integers(1, CORES),
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.parametrize("policy", KEEPS_ORDER)
@settings(max_examples=150, deadline=None)
@given(tasks=TASKS)
def test_no_task_waits_beyond_the_reservation_that_it_was_given(
    policy: str, tasks: list[tuple[float, float, int]]
) -> None:
    simulation, reserved = run(a_scenario(tasks), policy)

    for job in simulation.jobs:
        assert job.segments, f"task {job.name} never ran"
        if job.id in reserved:
            assert job.segments[0][1] <= reserved[job.id], f"task {job.name} waited"


@pytest.mark.parametrize("policy", list(POLICIES))
@settings(max_examples=25, deadline=None)
@given(tasks=TASKS)
def test_no_more_cores_are_used_than_there_are_and_every_task_runs(
    policy: str, tasks: list[tuple[float, float, int]]
) -> None:
    simulation, _ = run(a_scenario(tasks), policy)

    changes: list[tuple[int, int]] = []
    for job in simulation.jobs:
        assert job.segments
        for _, start, finish in job.segments:
            cores = job.needs.cores if job.needs else 0
            changes += [(start, cores), (finish, -cores)]
    used = 0
    for _, change in sorted(changes):
        used += change
        assert used <= CORES


ORDERS: dict[str, Callable[[tuple[float, float, int]], float]] = {
    "first come": lambda task: task[0],
    "most cores": lambda task: -task[2],
    "longest": lambda task: -task[1],
    "largest": lambda task: -task[1] * task[2],
}


def oracle_use(tasks: list[tuple[float, float, int]], until: float) -> float:
    """Return the cores' use, 0 to 1, of the best of several list schedules.

    The oracle knows all times, and which order turns out best for these tasks.
    """
    return max(_use_of_list(tasks, until, order) for order in ORDERS.values())


def _use_of_list(
    tasks: list[tuple[float, float, int]],
    until: float,
    order: Callable[[tuple[float, float, int]], float],
) -> float:
    """Return the use by a list schedule (Graham, 1969) without reservations.

    Whenever a task arrives or ends, every waiting task that fits starts, in this order.
    """
    waiting: list[tuple[float, float, int]] = []
    ends: list[tuple[float, int]] = []
    arrivals = sorted(tasks, key=lambda task: task[0])
    free, spent, now = CORES, 0.0, 0.0
    while now < until:
        while arrivals and arrivals[0][0] <= now:
            waiting.append(arrivals.pop(0))
        waiting.sort(key=order)
        for task in list(waiting):
            _, seconds, cores = task
            if cores <= free:
                waiting.remove(task)
                free -= cores
                heappush(ends, (now + seconds, cores))
                spent += cores * (min(now + seconds, until) - now)
        instants = [ends[0][0]] if ends else []
        instants += [arrivals[0][0]] if arrivals else []
        now = min(instants, default=until)
        while ends and ends[0][0] <= now:
            free += heappop(ends)[1]
    return spent / (CORES * until)


def test_the_cores_use_is_within_5_percent_of_an_oracle_list_schedule() -> None:
    ratios = []
    for seed in range(10):
        draw = random.Random(seed)
        tasks, at = [], 0.0
        for _ in range(300):  # about 1.2 times what the cores can do
            at += draw.expovariate(1 / 3.0)
            cores = draw.choice([1, 1, 1, 2, 2, 4, 8])
            tasks.append((round(at, 3), round(draw.uniform(2, 18), 1), cores))
        until = tasks[-1][0]
        simulation, _ = run(a_scenario(tasks), "finish-time")
        spent = sum(
            job.needs.cores * (min(finish / SECOND, until) - start / SECOND)
            for job in simulation.jobs
            if job.needs
            for _, start, finish in job.segments
            if start / SECOND < until
        )
        ratios.append(spent / (CORES * until) / oracle_use(tasks, until))

    assert sum(ratios) / len(ratios) >= 0.95, ratios
