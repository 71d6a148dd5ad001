"""The four principles of loesch-2016, section III-D, each as a generator of decisions.

The policies `affinity`, `work-conserving` and `migration` are made of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetd.core.policy import Place, Preempt, Wake
from hetd.core.system import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetd.core.events import Nanoseconds
    from hetd.core.system import System
    from hetd.core.tasks import Row, TaskRecord


@dataclass(frozen=True, slots=True)
class Overhead:
    """The heuristic that "prevents some migration decisions" (III-D leaves it open).

    Attributes:
        minimum_run_s: a task just moved is not moved back before it has run this long.
        minimum_remaining_s: a task with less left to do is not moved any more.

    """

    minimum_run_s: float = 1.0
    minimum_remaining_s: float = 0.0

    def allows(self, task: TaskRecord, destination: str | None, system: System) -> bool:
        """Whether a running task may be moved to `destination` now."""
        if task.preempting or task.cancelling is not None or task.resource is None:
            return False
        if destination == task.came_from and system.now < self.settled_at(task):
            return False
        return system.remaining(task, task.resource) >= self.minimum_remaining_s

    def settled_at(self, task: TaskRecord) -> Nanoseconds:
        """When a moved task may be moved back."""
        return task.since + int(self.minimum_run_s * SECOND)


def enqueue_at_best(system: System) -> Iterator[Place]:
    """Principle A: enqueue each arrived task to the resource with the highest affinity.

    A task that no usable resource can run stays unplaced.
    """
    for row in list(system.unplaced.rows()):
        best = system.best(row)
        while best is not None and row in system.unplaced.rows():
            task = system.unplaced.head_of(row)
            yield Place(task.id, best, task.rank)


def fill_idle(system: System) -> Iterator[Place]:
    """Principle B: an idle resource takes the waiting task with the highest affinity to it.

    Of several idle resources, the one that the task fits best takes it.
    """
    while (found := _best_steal(system)) is not None:
        task, name = found
        yield Place(task.id, name)


def preempt_for_better(system: System, overhead: Overhead) -> Iterator[Preempt]:
    """Principle C: a task that fits its resource badly makes way for one that fits better."""
    for name in list(system.usable()):
        wanted = -system.spare(name) - system.leaving(name)
        while wanted > 0:
            victim = _worst_fitting(system, name, overhead)
            if victim is None:
                break
            yield Preempt(victim.id, system.best(victim.row))
            wanted -= 1


def migrate_to_idle(system: System, overhead: Overhead) -> Iterator[Preempt]:
    """Principle D: a running task moves to an idle resource that fits it better."""
    while (found := _best_move(system, overhead)) is not None:
        task, name = found
        yield Preempt(task.id, name)


def wake_when_settled(system: System, overhead: Overhead) -> Iterator[Wake]:
    """Look again when the next task that the heuristic kept back may be moved."""
    settled = (
        overhead.settled_at(task)
        for state in system.states.values()
        for task in state.running.values()
        if task.came_from is not None and not task.preempting
    )
    at = min((at for at in settled if at > system.now), default=None)
    if at is not None:
        yield Wake(at)


def _idle(system: System) -> list[str]:
    """Names of the resources with a slot that no task takes or is about to take."""
    return [r for r in system.usable() if system.spare(r) > system.inbound(r)]


def _best_steal(system: System) -> tuple[TaskRecord, str] | None:
    """Find the waiting task and idle resource with the highest affinity.

    Ties go to the first to arrive.
    """
    pairs = (
        (-system.affinity(task.row, name), task.sequence, name, task)
        for name in _idle(system)
        for other in system.states
        if other != name and len(system.queue(other))
        for task in system.waiting(other)
        if system.affinity(task.row, name) > 0
    )
    best = min(pairs, key=lambda pair: pair[:3], default=None)
    return (best[3], best[2]) if best is not None else None


def _worst_fitting(system: System, name: str, overhead: Overhead) -> TaskRecord | None:
    """Find the running task with the lowest affinity, below that of the queue's head."""
    head = system.queue(name).head()
    if head is None:
        return None
    wanted = system.affinity(head.row, name)
    worse = [
        (system.affinity(task.row, name), task.sequence, task)
        for task in system.running(name)
        if _may_leave(system, task.row, name, wanted)
        and overhead.allows(task, system.best(task.row), system)
    ]
    lowest = min(worse, key=lambda found: found[:2], default=None)
    return lowest[2] if lowest is not None else None


def _may_leave(system: System, row: Row, name: str, wanted: float) -> bool:
    return system.affinity(row, name) < wanted and system.best(row) not in (None, name)


def _best_move(system: System, overhead: Overhead) -> tuple[TaskRecord, str] | None:
    """Find the running task and idle resource where affinity would grow most."""
    pairs = (
        (
            system.affinity(task.row, task.resource or "")
            - system.affinity(task.row, name),
            task.sequence,
            name,
            task,
        )
        for name in _idle(system)
        for other in system.states
        if other != name
        for task in system.running(other)
        if overhead.allows(task, name, system)
    )
    best = min(pairs, key=lambda pair: pair[:3], default=None)
    return (best[3], best[2]) if best is not None and best[0] < 0 else None
