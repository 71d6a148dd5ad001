"""The tasks that the code of a running task waits for."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hetsched.ids import TaskId


class AwaitedTasks:
    """The tasks that one waits for, and those that these come after, to look at in turn."""

    def __init__(self, tasks: Sequence[TaskId]) -> None:
        self._known = dict.fromkeys(tasks)
        self._turns = deque(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[TaskId]:
        return iter(self._known)

    def take(self) -> TaskId:
        """Return the next one, which is then to be forgotten or to be put back."""
        return self._turns.popleft()

    def put_back(self, task: TaskId) -> None:
        self._turns.append(task)

    def forget(self, task: TaskId) -> None:
        del self._known[task]

    def put_first(self, tasks: Iterable[TaskId]) -> int:
        """Add those that are not there, as the next ones; return how many these are."""
        new = [each for each in tasks if each not in self._known]
        self._known.update(dict.fromkeys(new))
        self._turns.extendleft(new)
        return len(new)
