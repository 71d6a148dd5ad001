"""Arrays: groups of tasks of one owner, of which a limited number may run at once.

A member is *admitted* while it waits for a resource or runs. The others wait, in order, hidden
from policies, until admitted ones end, are held, or pause after a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from hetsched.queues import RunQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.ids import TaskId
    from hetsched.system import System
    from hetsched.tasks import TaskRecord

ArrayKey: TypeAlias = tuple[int, str]
"""The owner of an array, and its name."""


def array_of(task: TaskRecord) -> ArrayKey | None:
    """Return the array of a task; None: it is in none, or that has no limit."""
    submitted = task.submitted
    return (submitted.owner, submitted.array) if submitted.at_once else None


class ArrayLimits:
    """Admits tasks within the limits of their arrays.

    The waiting members are in `System.arrays`; an array without any is not there.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._admitted: dict[ArrayKey, set[TaskId]] = {}
        self.to_review: dict[ArrayKey, None] = {}
        """Arrays of which a member has left; read only."""

    def admit(self, task: TaskRecord) -> bool:
        """Admit a task that is about to wait for a resource, if it may; return whether."""
        key = array_of(task)
        if key is None:
            return True
        admitted = self._admitted.get(key, ())
        if task.id in admitted:
            return True
        if key in self._system.arrays or len(admitted) >= task.submitted.at_once:
            return False
        self.enter(task)
        return True

    def enter(self, task: TaskRecord) -> None:
        """Count a task as admitted: it runs, or may wait for a resource."""
        key = array_of(task)
        if key is not None:
            self._admitted.setdefault(key, set()).add(task.id)

    def leave(self, task: TaskRecord) -> None:
        """Stop counting a task that does not wait for a resource or run any more."""
        key = array_of(task)
        if key is None or task.id not in self._admitted.get(key, ()):
            return
        self._admitted[key].remove(task.id)
        if not self._admitted[key]:
            del self._admitted[key]
        self.to_review[key] = None

    def defer(self, task: TaskRecord) -> None:
        """Let a task wait until members of its array leave."""
        key = array_of(task)
        if key is not None:
            self._system.arrays.setdefault(key, RunQueue()).push(task, task.rank)

    def withdraw(self, task: TaskRecord) -> bool:
        """Remove a task from those that wait for their array; return whether it was there."""
        key, queue = array_of(task), self._system.array_queue(task)
        if key is None or queue is None:
            return False
        queue.remove(task)
        if not queue:
            del self._system.arrays[key]
        return True

    def admit_deferred(self, most: int) -> Iterator[TaskRecord]:
        """Admit and yield waiting members, in order; at most `most`."""
        while self.to_review:
            key = next(iter(self.to_review))
            queue = self._system.arrays.get(key)
            task = queue.head() if queue is not None else None
            admitted = len(self._admitted.get(key, ()))
            if task is None or admitted >= task.submitted.at_once:
                del self.to_review[key]
                continue
            if most <= 0:
                return
            most -= 1
            self.withdraw(task)
            self.enter(task)
            yield task

    @property
    def may_admit(self) -> bool:
        """Whether waiting members may be admitted."""
        return not self.to_review.keys().isdisjoint(self._system.arrays)
