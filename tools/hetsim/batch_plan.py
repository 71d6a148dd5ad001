"""Plans a batch and words the plan: the result of `hetsim plan`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import scipy.optimize  # noqa: F401  loaded before the clock runs
from msgspec import Struct
from threadpoolctl import threadpool_limits

from hetsched.planning.batch.executor import faults
from hetsched.planning.batch.planners import bounded
from hetsim.batch import Id, problem_of

if TYPE_CHECKING:
    from hetsched.planning.batch.plan import Plan
    from hetsched.planning.batch.planners import Planner
    from hetsim.batch import Batch


class Piece(Struct, frozen=True):
    """A part of a transfer at one rate."""

    start: float
    finish: float
    rate: float


class PlannedJob(Struct, frozen=True):
    """The place and time of a job; `order`: its position on the accelerator."""

    id: Id
    accelerator: Id
    order: int
    transfer: list[Piece]
    start: float
    finish: float


class PlanResult(Struct, frozen=True):
    """The output of `hetsim plan --json`.

    Attributes:
        proven_ratio: makespan over lower bound: how far from the best it is at most.
        mean_completion: average job completion time, seconds.

    """

    planner: str
    makespan: float
    lower_bound: float
    planning_seconds: float
    jobs: list[PlannedJob]
    proven_ratio: float | None = None
    mean_completion: float = 0.0
    format: str = "hetsim/plan-1"


def plan_batch(batch: Batch, name: str, planner: Planner) -> PlanResult:
    """Plan a batch by the planner called `name`; measure how long planning takes.

    Raises:
        InputError: the document is wrong.

    """
    problem = problem_of(batch)
    # systems of a few hundred rows: more threads only get into each other's way
    with threadpool_limits(1):
        began = time.perf_counter()
        plan = bounded(planner, problem)
        took = time.perf_counter() - began
    wrong = faults(problem, plan)
    if wrong:
        raise RuntimeError(f"planner {name} made an invalid plan: {wrong[0]}")
    return PlanResult(
        planner=name,
        makespan=plan.makespan,
        lower_bound=plan.bound,
        planning_seconds=took,
        jobs=_jobs(batch, plan),
        proven_ratio=plan.makespan / plan.bound if plan.bound > 0 else None,
        mean_completion=plan.mean_completion,
    )


def _jobs(batch: Batch, plan: Plan) -> list[PlannedJob]:
    return [
        PlannedJob(
            id=job.id,
            accelerator=batch.accelerators[int(plan.accelerators[index])].id,
            order=int(plan.orders[index]),
            transfer=[Piece(*piece) for piece in plan.transfers[index].tolist()],
            start=float(plan.starts[index]),
            finish=float(plan.finishes[index]),
        )
        for index, job in enumerate(batch.jobs)
    ]
