"""The bound found directly is the one that bisection finds; forests and rounding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from batch_builders import a_problem, seconds_matrices
from hetsched.planning.batch.assignment import Effort, assign
from hetsched.planning.batch.bisection import bisect
from hetsched.planning.batch.bounds import lower_bound
from hetsched.planning.batch.executor import faults
from hetsched.planning.batch.flow_shop import johnson, shortest_transfer_first, span
from hetsched.planning.batch.forest import cancelled, pseudo_forest
from hetsched.planning.batch.greedy import finish_of
from hetsched.planning.batch.joint import critical_first, johnson_first
from hetsched.planning.batch.planners import (
    ComputationIntensive,
    Joint,
    NetworkIntensive,
    ShortestJobFirst,
    TransmissionFirst,
    bounded,
)
from hetsched.planning.batch.problem import Promise
from hetsched.planning.batch.profile import Profile, end_through
from hetsched.planning.batch.relaxation import relax
from hetsched.planning.batch.rounding import round_split
from hetsched.planning.batch.splitting import Split


def a_matrix(jobs: int, machines: int, per: str, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    shape = (jobs, machines) if per == "pair" else (1, machines)
    sizes = random.exponential(0.2, (jobs, 1))
    return np.asarray(sizes * random.uniform(0.8, 1.2, shape))


@pytest.mark.parametrize("per", ["pair", "machine"])
@pytest.mark.parametrize(("jobs", "machines"), [(60, 5), (120, 12), (60, 30)])
def test_direct_and_bisected_bounds_agree(per: str, jobs: int, machines: int) -> None:
    seconds = a_matrix(jobs, machines, per)
    for free_at in (np.zeros(machines), np.linspace(0, 3, machines)):
        direct = relax(seconds, free_at)
        reference = bisect(seconds, free_at, accuracy=2e-4)

        assert reference.finished
        assert direct.time <= direct.bound * (1 + 1e-3)
        assert direct.bound <= reference.high * (1 + 1e-6)
        assert direct.time >= reference.low * (1 - 1e-6)


def test_the_bound_reaches_the_time_at_which_jobs_fit_on_further_machines() -> None:
    # before 4 all three fit on the second machine only, and take 9 there
    seconds = np.array([[3, 3, np.inf], [3, 3, np.inf], [np.inf, 3, 3]])
    free_at = np.array([1.0, 0.0, 1.0])

    relaxed = relax(seconds, free_at)

    assert (relaxed.bound, relaxed.time) == pytest.approx((4, 4), rel=1e-6)
    for effort in (
        Effort("rounding", improve=False),
        Effort("rounding", improve=False, solver="bisection"),
    ):
        assert assign(seconds, free_at, effort).time == pytest.approx(4)


def steps_matrix(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Make a problem in which jobs fit on further machines at many times, close together."""
    random = np.random.default_rng(seed)
    jobs, machines = random.integers((2, 2), (20, 12))
    unit = 10.0 ** -random.integers(1, 6)
    seconds = 3 + unit * random.integers(0, 30, (jobs, machines))
    seconds[random.random(seconds.shape) < random.uniform(0, 0.7)] = np.inf
    seconds[np.isinf(seconds).all(axis=1), random.integers(machines)] = 3.0
    return seconds, random.choice([0.0, 0.0, 1.0, 1.001, 1.01, 4.0], machines)


@pytest.mark.parametrize(
    "effort",
    [
        Effort(),
        Effort("rounding", improve=False),
        Effort("rounding", improve=False, most=False),
        Effort("rounding", improve=False, solver="bisection"),
    ],
)
def test_the_guarantee_holds_where_the_bound_is_not_sharp(effort: Effort) -> None:
    problems = [steps_matrix(seed) for seed in range(120)]
    vague = [each for each in problems if not relax(*each).is_sharp]

    assert vague
    for seconds, free_at in vague:
        reference = bisect(seconds, free_at)
        found = assign(seconds, free_at, effort)

        assert reference.finished
        assert found.bound <= reference.high * (1 + 1e-3)
        assert found.time <= 2 * reference.high * (1 + 2e-3)


