"""Waiting tasks of one row in order of their deadlines.

A run queue keeps one for each row once a policy asks. Tasks of a row differ in their
deadlines only, so that what a policy looks for is the first one between two instants.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetd.core.events import Nanoseconds

NEVER: Nanoseconds = 1 << 62
"""Deadline of a task that has none."""

T = TypeVar("T")


class DeadlineOrder(Generic[T]):
    """Tasks by deadline; among equals in the order in which they came here."""

    __slots__ = ("_instants", "_numbers", "_straight", "_tasks")

    def __init__(self) -> None:
        self._instants: list[Nanoseconds] = []
        self._numbers: list[int] = []
        self._tasks: list[T] = []
        # Whether the order of deadlines is that of arrival: no search is needed then.
        self._straight = True

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: T, number: int, deadline: Nanoseconds | None) -> None:
        """Enter a task; `number`: its place in the order of arrival."""
        at = NEVER if deadline is None else deadline
        index = bisect_right(self._instants, at)
        last = index == len(self._tasks)
        in_turn = last and (index == 0 or self._numbers[-1] < number)
        self._straight = in_turn and (self._straight or index == 0)
        self._instants.insert(index, at)
        self._numbers.insert(index, number)
        self._tasks.insert(index, task)

    def remove(self, task: T, deadline: Nanoseconds | None) -> None:
        """Take out a task that was entered with this deadline."""
        at = NEVER if deadline is None else deadline
        index = bisect_left(self._instants, at)
        while self._tasks[index] is not task:
            index += 1
        del self._instants[index], self._numbers[index], self._tasks[index]

    def soonest(self) -> tuple[Nanoseconds, int, T]:
        """Return the soonest deadline, its task's number and the task; not when empty."""
        return self._instants[0], self._numbers[0], self._tasks[0]

    def latest(self) -> tuple[Nanoseconds, int, T]:
        """Return the latest deadline, its task's number and the task; not when empty."""
        return self._instants[-1], self._numbers[-1], self._tasks[-1]

    def first_from(self, instant: Nanoseconds) -> tuple[Nanoseconds, int, T] | None:
        """Find the soonest deadline that is not before `instant`."""
        index = bisect_left(self._instants, instant)
        if index == len(self._tasks):
            return None
        return self._instants[index], self._numbers[index], self._tasks[index]

    def oldest(
        self, start: Nanoseconds = -NEVER, stop: Nanoseconds = NEVER + 1
    ) -> tuple[Nanoseconds, int, T] | None:
        """Find the first to have arrived of those with a deadline in [start, stop)."""
        low = bisect_left(self._instants, start)
        high = bisect_left(self._instants, stop)
        if low >= high:
            return None
        if not self._straight:
            numbers = self._numbers[low:high]
            low += numbers.index(min(numbers))
        return self._instants[low], self._numbers[low], self._tasks[low]

    def before(self, instant: Nanoseconds) -> list[T]:
        """List the tasks with a deadline before `instant`."""
        return self._tasks[: bisect_left(self._instants, instant)]

    def entries(self) -> Iterator[tuple[Nanoseconds, int, T]]:
        """Iterate over deadlines, numbers and tasks."""
        return zip(self._instants, self._numbers, self._tasks, strict=True)
