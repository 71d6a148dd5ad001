"""The state that policies look at: resources, run queues, running tasks, estimates.

The scheduler owns and changes it; policies only read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from hetd.core.queues import RunQueue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hetd.core.events import Nanoseconds, TaskId
    from hetd.core.tasks import Row, TaskRecord

SECOND: Nanoseconds = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Resource:
    """One schedulable processor of the node.

    Attributes:
        slots: how many tasks it runs at once.
        busy_watts: power while computing; `idle_watts`: while not.
        link_bytes_per_s: bandwidth between host memory and the device; None: the host.
        reconfigure_s: time to load another program (FPGA).
        queue_limit: tasks that may wait in its queue, for policies that bound it.

    """

    name: str
    kind: str
    slots: int = 1
    busy_watts: float = 0.0
    idle_watts: float = 0.0
    link_bytes_per_s: float | None = None
    reconfigure_s: float = 0.0
    queue_limit: int | None = None


@dataclass(eq=False, slots=True)
class ResourceState:
    """What a resource does at the moment."""

    resource: Resource
    queue: RunQueue = field(default_factory=RunQueue)
    running: dict[TaskId, TaskRecord] = field(default_factory=dict)
    up: bool = True
    draining: bool = False

    @property
    def usable(self) -> bool:
        return self.up and not self.draining


class Estimates(Protocol):
    """Expected execution times (EET)."""

    @property
    def version(self) -> int:
        """A number that changes whenever an answer may."""
        ...

    def seconds(self, row: Row, resource: Resource) -> float:
        """Expected time of a whole task of `row` alone on `resource`, in seconds."""
        ...


class System:
    """Read-only view of everything a decision may depend on."""

    def __init__(self, resources: Sequence[Resource], estimates: Estimates) -> None:
        self.resources = {resource.name: resource for resource in resources}
        self.states = {r.name: ResourceState(r) for r in resources}
        self.estimates = estimates
        self.tasks: dict[TaskId, TaskRecord] = {}
        self.unplaced = RunQueue()
        """Tasks that wait for a resource and that the policy has not placed yet."""
        self.now: Nanoseconds = 0
        self._affinities: dict[Row, dict[str, float]] = {}
        self._version = -1

    # ------------------------------------------------------------ resources

    def usable(self) -> Iterator[str]:
        """Names of the resources that take tasks."""
        return (name for name, state in self.states.items() if state.usable)

    def queue(self, resource: str) -> RunQueue:
        return self.states[resource].queue

    def running(self, resource: str) -> list[TaskRecord]:
        return list(self.states[resource].running.values())

    def spare(self, resource: str) -> int:
        """Slots that neither a running nor a queued task takes; negative: tasks wait."""
        state = self.states[resource]
        if not state.usable:
            return 0
        return state.resource.slots - len(state.running) - len(state.queue)

    def waiting(self, resource: str) -> Iterator[TaskRecord]:
        """First waiting task of each row, but for those that a free slot takes next.

        A slot counts as free when it is, or when its task was asked to yield.
        """
        state = self.states[resource]
        taken = state.resource.slots - len(state.running) + self.leaving(resource)
        return state.queue.heads(max(taken, 0) if state.usable else 0)

    def leaving(self, resource: str) -> int:
        """Count the running tasks that were asked to yield."""
        return sum(task.preempting for task in self.states[resource].running.values())

    def inbound(self, resource: str) -> int:
        """Count the running tasks that will move to `resource` at their next checkpoint."""
        return sum(
            task.destination == resource
            for state in self.states.values()
            for task in state.running.values()
            if task.preempting
        )

    # ------------------------------------------------------------ estimates

    def feasible(self, row: Row) -> list[str]:
        """Names of the resources that can run tasks of `row` now."""
        return list(self.affinities(row))

    def affinities(self, row: Row) -> dict[str, float]:
        """Affinity of `row` to each resource that can run it now (loesch-2016, III-C)."""
        if self._version != self.estimates.version:
            self._affinities.clear()
            self._version = self.estimates.version
        found = self._affinities.get(row)
        if found is None:
            found = self._affinities[row] = self._measure(row)
        return found

    def affinity(self, row: Row, resource: str) -> float:
        """A(p, R) = t(p, R_best) / t(p, R), in [0, 1]; 0 where `row` cannot run on it."""
        return self.affinities(row).get(resource, 0.0)

    def best(self, row: Row) -> str | None:
        """Resource with the highest affinity; the first by name among equals."""
        affinities = self.affinities(row)
        return min(affinities, key=lambda r: (-affinities[r], r), default=None)

    def seconds(self, row: Row, resource: str) -> float:
        """EET of a whole task on `resource`; infinite where it cannot run."""
        if resource not in self.affinities(row):
            return math.inf
        return self.estimates.seconds(row, self.resources[resource])

    def progress(self, task: TaskRecord) -> float:
        """Share of a task done by now: as reported, carried on by its EET."""
        if task.resource is None or task.id not in self.states[task.resource].running:
            return task.progress
        expected = self.estimates.seconds(task.row, self.resources[task.resource])
        elapsed = (self.now - task.progress_at) / SECOND
        return min(1.0, task.progress + elapsed / max(expected, 1e-9))

    def remaining(self, task: TaskRecord, resource: str) -> float:
        """Seconds that the rest of a task would take on `resource`."""
        return self.seconds(task.row, resource) * (1.0 - self.progress(task))

    def forget_affinities(self) -> None:
        """Called by the scheduler when a resource came or went."""
        self._affinities.clear()

    def _measure(self, row: Row) -> dict[str, float]:
        seconds = {
            name: self.estimates.seconds(row, self.resources[name])
            for name in self.usable()
            if self._can_run(row, name)
        }
        fastest = min(seconds.values(), default=math.inf)
        return {
            name: (fastest / value if value > 0 else 1.0)
            for name, value in seconds.items()
            if value < math.inf
        }

    def _can_run(self, row: Row, name: str) -> bool:
        allowed = not row.resources or name in row.resources
        return allowed and self.resources[name].kind in row.kinds