@settings(max_examples=150, deadline=None)
@given(seconds=seconds_matrices(most_jobs=8, most_machines=4))
def test_bounds_agree_where_pruning_makes_steps(seconds: np.ndarray) -> None:
    direct = relax(seconds, np.zeros(seconds.shape[1]))
    reference = bisect(seconds, np.zeros(seconds.shape[1]), accuracy=1e-6)

    assert direct.bound <= reference.high * (1 + 1e-5) + 1e-9
    assert direct.time >= reference.low * (1 - 1e-5) - 1e-9


def test_a_busy_machine_that_gets_no_job_does_not_matter() -> None:
    found = assign(np.ones((4, 3)), np.array([0.0, 0.0, 50.0]), Effort())

    assert found.bound == pytest.approx(2.0, rel=1e-3)
    assert found.time == 2.0


@pytest.mark.parametrize("per", ["pair", "machine"])
def test_plans_are_within_a_percent_of_the_bound(per: str) -> None:
    for machines in (50, 100, 150):
        seconds = a_matrix(1000, machines, per, seed=machines)

        found = assign(seconds, np.zeros(machines), Effort())

        assert found.ratio <= 1.01


def test_improvement_never_lengthens_a_plan() -> None:
    for seed in range(4):
        seconds = a_matrix(80, 9, "pair", seed)
        plain = assign(seconds, np.zeros(9), Effort(way="rounding", improve=False))
        better = assign(seconds, np.zeros(9), Effort(way="rounding"))

        assert 1.0 <= better.ratio <= plain.ratio <= 2.0


def test_without_time_for_the_solver_the_plan_is_valid_all_the_same() -> None:
    seconds = a_matrix(200, 20, "pair")
    effort = Effort(way="rounding", solver="bisection", solver_seconds=1e-9)

    found = assign(seconds, np.zeros(20), effort)

    assert found.time == finish_of(found.machines, seconds, np.zeros(20))
    assert found.ratio <= 2.0


def a_crowded_split() -> tuple[Split, np.ndarray]:
    """Every job on every machine in equal shares: many more edges than nodes."""
    seconds = a_matrix(12, 4, "pair")
    jobs, machines = np.divmod(np.arange(48), 4)
    return Split(jobs, machines, np.full(48, 0.25)), seconds


@pytest.mark.parametrize("solver_seconds", [10.0, 1e-9])
def test_parts_become_pseudo_trees_and_take_no_longer(solver_seconds: float) -> None:
    split, seconds = a_crowded_split()
    time = loads_of(split, seconds).max()

    forest = pseudo_forest(split, seconds, np.zeros(4), time, solver_seconds)

    assert len(forest.jobs) <= 12 + 4
    assert np.bincount(forest.jobs, forest.shares) == pytest.approx(np.ones(12))
    assert loads_of(forest, seconds).max() <= time * (1 + 1e-6)


def loads_of(split: Split, seconds: np.ndarray) -> np.ndarray:
    own = seconds[split.jobs, split.machines] * split.shares
    return np.bincount(split.machines, own, seconds.shape[1])


@pytest.mark.parametrize("most", [True, False])
def test_a_machine_gets_one_split_job_at_most(most: bool) -> None:  # noqa: FBT001  a parameter of the test
    split, seconds = a_crowded_split()
    forest = cancelled(split, seconds)

    chosen = round_split(forest, 12, most=most)

    whole = np.flatnonzero(np.bincount(forest.jobs) == 1)
    split_jobs = np.setdiff1d(np.arange(12), whole)
    assert np.bincount(chosen[split_jobs]).max() <= 1
    shares = {(j, m) for j, m in zip(forest.jobs, forest.machines, strict=True)}
    assert all((job, machine) in shares for job, machine in enumerate(chosen))


def test_a_cycle_is_oriented_and_its_trees_are_rooted_at_their_job_leaves() -> None:
    # jobs 0, 1 and machines 0, 1 form a cycle; job 2 hangs off machine 1, with machine 2
    edges = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1), (2, 2)]
    jobs, machines = (np.array(each) for each in zip(*edges, strict=True))
    chosen = round_split(Split(jobs, machines, np.full(6, 0.5)), 3)

    assert sorted(chosen[:2].tolist()) == [0, 1]
    assert chosen[2] == 2


