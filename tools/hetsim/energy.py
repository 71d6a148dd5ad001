"""Energy: what the resources drew, computed afterwards from what ran when.

A resource draws its busy power while at least one task computes on it and its idle power
otherwise, from the first arrival to the end of the last task. Tasks that compute at the
same time share the busy power evenly; the share of tasks that did not complete in time
is wasted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hetsched.system import SECOND

if TYPE_CHECKING:
    from hetsched.ids import Nanoseconds
    from hetsched.system import Resource
    from hetsim.workload import Job


class Energy(Struct, frozen=True):
    """Joules. `wasted` is a part of `busy`."""

    busy: float
    idle: float
    wasted: float
    total: float


def energy_of(
    resources: list[Resource], jobs: list[Job], useless: set[Job], makespan: Nanoseconds
) -> Energy:
    """Add up the energy of all resources.

    Args:
        resources: with their powers.
        jobs: with their segments.
        useless: those whose energy is wasted.
        makespan: time over which an idle resource is counted.

    """
    busy = idle = wasted = 0.0
    stretches = _stretches(jobs)
    for resource in resources:
        computing, in_vain = _busy_seconds(stretches.get(resource.name, []), useless)
        busy += resource.busy_watts * computing
        wasted += resource.busy_watts * in_vain
        idle += resource.idle_watts * max(makespan / SECOND - computing, 0.0)
    return Energy(busy, idle, wasted, busy + idle)


def _stretches(
    jobs: list[Job],
) -> dict[str, list[tuple[Nanoseconds, bool, int, Job]]]:
    """List the beginnings (True) and ends of segments by resource."""
    found: dict[str, list[tuple[Nanoseconds, bool, int, Job]]] = {}
    for job in jobs:
        for name, start, finish in job.segments:
            edges = found.setdefault(name, [])
            edges.append((start, True, job.id, job))
            edges.append((finish, False, job.id, job))
    return found


def _busy_seconds(
    edges: list[tuple[Nanoseconds, bool, int, Job]], useless: set[Job]
) -> tuple[float, float]:
    """Sweep over the edges; return all seconds computed, and those wasted."""
    running: set[Job] = set()
    computing = in_vain = 0.0
    before = 0
    for at, begins, _, job in sorted(edges):
        if running:
            seconds = (at - before) / SECOND
            computing += seconds
            in_vain += seconds * len(running & useless) / len(running)
        before = at
        if begins:
            running.add(job)
        else:
            running.discard(job)
    return computing, in_vain
