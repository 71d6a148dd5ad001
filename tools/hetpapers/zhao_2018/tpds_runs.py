"""The runs behind the figures of zhao-2018-tpds: one sample a point and seed."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from threadpoolctl import threadpool_limits

from hetpapers.zhao_2018.stream import throughput
from hetpapers.zhao_2018.workload import Workload, draw, misjudged, mixed
from hetsched.planning.batch import bounds
from hetsched.planning.batch.executor import carry_out_again
from hetsched.planning.batch.planners import (
    ComputationIntensive,
    Joint,
    LargestJobFirst,
    NetworkIntensive,
    Planner,
    ShortestJobFirst,
    Waves,
)

if TYPE_CHECKING:
    from hetpapers.zhao_2018.study import Sample
    from hetsched.planning.batch.problem import Problem

Point: TypeAlias = tuple[Workload, float]
"""A workload, and the value of what else the figure varies."""

BASELINES: dict[str, Planner] = {"sjf": ShortestJobFirst(), "ljf": LargestJobFirst()}

PAPER: dict[str, Planner] = {
    "computation": ComputationIntensive(way="rounding", improve=False),
    "network": NetworkIntensive(way="rounding", improve=False, search=False),
    "both": Joint(way="rounding", improve=False, search=False),
}
"""The paper's planner for each case: its assignments come from rounding."""

OURS: dict[str, Planner] = {
    "computation": ComputationIntensive(),
    "network": NetworkIntensive(),
    "both": Joint(),
}

BATCHES = 8
"""Batches in a throughput run; the paper does not say."""


def planners_of(case: str) -> dict[str, Planner]:
    """Name the planners that a case compares."""
    return {**BASELINES, "paper": PAPER[case], "ours": OURS[case]}


def paper_bound(problem: Problem, case: str) -> float:
    """The lower bound that the paper draws, seconds."""
    computing = bounds.computing_bound(problem) if case != "network" else 0.0
    sending = bounds.one_responder_bound(problem) if case != "computation" else 0.0
    return max(computing, sending)


def makespans(workload: Workload, seed: int) -> Sample:
    """Makespan of each planner and the paper's bound, seconds."""
    problem = draw(workload, seed)
    case = workload.case
    sample = {n: p.plan(problem).makespan for n, p in planners_of(case).items()}
    return {**sample, "bound": paper_bound(problem, case)}


def misjudged_makespans(point: Point, seed: int) -> Sample:
    """Makespan where the plan was made with wrong computing times."""
    problem = draw(point[0], seed)
    believed = misjudged(problem, point[1], seed)
    plans = {n: p.plan(believed) for n, p in planners_of(point[0].case).items()}
    return {n: carry_out_again(problem, plan).makespan for n, plan in plans.items()}


def throughputs(point: Point, seed: int) -> Sample:
    """Return the throughput in jobs per second for an arrival rate of batches."""
    workload, rate = point
    batches = [_like(workload, seed, number) for number in range(BATCHES)]
    return {
        name: throughput(planner, batches, 1 / rate)
        for name, planner in planners_of(workload.case).items()
    }


def _like(workload: Workload, seed: int, number: int) -> Problem:
    """Draw further batches for the same machines and links."""
    first = draw(workload, 100 * seed)
    return replace(draw(workload, 100 * seed + number), links=first.links)


def mixtures(point: Point, seed: int) -> Sample:
    """Makespan where a share of the jobs computes only, and the rest transfers only."""
    problem = mixed(point[0], point[1], seed)
    planners = {**BASELINES, "multi-wave": Waves()}
    return {name: each.plan(problem).makespan for name, each in planners.items()}


def groups(point: Point, seed: int) -> Sample:
    """Return makespan and average completion time for a number of size groups; 0: SJF."""
    problem = draw(point[0], seed)
    count = int(point[1])
    paper: Planner = NetworkIntensive(groups=count, search=False)
    ours: Planner = NetworkIntensive(groups=count)
    if not count:
        paper = ours = ShortestJobFirst()
    sample = {}
    for name, planner in (("paper", paper), ("ours", ours)):
        plan = planner.plan(problem)
        sample[f"{name}: makespan"] = plan.makespan
        sample[f"{name}: average"] = plan.mean_completion
    return sample


def planning_times(workload: Workload, seed: int) -> Sample:
    """Milliseconds of planning, ours and with the paper's rounding; the best of three."""
    sample = {}
    for case in ("computation", "network", "both"):
        problem = draw(replace(workload, case=case), seed)
        for name, planner in (("paper", PAPER[case]), ("ours", OURS[case])):
            sample[f"{case}, {name}"] = 1e3 * _seconds(planner, problem)
    return sample


def _seconds(planner: Planner, problem: Problem) -> float:
    times = []
    with threadpool_limits(1):
        for _ in range(3):
            began = time.perf_counter()
            planner.plan(problem)
            times.append(time.perf_counter() - began)
    return min(times)
