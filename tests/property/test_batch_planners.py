"""Every plan can be carried out, no bound is above the best, the guarantees hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_builders import (
    a_problem,
    best_computing,
    best_overlapped,
    best_transfers,
    problems,
    seconds_matrices,
)
from hetsched.planning.batch.baselines import _Growth
from hetsched.planning.batch.executor import carry_out, carry_out_again, faults
from hetsched.planning.batch.flow_shop import shortest_transfer_first, span
from hetsched.planning.batch.planners import (
    PLANNERS,
    ComputationIntensive,
    Joint,
    NetworkIntensive,
    Planner,
    TransmissionFirst,
    bounded,
)
from hetsched.planning.batch.problem import Problem, Promise

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats

FEW = settings(max_examples=80, deadline=None)
MORE = settings(max_examples=150, deadline=None)

VARIANTS: dict[str, Planner] = {
    **{name: kind() for name, kind in PLANNERS.items()},
    "mttf-lp, ours": TransmissionFirst(way="prices", improve=True, order="johnson"),
    "cim, paper": ComputationIntensive(way="rounding", improve=False),
    "nim, groups": NetworkIntensive(groups=3, residual=False),
    "ncjm, paper": Joint(way="rounding", improve=False, search=False),
}


@pytest.mark.parametrize("name", VARIANTS)
@FEW
@given(problem=problems())
def test_every_plan_can_be_carried_out(name: str, problem: Problem) -> None:
    plan = bounded(VARIANTS[name], problem)

    assert faults(problem, plan) == []
    assert plan.bound <= plan.makespan * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("name", ["sct", "mmi", "sjf", "ljf", "nim", "ncjm"])
@FEW
@given(problem=problems(), rate=st.floats(0.1, 0.9), finish=st.floats(0.5, 5))
def test_earlier_promises_are_kept(
    name: str, problem: Problem, rate: float, finish: float
) -> None:
    width = min(problem.links.ingress[0], problem.links.egress[0])
    if not np.isfinite(width):
        return
    promise = Promise(0, 0, 0.0, finish, rate * float(width))
    links = type(problem.links)(problem.links.ingress, problem.links.egress, (promise,))
    busy = Problem(
        problem.seconds,
        problem.sizes,
        problem.requesters,
        problem.responders,
        problem.free_at,
        links,
    )

    assert faults(busy, PLANNERS[name]().plan(busy)) == []


@MORE
@given(seconds=seconds_matrices(), data=st.data())
def test_computing_plans_keep_their_guarantee(
    seconds: Floats, data: st.DataObject
) -> None:
    free_at = [data.draw(st.sampled_from([0.0, 0.0, 1.0, 4.0])) for _ in seconds[0]]
    problem = a_problem(seconds, free_at=free_at)
    best = best_computing(problem)

    for planner in (
        ComputationIntensive(),
        ComputationIntensive(way="rounding", improve=False),
        ComputationIntensive(way="rounding", improve=False, solver="bisection"),
    ):
        plan = planner.plan(problem)

        assert plan.bound <= best * (1 + 1e-6) + 1e-9
        assert plan.makespan <= 2 * best * (1 + 2e-3) + 1e-9


@FEW
@given(seconds=seconds_matrices(most_jobs=5), data=st.data())
def test_transmission_first_is_within_four_times_the_best(
    seconds: Floats, data: st.DataObject
) -> None:
    jobs, machines = seconds.shape
    problem = a_problem(
        seconds,
        sizes=[data.draw(st.sampled_from([1.0, 2.0, 5.0])) for _ in range(jobs)],
        ingress=[data.draw(st.sampled_from([1.0, 2.0])) for _ in range(machines)],
    )
    best = best_overlapped(problem)

    for planner in (TransmissionFirst(), TransmissionFirst(way="prices", improve=True)):
        plan = bounded(planner, problem)

        assert plan.bound <= best * (1 + 1e-6)
        assert plan.makespan <= 4 * best * (1 + 1e-6)


@FEW
@given(data=st.data())
def test_transfers_are_within_twice_the_best(data: st.DataObject) -> None:
    jobs, hosts = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 3))
    rates = st.sampled_from([1.0, 1.5, 2.0, 6.0])
    problem = a_problem(
        np.zeros((jobs, hosts)),
        sizes=[data.draw(st.sampled_from([1.0, 2.0, 5.0])) for _ in range(jobs)],
        requesters=[data.draw(st.integers(0, 2)) for _ in range(jobs)],
        ingress=[data.draw(rates) for _ in range(hosts)],
        egress=[data.draw(rates) for _ in range(3)],
    )
    best = best_transfers(problem)

    for planner in (
        NetworkIntensive(),
        NetworkIntensive(way="rounding", improve=False),
    ):
        plan = bounded(planner, problem)

        assert plan.bound <= best * (1 + 1e-6)
        assert plan.makespan <= 2 * best * (1 + 2e-3)


@MORE
@given(problem=problems())
def test_growth_knows_the_end_of_each_responder(problem: Problem) -> None:
    growth = _Growth(problem)
    for _ in range(problem.jobs):
        job, machine = growth.least()
        expected = growth.done[job, machine]
        growth.give(job, machine)
        mine = np.array(growth.given[machine])
        sent = growth.transfers[mine, machine]
        order = shortest_transfer_first(sent)
        computed = problem.seconds[mine, machine]
        shop = span(sent[order], computed[order])

        assert expected == pytest.approx(
            max(shop, problem.free_at[machine] + computed.sum())
        )


@FEW
@given(problem=problems(), factor=st.floats(0.5, 2.0))
def test_plans_are_carried_out_with_other_times(
    problem: Problem, factor: float
) -> None:
    plan = bounded(Joint(), problem)
    slower = Problem(
        problem.seconds * factor,
        problem.sizes,
        problem.requesters,
        problem.responders,
        problem.free_at,
        problem.links,
    )

    again = carry_out_again(slower, plan)

    assert faults(slower, again) == []
    assert (again.accelerators == plan.accelerators).all()


def test_the_executor_names_what_is_wrong() -> None:
    problem = a_problem(
        [[1.0], [1.0]], sizes=[1.0, 1.0], ingress=[1.0], requesters=[0, 0]
    )
    plan = carry_out(problem, np.array([0, 0]), np.array([0, 1]))
    assert faults(problem, plan) == []

    plan.transfers[1] = np.array([[0.0, 1.0, 1.0]])
    assert faults(problem, plan) == [
        "responder 0: 2.0 is transferred at once, it carries 1.0"
    ]
    plan.transfers[1] = np.array([[1.0, 1.5, 1.0]])
    assert faults(problem, plan) == ["job 1: 0.5 of 1.0 are transferred"]
    plan.transfers[1] = np.array([[1.0, 2.5, 1 / 1.5]])
    assert faults(problem, plan) == [
        "job 1: starts at 2.0 s, its data is there at 2.5 s"
    ]
    plan.transfers[1] = np.array([[1.0, 2.0, 1.0]])
    plan.starts[1], plan.finishes[1] = 1.5, 2.5
    assert faults(problem, plan) == [
        "job 1: starts at 1.5 s, its data is there at 2.0 s",
        "job 1: starts while accelerator 0 is busy",
    ]
