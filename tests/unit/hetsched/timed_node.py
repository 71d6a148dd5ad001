"""A node for tests of fair shares: its tasks take a time that its users may not state."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from builders import Harness, a_resource, a_task
from hetsched import events as e
from hetsched.actions import Run, SetTimer
from hetsched.estimates.point import own_type
from hetsched.ids import TaskId
from hetsched.limits import Limits
from hetsched.system import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hetsched.actions import Action
    from hetsched.estimates.table import EstimateTable
    from hetsched.events import TaskSubmitted
    from hetsched.system import Resource

ANN, BOB = 1000, 2000
SLOTS = 2


class Node:
    """Resources whose tasks take the time that is given here, whatever is expected of them.

    Attributes:
        used: owner -> seconds of the tasks that have ended.
        starts: (owner, resource) of the tasks that have started, in order.

    """

    def __init__(
        self,
        policy: str = "affinity",
        resources: Sequence[Resource] = (a_resource("cpu", slots=SLOTS),),
        seconds: dict[str, dict[str, float]] | None = None,
        **limits: Any,
    ) -> None:
        self.harness = Harness(resources, seconds, policy, Limits(stage=0, **limits))
        self.now = 0.0
        self.used: dict[int, float] = {ANN: 0.0, BOB: 0.0}
        self.starts: list[tuple[int, str]] = []
        self.takes: dict[int, float] = {}
        self._ends: list[tuple[float, int, int]] = []
        self._timer = math.inf

    @property
    def _next_end(self) -> float:
        return self._ends[0][0] if self._ends else math.inf

    def submit(self, *tasks: TaskSubmitted, takes: float = 1.0) -> None:
        self.takes |= {task.task: takes for task in tasks}
        self._follow(self.harness.handle_all(*tasks, at=self.now))

    def run(self, seconds: float) -> None:
        """Let tasks end, and measure them, for some time."""
        until = self.now + seconds
        while min(self._next_end, self._timer) <= until:
            if self._timer < self._next_end:
                self.now, self._timer = self._timer, math.inf
                self.handle(e.TimerFired())
                continue
            self.now, task, epoch = heappop(self._ends)
            record = self.system.tasks[TaskId(task)]
            self.used[record.submitted.owner] += self.takes[task]
            resource = self.system.resources[record.resource]
            self.table.observe(record.row, resource, self.takes[task], 0.0)
            self.handle(e.TaskFinished(TaskId(task), epoch))
        self.now = until

    def handle(self, event: Any) -> None:
        self._follow(self.harness.handle(event, self.now))

    @property
    def system(self) -> Any:
        return self.harness.scheduler.system

    @property
    def table(self) -> EstimateTable:
        table: EstimateTable = self.system.estimates
        return table

    @property
    def cpu(self) -> Any:
        return self.system.states["cpu"].resource

    def part_of(self, owner: int) -> float:
        return self.used[owner] / sum(self.used.values())

    def _follow(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, SetTimer):
                self._timer = action.at / SECOND
            if isinstance(action, Run):
                end = self.now + self.takes[action.task]
                heappush(self._ends, (end, action.task, action.epoch))
                owner = self.system.tasks[action.task].submitted.owner
                self.starts.append((owner, action.resource))


def tasks_of(
    owner: int,
    count: int = 100,
    *,
    states: float | None = 1.0,
    each_new: bool = False,
    first: int = 1,
) -> Iterator[TaskSubmitted]:
    """Make tasks of a user's own program, or each of another one."""
    for number in range(first, first + count):
        app = f"/home/{owner}/{number if each_new else 0}.py:App"
        seconds = () if states is None else (("cpu", states),)
        yield a_task(
            number,
            own_type(owner, f"{app}/1"),
            owner=owner,
            kinds={"cpu"},
            seconds=seconds,
            app=app,
        )
