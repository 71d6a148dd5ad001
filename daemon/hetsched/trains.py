"""Trains: short tasks that are alike follow each other in one worker, without asking.

Between two tasks of a slot lies the way from the worker to the shell and back, some 1 to 2 ms
where all processors are busy. A worker that has the next task already begins it at once. What
has not begun can be recalled: a worker answers that within some 10 ms, or later if a task holds
the interpreter's lock. So a task may be in a train only if it is expected to be short and its
time varies little.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from hetsched.system import SECOND
from hetsched.tasks import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetsched.ids import Nanoseconds
    from hetsched.state import SchedulerState
    from hetsched.system import Resource, ResourceState
    from hetsched.tasks import TaskRecord

SURELY = 2
"""Standard deviations by which the expected time of a task in a train may be too short."""
WORTH_RECALL_S = 0.001
"""Expected time of the unstarted tasks of a train that is worth their recall, seconds."""


class Trains:
    """Extends trains, and recalls what delays urgent tasks.

    Args:
        state: of the scheduler.

    """

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._limits = state.limits
        self._estimates = state.system.estimates
        self._behind: list[tuple[Nanoseconds, int, TaskRecord]] = []
        """Heap of the tasks dispatched behind others: when each is overdue, its epoch."""

    def may_take(self, task: TaskRecord, resource: Resource) -> bool:
        """Whether a task may be in a train on a resource: it surely takes little time."""
        limits, estimates, row = self._limits, self._estimates, task.row
        if limits.train == 1 or resource.shared or not _may_share_slot(task):
            return False
        longest = 1 + SURELY * estimates.spread(row, resource)
        return estimates.seconds(row, resource) * longest <= limits.train_task_s

    def awaits(self, task: TaskRecord, state: ResourceState) -> bool:
        """Whether a waiting task will follow others in a train, as those before it do."""
        if not self.may_take(task, state.resource):
            return False
        return any(_is_like(task, other) for other in state.trailing.values())

    def adapt(self, states: Sequence[ResourceState]) -> None:
        """Extend the trains that became shorter, and recall what delays urgent tasks."""
        for task in self._state.successors:
            state = self._state.system.states[task.resource] if task.resource else None
            if state is not None and state.usable and task.id in state.running:
                self.extend(task, state)
        for state in states:
            if state.trailing and state.queue.touched and state.queue.entries:
                self._recall_for_urgent(state)

    def extend(self, first: TaskRecord, state: ResourceState) -> None:
        """Dispatch waiting tasks like `first`, which has a slot, behind it."""
        if not state.queue.entries or first.leaving or first.recalled:
            return
        if not self.may_take(first, state.resource):
            return
        seconds = self._estimates.seconds(first.row, state.resource)
        for _ in range(self._room_behind(first, state, seconds)):
            task = state.queue.next_of(first.row, self._limits.train_s)
            if task is None or not _is_like(task, first) or not _may_share_slot(task):
                return
            state.queue.remove(task)
            self._state.release_worker(task)  # where it is staged
            self._state.dispatch_behind(task, state, first)
            ahead = len(first.train) - 1 if first.train else 1
            wait = self._later(first, state, self._limits.train_due_s, ahead)
            due = self._state.system.now + wait
            heappush(self._behind, (due, task.epoch, task))

    def _room_behind(
        self, first: TaskRecord, state: ResourceState, seconds: float
    ) -> int:
        """Return how many tasks of some expected time may be added to a train."""
        limits = self._limits
        most = min(limits.train, max(2, int(limits.train_s / max(seconds, 1e-9))))
        present = 1 if first.train is None else len(first.train)
        if 2 * present > most + 1:
            return 0  # enough of it is there: several are dispatched together
        # the other slots get their share of the waiting tasks
        return min(most - present, len(state.queue) // state.slots)

    def next_recall(self) -> Nanoseconds | None:
        """Return the instant at which the next train is overdue; None: there is no train."""
        behind = self._behind
        while behind and not _still_waits(behind[0]):
            heappop(behind)
        return behind[0][0] if behind else None

    def recall_overdue(self) -> None:
        """Recall the tasks that wait behind others for longer than expected.

        This is done for a free slot, for another task that waits, or because the worker does
        not go on to the next task. Otherwise nothing would be gained by it: on a busy machine
        every task takes longer than expected.
        """
        behind, now, limits = self._behind, self._state.system.now, self._limits
        while behind and behind[0][0] <= now:
            entry = heappop(behind)
            if not _still_waits(entry):
                continue
            _, epoch, task = entry
            state = self._state.system.states[str(task.resource)]
            first = task.train[0] if task.train else task
            stuck = first.since + self._later(first, state, limits.train_stuck_s, 1)
            if stuck <= now or _is_wanted(first, state):
                self._state.recall(task)
            else:
                heappush(behind, (stuck, epoch, task))

    def _later(
        self, first: TaskRecord, state: ResourceState, seconds: float, tasks: int
    ) -> Nanoseconds:
        """Return some time and twice the expected time of some tasks of a train."""
        expected = self._estimates.seconds(first.row, state.resource)
        return int((seconds + 2 * expected * tasks) * SECOND)

    def _recall_for_urgent(self, state: ResourceState) -> None:
        """Recall what would go before a waiting task of higher priority for long."""
        (urgent,) = state.queue.first(1)
        for task in state.trailing.values():
            if task.submitted.priority >= urgent.submitted.priority or not task.train:
                continue
            seconds = self._estimates.seconds(task.row, state.resource)
            if seconds * (len(task.train) - 1) >= WORTH_RECALL_S:
                self._state.recall(task)


def _is_wanted(first: TaskRecord, state: ResourceState) -> bool:
    """Whether a slot is free for the tasks of a train, or another task waits for its slot."""
    if len(state.running) < state.slots:
        return True
    waiting = state.queue.first(1)
    return bool(waiting) and not _is_like(waiting[0], first)


def _still_waits(entry: tuple[Nanoseconds, int, TaskRecord]) -> bool:
    """Whether a task that was dispatched behind another one has not started since."""
    _due, epoch, task = entry
    return task.not_started and task.epoch == epoch and not task.recalled


def _may_share_slot(task: TaskRecord) -> bool:
    """Whether a task may share a slot: it has not failed, and needs no worker of its own."""
    submitted = task.submitted
    return not (
        task.never_in_train
        or task.attempts
        or task.progress
        or task.failures
        or submitted.served
        or submitted.single
        or task.pinned is not None
        or task.needs is not None
        or not task.preemptible
    )


def _is_like(task: TaskRecord, first: TaskRecord) -> bool:
    """Whether a waiting task has the row, owner, priority and workers of the first of a train.

    One that has yielded keeps its arrays in another worker.
    """
    mine, other = task.submitted, first.submitted
    return (
        task.row is first.row
        and task.state is State.QUEUED
        and mine.owner == other.owner
        and mine.priority == other.priority
        and mine.workers == other.workers
    )
