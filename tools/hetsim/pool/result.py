"""The result of `hetsim pool`: a plan as it happened, and how it compares with the first one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from hetsched.planning.batch import bounds
from hetsim.batch import problem_of
from hetsim.batch_plan import Piece, PlannedJob

if TYPE_CHECKING:
    from hetsim.batch import Batch
    from hetsim.pool.model import PoolModel
    from hetsim.pool.run import PooledJob, PoolRun


class PooledResult(Struct, frozen=True):
    """The output of `hetsim pool --json`: as `hetsim plan`, with what happened.

    Attributes:
        makespan: end of the last job, seconds.
        lower_bound: no plan of all jobs, known at the beginning, is shorter.
        planned_makespan: of the first plan.
        planning_seconds: processor time of all plans; `longest_plan_seconds`: of one.
        plans: number of plans; `replaced`: jobs placed elsewhere after a loss; `moved`:
            jobs that had not begun and moved because a later plan was better.
        executions: attempts of all jobs; `lost_seconds`: computed and lost with nodes.
        unfinished: jobs without an end: their data or every node is lost.
        transfer_end: when the last data was there.
        jobs: the ended ones; a transfer has one piece, its mean rate.

    """

    planner: str
    transfers: str
    makespan: float
    lower_bound: float
    planned_makespan: float
    planning_seconds: float
    longest_plan_seconds: float
    plans: int
    replaced: int
    moved: int
    executions: int
    lost_seconds: float
    unfinished: list[str]
    transfer_end: float
    mean_completion: float
    jobs: list[PlannedJob]
    format: str = "hetsim/plan-1"


def result_of(batch: Batch, model: PoolModel, run: PoolRun) -> PooledResult:
    """Sum up a run."""
    ended = [job for job in run.jobs if job.finish < math.inf]
    problem = problem_of(batch)
    waits = [job.finish - model.arrivals[int(job.job.id)] for job in ended]
    return PooledResult(
        planner=run.settings.planner,
        transfers=run.settings.transfers,
        makespan=max((job.finish for job in ended), default=0.0),
        lower_bound=max(
            bounds.computing_bound(problem),
            bounds.transfer_bound(problem),
            bounds.alone_bound(problem),
        ),
        planned_makespan=run.first_makespan,
        planning_seconds=sum(run.cost.seconds),
        longest_plan_seconds=max(run.cost.seconds, default=0.0),
        plans=len(run.cost.seconds),
        replaced=run.replaced,
        moved=run.moved,
        executions=sum(job.begun for job in run.jobs),
        lost_seconds=run.lost_seconds,
        unfinished=[job.job.app for job in run.jobs if job.finish == math.inf],
        transfer_end=max((t[1] for j in ended if (t := run.transfer(j))), default=0.0),
        mean_completion=sum(waits) / len(waits) if waits else 0.0,
        jobs=_jobs(batch, model, run, ended),
    )


def _jobs(
    batch: Batch, model: PoolModel, run: PoolRun, ended: list[PooledJob]
) -> list[PlannedJob]:
    orders: dict[int, int] = {}
    by_number = {}
    for job in sorted(ended, key=lambda each: each.start):
        assert job.place is not None  # noqa: S101  it ended there
        accelerator = model.accelerators[job.place]
        order = orders.get(accelerator, 0)
        orders[accelerator] = order + 1
        number = int(job.job.id)
        by_number[number] = PlannedJob(
            id=batch.jobs[number].id,
            accelerator=batch.accelerators[accelerator].id,
            order=order,
            transfer=_pieces(batch, run, job),
            start=job.start,
            finish=job.finish,
        )
    return [by_number[number] for number in sorted(by_number)]


def _pieces(batch: Batch, run: PoolRun, job: PooledJob) -> list[Piece]:
    carried = run.transfer(job)
    if carried is None or carried[1] <= carried[0]:
        return []
    size = batch.jobs[int(job.job.id)].size or 0.0
    return [Piece(carried[0], carried[1], size / (carried[1] - carried[0]))]
