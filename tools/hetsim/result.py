"""The result document: what `hetsim run --json` prints, and its form as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from hetsched.system import SECOND
from hetsched.tasks import State
from hetsim.energy import Energy, energy_of

if TYPE_CHECKING:
    from hetsched.ids import Nanoseconds
    from hetsched.system import Resource
    from hetsim.workload import Job

STATES = ("completed", "missed", "cancelled", "evicted", "failed")


class Segment(Struct, frozen=True):
    """A segment of a task on one resource."""

    resource: str
    start: float
    finish: float


class TaskResult(Struct, frozen=True):
    """The result of one task. Times are seconds."""

    id: str | int
    state: str
    arrival: float
    start: float | None
    finish: float | None
    migrations: int
    segments: list[Segment]


class JobResult(Struct, frozen=True):
    """The result of the tasks of one job. Times are seconds.

    Attributes:
        finish: end of its last task; None: one of its tasks did not complete.
        completion: from the arrival of its first task until `finish`.
        critical_path: the longest chain of its tasks, each at the least of its times.
        slowdown: completion as a multiple of the critical path.

    """

    job: str
    arrival: float
    finish: float | None
    completion: float | None
    critical_path: float
    slowdown: float | None


class Result(Struct, frozen=True):
    """The result of all tasks.

    Attributes:
        jobs: of the jobs that tasks name; absent: none does.
        rates: share completed in time, by type.
        makespan_error: by which share the makespan is above that measured on the real
            node, where the scenario is a trace of one.

    """

    policy: str
    makespan: float
    tasks: list[TaskResult]
    counts: dict[str, int]
    energy: Energy
    rates: dict[str, float]
    events: int
    simulation_seconds: float
    lower_bound: float | UnsetType = UNSET
    jobs: list[JobResult] | UnsetType = UNSET
    measured_makespan: float | UnsetType = UNSET
    makespan_error: float | UnsetType = UNSET
    format: str = "hetsim/result-1"


def state_of(job: Job) -> str:
    """Name the state in which a job ended, as the document knows it."""
    match job.outcome:
        case State.COMPLETED:
            return "missed" if job.late else "completed"
        case State.FAILED:
            return "failed"
        case State.DROPPED if job.placed and not _expired(job):
            return "evicted"
    return "missed" if job.placed else "cancelled"


def _expired(job: Job) -> bool:
    return job.deadline is not None and (job.finish or 0) >= job.deadline


def makespan_of(jobs: list[Job]) -> Nanoseconds:
    """Time from the first arrival to the end of the last task that ran."""
    ends = [segment[2] for job in jobs for segment in job.segments]
    return max(ends) - min(job.arrival for job in jobs) if ends else 0


def task_result(job: Job, state: str) -> TaskResult:
    """Describe one job that has ended."""
    ran = _joined(sorted(job.segments, key=lambda segment: segment[1]))
    finish = None if job.finish is None else job.finish / SECOND
    return TaskResult(
        id=job.name,
        state=state,
        arrival=job.arrival / SECOND,
        start=ran[0].start if ran else None,
        finish=finish if ran else None,
        migrations=job.migrations,
        segments=ran,
    )


def job_results(jobs: list[Job]) -> list[JobResult]:
    """Describe the jobs that tasks name, in the order of the document."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        if job.group:
            groups.setdefault(job.group, []).append(job)
    return [_job_result(name, members) for name, members in groups.items()]


def _job_result(name: str, members: list[Job]) -> JobResult:
    arrival = min(job.arrival for job in members) / SECOND
    over = all(job.outcome is State.COMPLETED for job in members)
    finish = max(job.finish or 0 for job in members) / SECOND if over else None
    path = _critical_path(members) / SECOND
    completion = None if finish is None else finish - arrival
    slowdown = completion / path if completion is not None and path > 0 else None
    return JobResult(name, arrival, finish, completion, path, slowdown)


def _critical_path(members: list[Job]) -> Nanoseconds:
    """Return the length of the longest chain of tasks, each at the least of its times."""
    ends: dict[Job, Nanoseconds] = {}
    for job in sorted(members, key=lambda job: job.depth):
        before = max((ends.get(other, 0) for other in job.after), default=0)
        ends[job] = before + min(job.actual.values(), default=0)
    return max(ends.values())


def _joined(segments: list[tuple[str, Nanoseconds, Nanoseconds]]) -> list[Segment]:
    """Make one segment of those that follow each other without a break."""
    joined: list[tuple[str, Nanoseconds, Nanoseconds]] = []
    for name, start, finish in segments:
        if joined and joined[-1][0] == name and joined[-1][2] == start:
            joined[-1] = (name, joined[-1][1], finish)
        else:
            joined.append((name, start, finish))
    return [Segment(n, start / SECOND, finish / SECOND) for n, start, finish in joined]


def summarize(
    policy: str, resources: list[Resource], jobs: list[Job], events: int, seconds: float
) -> Result:
    """Make the document of jobs that have ended."""
    states = {job: state_of(job) for job in jobs}
    useless = {job for job, state in states.items() if state != "completed"}
    makespan = makespan_of(jobs)
    return Result(
        policy=policy,
        makespan=makespan / SECOND,
        tasks=[task_result(job, states[job]) for job in jobs],
        counts={state: list(states.values()).count(state) for state in STATES},
        energy=energy_of(resources, jobs, useless, makespan),
        rates=_rates(jobs, useless),
        events=events,
        simulation_seconds=seconds,
        jobs=job_results(jobs) or UNSET,
    )


def _rates(jobs: list[Job], useless: set[Job]) -> dict[str, float]:
    good: dict[str, list[bool]] = {}
    for job in jobs:
        good.setdefault(job.kind.name, []).append(job not in useless)
    return {name: sum(marks) / len(marks) for name, marks in good.items()}
