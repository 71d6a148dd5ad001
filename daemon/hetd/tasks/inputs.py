"""Results of ended tasks that unfinished tasks take as parameters.

The journal keeps them here from the end of the one task to the end of the other, so that no
page is read when a task starts. Small results travel with the command to the worker; of the
others hetd only passes the name of a file in the owner's folder.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from libtask.messages import RESULT_INLINE, InputValue

if TYPE_CHECKING:
    from hetd.tasks.page import TaskPage
    from libtask.messages import TaskSpec


class InputResults:
    """The results that unfinished tasks take, by the tasks that completed with them."""

    def __init__(self) -> None:
        self.needed: Counter[int] = Counter()
        """Task -> number of unfinished tasks that take its result."""
        self._values: dict[int, InputValue] = {}

    def need(self, spec: TaskSpec) -> None:
        """Record that an unfinished task takes results."""
        self.needed.update(each.task for each in spec.inputs)

    def release(self, spec: TaskSpec) -> None:
        """Record that a task which took results has ended."""
        for each in spec.inputs:
            self.needed[each.task] -= 1
            if not self.needed[each.task]:
                del self.needed[each.task]
                self._values.pop(each.task, None)

    def is_needed(self, task: int) -> bool:
        return task in self.needed

    def missing(self) -> list[int]:
        """List the tasks whose results are needed and not known, in order."""
        return sorted(task for task in self.needed if task not in self._values)

    def keep(self, value: InputValue) -> None:
        """Keep a result that an unfinished task takes."""
        if value.task in self.needed:
            self._values[value.task] = value

    def knows(self, task: int) -> bool:
        return task in self._values

    def complete(self, page: TaskPage) -> None:
        """Keep the result of a completed task, if an unfinished task takes it."""
        if page.id in self.needed:
            self.keep(value_of(page))

    def of(self, spec: TaskSpec) -> list[InputValue]:
        """Return the known results that a task takes."""
        return [
            self._values[each.task]
            for each in spec.inputs
            if each.places and each.task in self._values
        ]


def value_of(page: TaskPage) -> InputValue:
    """Return the result of a completed task in the form that its takers receive."""
    size = len(msgspec.msgpack.encode(page.result))
    if size <= RESULT_INLINE:
        return InputValue(page.id, page.result)
    return InputValue(page.id, name=page.snapshots_name, bytes=size)


def result_forgotten(task: int) -> str:
    """Return why a task ends that takes the result of one whose page is removed."""
    return f"task {task}, whose result it takes, is no longer known"