def test_shortest_transfer_first_is_not_always_best() -> None:
    transfers, seconds = np.array([2.0, 3.0]), np.array([1.0, 2.0])

    theirs = shortest_transfer_first(transfers)
    best = johnson(transfers, seconds)

    assert span(transfers[theirs], seconds[theirs]) == 7.0
    assert span(transfers[best], seconds[best]) == 6.0
    problem = a_problem([[1.0], [2.0]], sizes=[2.0, 3.0], ingress=[1.0])
    assert TransmissionFirst().plan(problem).makespan == 7.0
    assert TransmissionFirst(order="johnson").plan(problem).makespan == 6.0


def test_johnson_first_keeps_links_and_accelerators_busy() -> None:
    draw = np.random.default_rng(7)
    lengths = draw.choice(draw.exponential(1.0, 12) + 0.1, 200)
    sizes = lengths * draw.uniform(0.6, 1.4, 200) * 0.95
    problem = a_problem(
        lengths[:, None] * draw.uniform(0.8, 1.2, (200, 6)),
        sizes=sizes,
        responders=np.repeat([0, 1], 3),
        ingress=[3.0, 3.0],
    )

    plan = johnson_first(problem)

    assert faults(problem, plan) == []
    # the largest first leaves accelerators idle until the first large inputs are there
    assert plan.makespan < 1.03 * lower_bound(problem)
    assert critical_first(problem).makespan > 1.05 * lower_bound(problem)
    assert Joint().plan(problem).makespan <= plan.makespan


def test_transfers_use_what_is_left_of_a_link() -> None:
    link = Profile(np.array([0.0, 1.0, 3.0]), np.array([2.0, 0.0, 4.0]))

    first = link.first(6.0)
    assert first.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 4.0]]
    spread = link.spread(3.0, 4.0)
    assert spread.tolist() == [[0.0, 1.0, 1.0], [3.0, 4.0, 2.0]]
    left = link.without(spread, 4.0)
    assert left.times.tolist() == [0.0, 1.0, 3.0, 4.0]
    assert left.rates.tolist() == [1.0, 0.0, 2.0, 4.0]
    narrow = Profile.constant(1.0)
    assert end_through(link, narrow, 2.0) == 4.0
    assert link.least(narrow).ends(np.array([2.0, 0.5])).tolist() == [4.0, 0.5]


def test_rates_of_the_network_plan_are_scaled_down_and_the_rest_is_given_away() -> None:
    """The example of Fig. 1: all done in 1 s; without the rest, each at its own rate."""
    problem = a_problem(
        np.zeros((3, 2)),
        sizes=[10.0, 1.0, 9.0],
        requesters=[0, 0, 1],
        ingress=[10.0, 10.0],
        egress=[11.0, 9.0],
    )

    plan = NetworkIntensive().plan(problem)

    assert plan.makespan == pytest.approx(1.0)
    assert [piece[0, 2] for piece in plan.transfers] == pytest.approx([10.0, 1.0, 9.0])
    assert ShortestJobFirst().plan(problem).mean_completion < plan.mean_completion


def test_network_batches_wait_or_go_beside_whichever_ends_first() -> None:
    def planned(rate: float) -> float:
        problem = a_problem(
            [[0.0]],
            sizes=[8.0],
            ingress=[8.0],
            egress=[8.0],
            promised=(Promise(0, 0, 0.0, 2.0, rate),),
        )
        return NetworkIntensive(search=False).plan(problem).makespan

    assert planned(4.0) == pytest.approx(2.0)  # beside: 8 at the 4 that are left
    assert planned(7.0) == pytest.approx(3.0)  # beside it would take 8 s


def test_later_batches_start_when_accelerators_are_free() -> None:
    problem = a_problem([[2.0, 2.0], [2.0, 2.0]], free_at=[3.0, 0.0])

    plan = ComputationIntensive().plan(problem)

    assert plan.makespan == 4.0
    assert plan.accelerators.tolist() == [1, 1]


def test_halving_is_no_bound_where_transfers_go_in_side_by_side() -> None:
    problem = a_problem(
        [[0.0], [3.0], [0.0], [0.0]],
        sizes=[0.0, 0.0, 0.5, 3.0],
        requesters=[0, 0, 0, 1],
        ingress=[2.0],
        egress=[1.0, 1.0],
    )

    plan = bounded(TransmissionFirst(way="prices", order="johnson"), problem)

    assert plan.bound <= plan.makespan == 3.0
