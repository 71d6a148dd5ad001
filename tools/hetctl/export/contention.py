"""The shared resources of a node in a scenario, with the loads that tasks are taken to offer.

The times of tasks are then those expected alone: measured ones hold the contention of the
run already, and a simulation would count it twice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from libtask.client.client import Client
    from libtask.messages import SharedLoad, TaskInfo, TypeLoad


@dataclass(frozen=True, slots=True)
class NodeContention:
    """The shared resources of a node, and the loads on them.

    Attributes:
        shared: the shared resources; empty: nothing is declared to be shared.
        loads: of the types of the tasks.

    """

    shared: list[SharedLoad]
    loads: list[TypeLoad]

    def document(self) -> list[dict[str, Any]]:
        """Return the shared resources for a scenario."""
        return [
            {"name": each.name, "kind": each.kind, "bytes_per_s": each.bytes_per_s}
            for each in self.shared
        ]

    def uses(self, resource: str) -> dict[str, str]:
        """Return what a resource uses, by kind."""
        return {
            each.kind: each.name for each in self.shared if resource in each.used_by
        }

    def load(self, task_type: str) -> dict[str, Any]:
        """Return what tasks of a type load, and what their time is bound to."""
        load: dict[str, dict[str, float]] = {}
        bound: dict[str, dict[str, float]] = {}
        for each in self.loads:
            if each.type == task_type:
                load.setdefault(each.resource, {})[each.shared] = each.demand
                bound.setdefault(each.resource, {})[each.shared] = each.bound
        return {"load": load, "bound": bound}


def known_type(info: TaskInfo) -> str:
    """Return the name under which the node knows times and loads of a task's type."""
    return info.known_as or info.type


def contention_of(client: Client, tasks: Iterable[TaskInfo]) -> NodeContention:
    """Ask a node what its resources share, and what these tasks load of it."""
    types = list(dict.fromkeys(known_type(info) for info in tasks))
    return NodeContention(client.node_load().shared, client.type_loads(types))


def jobs_of(tasks: Iterable[TaskInfo]) -> dict[int, str]:
    """Return the job of each task that has one: named, or connected by results or order."""
    known = sorted(tasks, key=lambda info: info.id)
    leaders = {info.id: info.id for info in known}
    for info in known:
        for other in _predecessors(info):
            if other in leaders:
                first, second = sorted(
                    (_leader(leaders, other), _leader(leaders, info.id))
                )
                leaders[second] = first
    members = Counter(_leader(leaders, task) for task in leaders)
    several = len({info.owner for info in known}) > 1
    jobs: dict[int, str] = {}
    for info in known:
        leader = _leader(leaders, info.id)
        if info.job:
            jobs[info.id] = f"{info.owner} {info.job}" if several else info.job
        elif members[leader] > 1:
            jobs[info.id] = f"job of {leader}"
    return jobs


def _leader(leaders: dict[int, int], task: int) -> int:
    while leaders[task] != task:
        task = leaders[task]
    return task


def _predecessors(info: TaskInfo) -> list[int]:
    return [
        *info.after,
        *info.after_any,
        *info.after_notok,
        *(each.task for each in info.inputs),
    ]
