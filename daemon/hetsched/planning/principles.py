"""The four principles of loesch-2016, section III-D, each as a generator of decisions.

The policies `affinity`, `work-conserving` and `migration` are made of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.planning.stealing import offers_in_turn, steal
from hetsched.policy import Place, Preempt, Wake
from hetsched.queues import ExpectedUse
from hetsched.system import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.ids import Nanoseconds
    from hetsched.planning.stealing import Offer
    from hetsched.queues import RunQueue
    from hetsched.system import System
    from hetsched.tasks import TaskRecord


RULE_A = "principle A: it goes where it fits best"
RULE_B = "principle B: an idle resource takes the waiting task that fits it best"
RULE_C = "principle C: it makes way for a task that fits the resource better"
RULE_D = "principle D: it moves to an idle resource that fits it better"


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
        if task.id in system.departing or task.resource is None:
            return False
        if destination == task.came_from and system.now < self.settled_at(task):
            return False
        return system.remaining(task, task.resource) >= self.minimum_remaining_s

    def settled_at(self, task: TaskRecord) -> Nanoseconds:
        """Return when a moved task may be moved back."""
        return task.since + int(self.minimum_run_s * SECOND)


def enqueue_at_best(system: System) -> Iterator[Place]:
    """Principle A: enqueue each arrived task to the resource with the highest affinity.

    A task that no usable resource can run stays unplaced.
    """
    for row in list(system.unplaced.rows()):
        best = system.best(row)
        while best is not None and row in system.unplaced.rows():
            task = system.unplaced.head_of(row)
            yield Place(task.id, best, task.rank, RULE_A)


def fill_idle(system: System, least_affinity: float = 0.0) -> Iterator[Place]:
    """Principle B: an idle resource takes the waiting task with the highest affinity to it.

    Of several owners' tasks it takes those of the owner whose turn it is.
    Of several idle resources, the one that the task fits best takes it. A task with less
    than `least_affinity` is left where it waits, and the resource idle: where energy
    counts, "it can be better to intentionally leave a resource idle" (III-D).
    """
    use = ExpectedUse()

    def offers(idle: list[str]) -> list[Offer]:
        def of_owner(waiting: list[tuple[str, TaskRecord]]) -> list[Offer]:
            return _offers_of_waiting(waiting, system, idle, least_affinity)

        return offers_in_turn(_waiting_for(system, idle), use, of_owner)

    for task, name in steal(system.idle, offers):
        use.charge(task)
        yield Place(task.id, name, rule=RULE_B)


def preempt_for_better(system: System, overhead: Overhead) -> Iterator[Preempt]:
    """Principle C: a task that fits its resource badly makes way for one that fits better.

    The worst fitting task makes way first, for the waiting task that would go first.
    """
    for name, misfits in _misfits(system).items():
        victims = _allowed(misfits, system, overhead)
        waiting = _next(system, name, len(victims))
        for task, victim in zip(waiting, victims, strict=False):
            if system.affinity(task.row, name) <= system.affinity(victim.row, name):
                break
            yield Preempt(victim.id, system.best(victim.row), RULE_C, makes_way=True)


def migrate_to_idle(system: System, overhead: Overhead) -> Iterator[Preempt]:
    """Principle D: a running task moves to an idle resource that fits it better."""
    misfits = [task for found in _misfits(system).values() for task in found]

    def offers(idle: list[str]) -> list[Offer]:
        return _offers_of_running(system, misfits, idle, overhead)

    for task, name in steal(system.idle, offers) if misfits else ():
        yield Preempt(task.id, name, RULE_D)


def any_misfit(system: System) -> bool:
    """Whether a running task would fit another resource better; C and D need one."""
    for name, state in system.states.items():
        for task in state.running.values():
            if system.fit(task.row).best != name:
                return True
    return False


def any_surplus(system: System) -> bool:
    """Whether a task waits that no free slot takes; B needs one."""
    for state in system.states.values():
        entries = state.queue.entries
        if entries and len(entries) > state.slots - len(state.running):
            return True
    return False


def wake_when_settled(system: System, overhead: Overhead) -> Iterator[Wake]:
    """Wake when the next task that the heuristic may keep back has settled."""
    settled = [
        overhead.settled_at(task)
        for misfits in _misfits(system).values()
        for task in misfits
        if task.came_from is not None
        and system.affinity(task.row, task.came_from) > _affinity_here(system, task)
    ]
    at = min((at for at in settled if at > system.now), default=None)
    if at is not None:
        yield Wake(at)


def _misfits(system: System) -> dict[str, list[TaskRecord]]:
    """Find the running tasks that fit another resource best, by where they run.

    Those that were asked to leave already are not among them.
    """
    found: dict[str, list[TaskRecord]] = {}
    for name, state in system.states.items():
        for task in state.running.values():
            best = system.fit(task.row).best
            if best != name and best is not None and task.id not in system.departing:
                found.setdefault(name, []).append(task)
    return found


def _allowed(
    misfits: list[TaskRecord], system: System, overhead: Overhead
) -> list[TaskRecord]:
    """List those that may move to where they fit best, the worst fitting first."""
    movable = [t for t in misfits if overhead.allows(t, system.best(t.row), system)]
    movable.sort(key=lambda t: (_affinity_here(system, t), t.sequence))
    return movable


def _next(system: System, name: str, count: int) -> list[TaskRecord]:
    """List the first waiting tasks that no free slot takes."""
    if not count or not system.queue(name):
        return []
    taken = max(system.opening(name), 0)
    return system.queue(name).first(taken + count)[taken:]


def _offers_of_waiting(
    waiting: list[tuple[str, TaskRecord]],
    system: System,
    idle: list[str],
    least_affinity: float,
) -> list[Offer]:
    """Offer waiting tasks by affinity to the idle resource; ties by order of arrival."""
    return [
        ((-affinities[name], task.sequence, name), task, name)
        for other, task in waiting
        for affinities in [system.affinities(task.row)]
        for name in idle
        if name != other and 0 < affinities.get(name, 0.0) >= least_affinity
    ]


def _waiting_for(system: System, idle: list[str]) -> Iterator[tuple[str, TaskRecord]]:
    """Iterate over the waiting tasks of resources with one that an idle resource can run."""
    for name, state in system.states.items():
        if state.queue and _has_one_for(state.queue, idle, system):
            for task in system.waiting(name):
                yield name, task


def _has_one_for(queue: RunQueue, idle: list[str], system: System) -> bool:
    """Whether any waiting task can run on an idle resource; quick where none can."""
    return any(
        not system.affinities(row).keys().isdisjoint(idle) for row in queue.rows()
    )


def _offers_of_running(
    system: System, misfits: list[TaskRecord], idle: list[str], overhead: Overhead
) -> list[Offer]:
    """Offer running tasks by how much affinity would grow."""
    return [
        ((loss, task.sequence, name), task, name)
        for task in misfits
        for name, affinity in system.affinities(task.row).items()
        if name in idle and overhead.allows(task, name, system)
        for loss in [_affinity_here(system, task) - affinity]
        if loss < 0
    ]


def _affinity_here(system: System, task: TaskRecord) -> float:
    """Affinity of a running task to where it runs; 0 where it may not any more."""
    return system.affinity(task.row, task.assigned_to)
