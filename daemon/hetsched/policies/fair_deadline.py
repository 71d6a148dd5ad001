"""`fair-deadline`: late binding by value; types that fall behind are worth more.

Where felare maps tasks ahead and evicts them again, this policy waits until a slot is
free. It examines running tasks at their checkpoints: a task that cannot meet its deadline
is stopped, unless it still can elsewhere: then it is moved there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched import events as e
from hetsched.planning.late_binding import (
    Chances,
    LateBinding,
    due,
    movable,
    time_elsewhere,
)
from hetsched.planning.mapper import drop_expired, drop_late_starters, wake_at_deadline
from hetsched.policy import Drop, Preempt
from hetsched.system import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.policy import Decision
    from hetsched.system import System
    from hetsched.tasks import TaskRecord


@dataclass(frozen=True, slots=True)
class FairDeadline:
    """Deadlines and fairness: binds late, prices types that fall behind, moves what pays.

    Attributes:
        spread: standard deviation of execution times, as a share of what is expected.
        margin: standard deviations kept as a safety margin.
        gain: how much one task behind the others raises the price of its type.
        least_chance: a task whose deadline is within the margin is not started with a
            smaller chance to meet it; the chance of a type that is behind counts for more.
        patience: leave tasks for a resource that takes less energy, if that can do it.
        preempt: move running tasks, and stop those that can no longer meet their deadline.
        hopeless: chance below which a running task is dropped.

    """

    spread: float = 0.1
    margin: float = 2.0
    gain: float = 0.1
    least_chance: float = 0.8
    patience: bool = True
    preempt: bool = True
    hopeless: float = 0.01

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        """Drop the tasks that are too late, then fill the free slots."""
        yield from drop_expired(system)
        yield from drop_late_starters(system)
        chances = Chances(self.spread, self.margin)
        if isinstance(event, e.TaskYielded):
            yield from _give_up_yielded(event, system)
        if self.preempt:
            yield from self._take_off(system, chances)
        if not isinstance(event, e.TaskReady | e.TaskStarted):
            binding = LateBinding(
                system,
                chances,
                self.gain,
                self.least_chance,
                self.patience,
                self.preempt,
            )
            yield from binding.fill()
        yield from wake_at_deadline(system)

    def _take_off(self, system: System, chances: Chances) -> Iterator[Preempt]:
        """Stop running tasks that can meet their deadline nowhere."""
        for task in list(movable(system)):
            lost = chances.of_running(task, system) < self.hopeless
            if lost and not _possible_elsewhere(task, system):
                yield Preempt(task.id)


def _possible_elsewhere(task: TaskRecord, system: System) -> bool:
    """Whether another resource, were it idle, could still finish a running task in time."""
    return any(
        system.now + time_elsewhere(task, system, name) <= due(task)
        for name in system.fit(task.row).expected
        if name != task.resource
    )


def _give_up_yielded(event: e.TaskYielded, system: System) -> Iterator[Drop]:
    """Drop a task that stopped at a checkpoint and cannot meet its deadline."""
    task = system.tasks.get(event.task)
    if task is None or task not in system.unplaced:
        return
    if not task.bound or task.epoch != event.epoch:
        return  # its worker has lost it: it starts from the beginning, and may wait
    left = {
        name: round(expected * task.left)
        for name, expected in system.fit(task.row).expected.items()
    }
    best = min(left, key=lambda name: left[name], default=None)
    if best is not None and system.now + left[best] > due(task):
        yield Drop(task.id, _explain(task, system, best, left[best]))


def _explain(task: TaskRecord, system: System, best: str, left: Nanoseconds) -> str:
    """Describe the deadline and the expected completion that were compared."""
    deadline = (due(task) - task.arrival) / SECOND
    end = (system.now + left - task.arrival) / SECOND
    return (
        f"deadline {deadline:.3f} s after submission: with {task.progress:.0%} done it "
        f"would be complete at {end:.3f} s on {best}, the soonest"
    )
