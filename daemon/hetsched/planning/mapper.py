"""The mapper: runs a heuristic at mapping events, drops late tasks, places chosen ones.

A mapping event is the arrival of a task, or a slot that becomes free. The policies `mm`,
`msd`, `mmu`, `elare` and `felare` are this mapper with one heuristic each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from hetsched import events as e
from hetsched.planning.hashed_random import drawn
from hetsched.planning.interpretation import MappingParameters
from hetsched.planning.machines import machines_of
from hetsched.planning.mapping import Bucket, MappingInput
from hetsched.policy import Drop, Place, Wake
from hetsched.queues import NEVER, DeadlineOrder
from hetsched.system import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.planning.interpretation import Interpretation
    from hetsched.planning.mapping import MappingOutcome
    from hetsched.policy import Decision
    from hetsched.system import System
    from hetsched.tasks import TaskRecord

T = TypeVar("T")
QUIET = (
    e.StripsDone,
    e.TaskReady,
    e.TaskStarted,
    e.TaskCancelled,
    e.TaskHeld,
    e.TaskAmended,
    e.TimerFired,
)
"""Events after which no mapping takes place: nothing arrives, no slot becomes free."""


class Heuristic(Protocol):
    """One pass of Phase I and Phase II."""

    def __call__(self, given: MappingInput[T]) -> MappingOutcome[T]:
        """Decide which tasks are mapped where, and which make way."""
        ...


@dataclass(frozen=True, slots=True)
class MappingPolicy(MappingParameters, ABC):
    """A heuristic as a policy; fields that a policy adds are its heuristic's own.

    Each arrival is a mapping event, and one event maps at most one task to a machine.
    """

    each_event: ClassVar[bool] = True

    @abstractmethod
    def heuristic(self) -> Heuristic:
        """Return one pass of the heuristic."""

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        """Drop what is late, run the mapping event, and wake at the next deadline."""
        yield from drop_expired(system)
        yield from drop_late_starters(system)
        if system.unplaced and (not isinstance(event, QUIET) or _stands_still(system)):
            yield from _map(system, self.interpretation(), self.heuristic())
        yield from wake_at_deadline(system)


def _stands_still(system: System) -> bool:
    """Whether nothing runs or is about to: no other event would ever follow."""
    return not any(s.running or s.queue for s in system.usable_states())


def _map(
    system: System, interpretation: Interpretation, heuristic: Heuristic
) -> Iterator[Decision]:
    """Run one pass, and another for each event that deferring a task causes."""
    deferred: dict[TaskRecord, int] = {}
    again = True
    while again and system.unplaced:
        outcome = heuristic(input_of(system, interpretation))
        yield from _carry_out(outcome)
        again = False
        if interpretation.deferrals is None:
            return
        for task, reason in _put_off(
            outcome, system, interpretation.deferrals, deferred
        ):
            again = True
            if reason:
                yield Drop(task.id, reason)


def _carry_out(outcome: MappingOutcome[TaskRecord]) -> Iterator[Decision]:
    for task in outcome.evicted:
        reason = f"made way on {task.resource} for a task of a type that falls behind"
        yield Drop(task.id, reason)
    for nominee in outcome.chosen:
        task, machine = nominee.task, nominee.machine
        yield Place(task.id, machine.name, machine.rank + 1.0)


def _put_off(
    outcome: MappingOutcome[TaskRecord],
    system: System,
    most: int,
    deferred: dict[TaskRecord, int],
) -> Iterator[tuple[TaskRecord, str]]:
    """Count the deferrals of each infeasible task; a task with too many has a reason."""
    for bucket, reach in outcome.hopeless:
        for task in bucket.order.before(reach):
            if task.resource is not None or task.id not in system.tasks:
                continue
            deferred[task] = deferred.get(task, 0) + 1
            late = deferred[task] > most
            yield task, explain_late(task, system) if late else ""


def input_of(
    system: System, interpretation: Interpretation
) -> MappingInput[TaskRecord]:
    """Describe the system at this instant."""
    return MappingInput(
        buckets_of(system, interpretation),
        machines_of(system, interpretation),
        interpretation,
        system.tally.rates(),
    )


def buckets_of(
    system: System, interpretation: Interpretation
) -> list[Bucket[TaskRecord]]:
    """Group the waiting tasks by row; one by one where the mapper draws their times."""
    buckets = []
    for row in list(system.unplaced.rows()):
        expected = system.fit(row).expected
        if expected:
            order = system.unplaced.deadlines_of(row)
            buckets.append(Bucket(row.type, expected, order))
    if not interpretation.drawn:
        return buckets
    return [
        one for bucket in buckets for one in _drawn(bucket, system, interpretation.seed)
    ]


def _drawn(
    bucket: Bucket[TaskRecord], system: System, seed: int
) -> Iterator[Bucket[TaskRecord]]:
    """Make a bucket for each task; its time on each machine is the same in every pass."""
    machines = {name: index for index, name in enumerate(system.resources)}
    for deadline, number, task in bucket.order.entries():
        order: DeadlineOrder[TaskRecord] = DeadlineOrder()
        order.add(task, number, deadline)
        times = {
            name: drawn(expected, seed, task.id, machines[name])
            for name, expected in bucket.expected.items()
        }
        yield replace(bucket, expected=times, order=order)


# ------------------------------------------------------------ deadlines


def drop_expired(system: System) -> Iterator[Drop]:
    """Drop the unplaced tasks whose deadline has passed."""
    unplaced = system.unplaced
    late = [
        task
        for row in unplaced.rows()
        for task in unplaced.deadlines_of(row).before(system.now + 1)
    ]
    for task in late:  # a list: where a part ends, tasks of any row may end with it
        yield Drop(task.id, explain_late(task, system))


def drop_late_starters(system: System) -> Iterator[Drop]:
    """Drop the tasks that would take a free slot now, after their deadline."""
    for state in system.usable_states():
        free = state.slots - len(state.running)
        while free > 0 and state.queue:
            late = [t for t in state.queue.first(free) if _due(t) <= system.now]
            if not late:
                break
            for task in late:
                yield Drop(task.id, explain_late(task, system))


def wake_at_deadline(system: System) -> Iterator[Wake]:
    """Wake at the next deadline of an unplaced task, to drop it."""
    unplaced = system.unplaced
    at = min(
        (unplaced.deadlines_of(r).soonest()[0] for r in unplaced.rows()), default=NEVER
    )
    if at < NEVER:
        yield Wake(at)


def _due(task: TaskRecord) -> Nanoseconds:
    deadline = task.submitted.deadline
    return NEVER if deadline is None else deadline


def explain_late(task: TaskRecord, system: System) -> str:
    """Say which expected completion was compared with which deadline."""
    due = (_due(task) - task.arrival) / SECOND
    waited = (system.now - task.arrival) / SECOND
    expected = system.fit(task.row).expected
    best = min(expected, key=lambda name: expected[name], default=None)
    if best is None:
        return f"deadline {due:.3f} s after submission: no resource can run it now"
    end = waited + expected[best] / SECOND
    return (
        f"deadline {due:.3f} s after submission: started at {waited:.3f} s it would be "
        f"complete at {end:.3f} s on {best}, its fastest resource"
    )
