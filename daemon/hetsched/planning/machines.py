"""Machines as a mapping heuristic sees them: what runs, what waits, when that is done.

They describe one instant, in whole nanoseconds so that sums compare exactly. Equation 1
of mokhtari-felare: a task stops at its deadline, and does not start after it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Generic, TypeVar

from hetsched.ids import Nanoseconds
from hetsched.planning.hashed_random import drawn
from hetsched.queues import NEVER

if TYPE_CHECKING:
    from hetsched.planning.interpretation import Interpretation
    from hetsched.system import ResourceState, System
    from hetsched.tasks import TaskRecord

T = TypeVar("T")


@dataclass(slots=True)
class Queued(Generic[T]):
    """A task in a local queue."""

    task: T
    type: str
    expected: Nanoseconds
    deadline: Nanoseconds = NEVER


@dataclass(slots=True)
class Machine(Generic[T]):
    """A machine and its local queue.

    Attributes:
        watts: dynamic power.
        ends: when each of its slots is expected to be free; never before now.
        queue: tasks that wait there, in order.
        places: tasks that it can still take.
        cut: whether tasks are taken to stop at their deadlines.
        rank: the highest in its run queue, for the next task to go behind.

    """

    name: str
    watts: float
    ends: list[Nanoseconds]
    queue: list[Queued[T]] = field(default_factory=list)
    places: float = math.inf
    cut: bool = True
    rank: float = 0.0
    _start: Nanoseconds | None = None

    def start(self) -> Nanoseconds:
        """Return when a task mapped now is expected to start."""
        if self._start is None:
            self._start = self._start_after(self.queue)
        return self._start

    def start_without(self, count: int, spared: set[str]) -> Nanoseconds:
        """Return `start` as if the last `count` tasks not of the spared types were gone."""
        leaving = {id(queued) for queued in self.evictable(spared)[:count]}
        return self._start_after([q for q in self.queue if id(q) not in leaving])

    def evictable(self, spared: set[str]) -> list[Queued[T]]:
        """List the waiting tasks that are not of the spared types, from the tail."""
        return [queued for queued in reversed(self.queue) if queued.type not in spared]

    def push(self, queued: Queued[T]) -> None:
        """Add a task at the tail."""
        self.queue.append(queued)
        self.places -= 1
        self._start = None

    def evict(self, queued: Queued[T]) -> None:
        """Take a task out of the queue."""
        self.queue.remove(queued)
        self.places += 1
        self._start = None

    def _start_after(self, queue: list[Queued[T]]) -> Nanoseconds:
        if len(self.ends) == 1:
            at = self.ends[0]
            for queued in queue:
                at = self._end_of(queued, at)
            return at
        ends = list(self.ends)
        heapify(ends)
        for queued in queue:
            heapreplace(ends, self._end_of(queued, ends[0]))
        return ends[0]

    def _end_of(self, queued: Queued[T], start: Nanoseconds) -> Nanoseconds:
        """Return when a task that starts at this instant is done (equation 1)."""
        end = start + queued.expected
        if not self.cut or end <= queued.deadline:
            return end
        return max(start, queued.deadline)


def machines_of(
    system: System, interpretation: Interpretation
) -> list[Machine[TaskRecord]]:
    """Describe the resources that take tasks."""
    return [_machine(system, state, interpretation) for state in system.usable_states()]


def _machine(
    system: System, state: ResourceState, interpretation: Interpretation
) -> Machine[TaskRecord]:
    """Describe one; tasks that take a free slot after the decision count as running."""
    resource = state.resource
    ends = [_end(system, task, interpretation) for task in state.running.values()]
    machine: Machine[TaskRecord] = Machine(
        resource.name, resource.busy_watts, ends, cut=interpretation.cut
    )
    waiting = list(state.queue) if state.queue else []
    for task in waiting:
        machine.rank = max(machine.rank, task.rank)
        queued = _queued(system, task, resource.name, interpretation)
        if len(ends) < state.slots:
            ends.append(machine._end_of(queued, system.now))  # noqa: SLF001  same module
        else:
            machine.queue.append(queued)
    free = state.slots - len(ends)
    ends.extend([system.now] * free)
    limit = (
        interpretation.places
        if interpretation.places is not None
        else resource.queue_limit
    )
    if limit is not None:
        machine.places = float(max(limit - len(machine.queue), 0) + free)
    return machine


def _queued(
    system: System, task: TaskRecord, name: str, interpretation: Interpretation
) -> Queued[TaskRecord]:
    expected = _expected(system, task, name, interpretation)
    left = round(expected * task.left) if task.left < 1.0 else expected
    deadline = task.submitted.deadline
    return Queued(task, task.row.type, left, NEVER if deadline is None else deadline)


def _end(
    system: System, task: TaskRecord, interpretation: Interpretation
) -> Nanoseconds:
    """Return when a running task is expected to free its slot."""
    name = task.assigned_to
    expected = _expected(system, task, name, interpretation)
    end = task.progress_at + round(expected * task.left)
    deadline = task.submitted.deadline
    if deadline is not None and interpretation.cut:
        end = min(end, deadline)
    return max(end, system.now) if interpretation.clamped else end


def _expected(
    system: System, task: TaskRecord, name: str, interpretation: Interpretation
) -> Nanoseconds:
    """Return the time of a whole task as the mapper knows it."""
    expected = system.fit(task.row).expected.get(name, 0)
    if not interpretation.drawn:
        return expected
    return drawn(
        expected, interpretation.seed, task.id, list(system.resources).index(name)
    )
