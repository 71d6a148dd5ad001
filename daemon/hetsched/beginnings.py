"""Instants before which waiting tasks may not begin.

A task waits for the instant at which its owner wants it to begin, and in the pause after a
failure, if its owner wants it to be run again.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from hetsched.breaker import SECOND

if TYPE_CHECKING:
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.tasks import TaskRecord

LONGEST_PAUSE_S = 60
FEW = 64
"""Entries of tasks that do not wait any more that may stay, however few others there are."""


def pause(failures: int) -> Nanoseconds:
    """Return the pause after the n-th failure of a task: 1 s, 2 s, 4 s, up to a minute."""
    longest_shift = LONGEST_PAUSE_S.bit_length()
    return min(LONGEST_PAUSE_S, 1 << min(failures - 1, longest_shift)) * SECOND


class Beginnings:
    """The waiting tasks that may not begin before an instant, in order of these instants.

    Attributes:
        tasks: these tasks; read only.

    """

    def __init__(self) -> None:
        self._heap: list[tuple[Nanoseconds, TaskId]] = []
        self.tasks: dict[TaskId, TaskRecord] = {}

    def __contains__(self, task: TaskRecord) -> bool:
        return task.id in self.tasks

    def add(self, task: TaskRecord) -> None:
        """Add a task that waits for its `not_before`."""
        self.tasks[task.id] = task
        heappush(self._heap, (task.not_before, task.id))
        if len(self._heap) > 2 * len(self.tasks) + FEW:
            self._heap = [(each.not_before, each.id) for each in self.tasks.values()]
            heapify(self._heap)

    def remove(self, task: TaskRecord) -> None:
        """Remove a task that does not wait any more, if it is there."""
        self.tasks.pop(task.id, None)

    def next(self) -> Nanoseconds | None:
        """Return the first instant; None: no task waits for one."""
        while self._heap and not self._waits(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def is_due(self, now: Nanoseconds) -> bool:
        """Whether the first instant has come."""
        first = self.next()
        return first is not None and first <= now

    def pop(self) -> TaskRecord:
        """Remove the task of the first instant."""
        self.next()
        _, task = heappop(self._heap)
        return self.tasks.pop(task)

    def _waits(self, entry: tuple[Nanoseconds, TaskId]) -> bool:
        at, task = entry
        record = self.tasks.get(task)
        return record is not None and record.not_before == at
