"""Batch planning beside the papers' way: bound, plan and quality in one run.

The papers find the restricted program's least time by bisection with an LP solver; here
HiGHS. Ours finds it by prices. Both see the same batch, one after the other.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from hetsched.planning.batch.assignment import Effort, assign
from hetsched.planning.batch.bisection import bisect
from hetsched.planning.batch.relaxation import relax

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetsched.planning.batch.arrays import Floats

ROUNDS = 7
SIDE_BY_SIDE = [(1000, 150, "pair"), (1000, 150, "machine"), (400, 60, "pair")]
GROWTH = [(1000, 200), (10_000, 200), (100_000, 200)]
QUALITY_MACHINES = (50, 100, 150, 200)
QUALITY_SEEDS = 10


def draw(jobs: int, machines: int, per: str, seed: int = 0) -> Floats:
    random = np.random.default_rng(seed)
    sizes = random.exponential(0.2, (jobs, 1))
    shape = (jobs, machines) if per == "pair" else (1, machines)
    return np.asarray(sizes * random.uniform(0.8, 1.2, shape))


def seconds_of(call: Callable[[], Any], rounds: int = ROUNDS) -> float:
    call()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def side_by_side(jobs: int, machines: int, per: str) -> dict[str, Any]:
    seconds, free_at = draw(jobs, machines, per), np.zeros(machines)
    bound_s = seconds_of(lambda: relax(seconds, free_at))
    plan_s = seconds_of(lambda: assign(seconds, free_at, Effort()))
    ours = relax(seconds, free_at)
    plan = assign(seconds, free_at, Effort())
    began = time.perf_counter()
    paper = bisect(seconds, free_at, accuracy=1e-3, solver_seconds=30.0)
    paper_s = time.perf_counter() - began
    rounded = assign(seconds, free_at, Effort(way="rounding", improve=False))
    return {
        "size": f"{jobs} jobs, {machines} accelerators, deviation by {per}",
        "bound_s": bound_s,
        "plan_s": plan_s,
        "bisection_s": paper_s,
        "ratio": paper_s / bound_s,
        "bound": ours.bound,
        "bisection_finished": paper.finished,
        "bisection_bound": [paper.low, paper.high],
        "plan_over_bound": plan.ratio,
        "rounding_over_bound": rounded.ratio,
    }


def growth(jobs: int, machines: int) -> dict[str, Any]:
    seconds, free_at = draw(jobs, machines, "pair"), np.zeros(machines)
    rounds = 3 if jobs <= 10_000 else 1
    plan = assign(seconds, free_at, Effort())
    return {
        "size": f"{jobs} jobs, {machines} accelerators, growth",
        "bound_s": seconds_of(lambda: relax(seconds, free_at), rounds),
        "plan_s": seconds_of(lambda: assign(seconds, free_at, Effort()), rounds),
        "plan_over_bound": plan.ratio,
    }


def quality(per: str) -> dict[str, Any]:
    ratios = [
        assign(draw(1000, machines, per, seed), np.zeros(machines), Effort()).ratio
        for machines in QUALITY_MACHINES
        for seed in range(QUALITY_SEEDS)
    ]
    return {
        "size": f"1000 jobs, 50 to 200 accelerators, deviation by {per}",
        "plan_over_bound_mean": statistics.mean(ratios),
        "plan_over_bound_worst": max(ratios),
        "seeds": QUALITY_SEEDS,
    }


def run() -> list[dict[str, Any]]:
    with threadpool_limits(1):
        rows = [quality("pair"), quality("machine")]
        rows += [side_by_side(*size) for size in SIDE_BY_SIDE]
        rows += [growth(*size) for size in GROWTH]
    return rows
