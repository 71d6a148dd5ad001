"""The lower bound printed beside every makespan.

It bounds schedules that complete every task, whatever the policy knows in advance.
Migration costs, strips, queues, dependencies and outages are left out: with them, no
schedule gets shorter.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING

from hetsched.system import SECOND
from hetsim.lawler_labetoulle import Batch, preemptive_makespan
from hetsim.workload import expected_seconds, jobs_of, resources_of

if TYPE_CHECKING:
    from hetsim.scenario import Scenario
    from hetsim.workload import Job

INTERVALS = 16
"""Number of instants that arrivals are rounded down to; this can only lower the bound."""

MOST_BATCHES = 600
"""With more kinds of tasks, those of a type count as quick as its quickest."""


def lower_bound_of(scenario: Scenario) -> float:
    """Return a lower bound of the makespan, in seconds from the first arrival."""
    jobs = jobs_of(scenario, expected_seconds(scenario))
    if not jobs:
        return 0.0
    names = [resource.name for resource in resources_of(scenario)]
    capacities = [
        1 if model.sharing == "processor" else model.slots
        for model in scenario.resources
    ]
    # Rounded values must not make the bound pass an optimal makespan.
    return (
        math.floor(
            preemptive_makespan(_batches(jobs, names, sum(capacities)), capacities)
            * 1e6
        )
        / 1e6
    )


def _batches(jobs: list[Job], names: list[str], slots: int) -> list[Batch]:
    first = min(job.arrival for job in jobs)
    arrivals = [(job.arrival - first) / SECOND for job in jobs]
    instants = _instants(sorted(set(arrivals)))
    rows = _seconds(jobs, names)
    counts = Counter(
        (
            rows[job],
            instants[bisect_right(instants, arrival) - 1],
            slots if job.kind.parallel else 1,
        )
        for job, arrival in zip(jobs, arrivals, strict=True)
    )
    return [
        Batch(seconds, count, at, at_once)
        for (seconds, at, at_once), count in counts.items()
    ]


def _instants(arrivals: list[float]) -> list[float]:
    """Choose the instants to which arrivals are rounded down."""
    step = len(arrivals) / INTERVALS
    if step <= 1:
        return arrivals
    return [arrivals[int(number * step)] for number in range(INTERVALS)]


def _seconds(jobs: list[Job], names: list[str]) -> dict[Job, tuple[float, ...]]:
    """Tabulate the actual seconds of each job on each resource."""
    rows = {job: _row(job, names) for job in jobs}
    if len(set(rows.values())) <= MOST_BATCHES:
        return rows
    quickest: dict[str, tuple[float, ...]] = {}
    for job, row in rows.items():
        known = quickest.get(job.kind.name, row)
        quickest[job.kind.name] = tuple(map(min, known, row))
    return {job: quickest[job.kind.name] for job in jobs}


def _row(job: Job, names: list[str]) -> tuple[float, ...]:
    return tuple(
        (job.set_up + job.actual[name]) / SECOND
        if name in job.actual and name in job.expected
        else math.inf
        for name in names
    )
