"""The ledger: the system's state, and the steps by which it changes.

Decisions of the policy are steps; events are made of steps by `intake`. Called by the
scheduler and the intake only. The actions that follow are collected in `actions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.core import actions as a
from hetd.core.quotas import Gate, Turns
from hetd.core.system import SECOND
from hetd.core.tasks import Row, State, TaskRecord
from libtask.errors import BugError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetd.core.actions import Action
    from hetd.core.events import TaskId, TaskSubmitted
    from hetd.core.queues import RunQueue
    from hetd.core.scheduler import Limits
    from hetd.core.system import ResourceState, System

ROWS_KEPT = 1024
"""Rows that may be kept besides twice those of live tasks: types come and go for years."""


class Ledger:
    """Books every change of the system's state."""

    def __init__(self, system: System, limits: Limits, first_epoch: int) -> None:
        self.system = system
        self.limits = limits
        self.actions: list[Action] = []
        self.gate = Gate(system, limits.quotas)
        self._turns = Turns()
        self._epoch = first_epoch
        self._sequence = 0
        self._rows: dict[tuple[object, ...], Row] = {}
        self._row_limit = ROWS_KEPT
        self._dependents: dict[TaskId, list[TaskRecord]] = {}
        self._replaced: dict[TaskId, TaskRecord] = {}

    def begin(self) -> None:
        """Start a new list of actions."""
        self.actions = []

    def finish(self) -> list[Action]:
        """Close the list: tell of the tasks that wait elsewhere than before."""
        if self.gate.waits:
            # The policy gave a task up: there is room for another, of which to tell it.
            self.actions.append(a.SetTimer(self.system.now + 1))
        if self._replaced:
            for task in self._replaced.values():
                if task.state.placeable:
                    self.record(task, "placed" if task.resource else "unplaced")
            self._replaced.clear()
        return self.actions

    # ------------------------------------------------------------ decisions

    def place(self, task_id: TaskId, resource: str, rank: float) -> None:
        """Put a waiting task into a run queue, out of the one where it waits."""
        task = self._waiting(task_id)
        if self.gate.queue_outside(task) is not None:
            return  # not up for a slot, whatever a policy wants
        if resource not in self.system.affinities(task.row):
            raise BugError(f"task {task_id} cannot run on {resource}: {task.tell()}")
        self._queue_of(task).remove(task)
        self._push(task, resource, rank)
        self.tell_where(task)

    def preempt(self, task_id: TaskId, destination: str | None) -> None:
        """Ask a running task to yield; once more with another destination: redirect it."""
        task = self.system.tasks[task_id]
        if task.state is not State.RUNNING:
            raise BugError(f"task {task_id} is {task.state}: it cannot be preempted")
        if task.cancelling is not None:
            return
        # A task to be held goes nowhere, whatever a policy wants.
        task.destination = None if task.holding else destination
        if not task.preempting:
            task.preempting = True
            self.system.departing[task.id] = task
            self.actions.append(a.Preempt(task.id, task.epoch))

    def drop(self, task_id: TaskId, reason: str) -> None:
        """Give a waiting task up."""
        task = self._waiting(task_id)
        self._queue_of(task).remove(task)
        self.end(task, "Dropped", reason)

    def dispatch(self, task: TaskRecord, state: ResourceState) -> None:
        """Give a task, already out of its queue, a free slot."""
        name = state.resource.name
        self._turns.take(task.turn)
        if task.last_resource is not None and task.last_resource != name:
            task.moves += 1
            task.came_from = task.last_resource
        task.advance("Dispatched", self.system.now)
        self.occupy(task, state)
        self._replaced.pop(task.id, None)
        self._bind(task)
        self.actions.append(a.Run(task.id, task.epoch, name))
        self.record(task, "dispatched")

    def stage(self, task: TaskRecord) -> None:
        self._bind(task)
        self.actions.append(a.Stage(task.id, task.epoch))

    def unplace_all(self) -> None:
        """Take every task out of the run queues, for a new policy to place."""
        for state in self.system.states.values():
            self.unplace(state)

    # ------------------------------------------------------------ steps

    def admit(self, event: TaskSubmitted) -> TaskRecord:
        """Make the record of an accepted task; it is in no queue yet."""
        if event.task in self.system.tasks:
            raise BugError(f"task {event.task} was submitted twice")
        self._sequence += 1
        row = self._row(event, event.resources)
        task = TaskRecord(event.task, row, event, self.system.now, self._sequence)
        task.turn = self._draw_turn(task)
        if event.after:
            self._await(task)
        self.system.tasks[task.id] = task
        self.system.tally.arrive(event.type)
        return task

    def current(self, task_id: TaskId, epoch: int) -> TaskRecord | None:
        """Find the task that a worker holds, unless the epoch is an old one."""
        task = self.system.tasks.get(task_id)
        return task if task and task.bound and task.epoch == epoch else None

    def rerow(self, task: TaskRecord) -> None:
        """Take up a changed set of allowed resources; the task is in no queue."""
        allowed = task.submitted.resources
        if task.pinned is not None:
            allowed = frozenset({task.pinned})
        elif task.excluded:
            allowed = (allowed or frozenset(self.system.resources)) - task.excluded
            # An empty set would mean any resource; no resource has an empty name.
            allowed = allowed or frozenset({""})
        task.row = self._row(task.submitted, allowed)

    def occupy(self, task: TaskRecord, state: ResourceState) -> None:
        """Let a task have a slot from now on."""
        self.gate.enter(task)
        task.resource = task.last_resource = state.resource.name
        task.since = task.progress_at = self.system.now
        task.progress_then = task.progress
        state.running[task.id] = task

    def enqueue(self, task: TaskRecord, resource: str | None = None) -> None:
        """Let a task in no queue wait for `resource`; else for the policy to place it."""
        if not self.gate.admits(task):
            task.resource = None
            self.gate.keep_out(task)
            return
        if resource is not None and resource not in self.system.affinities(task.row):
            resource = None
        self._push(task, resource, task.rank)

    def let_in(self) -> None:
        """Let tasks come in from outside that their owners' quotas allow by now."""
        for task in self.gate.coming_in():
            self._push(task, None, task.rank)

    def keep_out_unfit(self) -> None:
        """Keep those tasks out that wait for a resource to come back; see `Gate.admits`."""
        if not self.gate.quotas.limited:
            return
        for row in list(self.system.unplaced.rows()):
            if not self.system.affinities(row):
                self._keep_out_row(row)

    def keep_out_unattended(self, owner: int) -> None:
        """Keep out what waits for a worker that nobody makes; see `Gate.close`."""
        for task in self.system.tasks.values():
            waits = task.state.placeable and self.gate.queue_outside(task) is None
            if waits and task.submitted.owner == owner and not self.gate.admits(task):
                self._queue_of(task).remove(task)
                task.resource = None
                self.gate.keep_out(task)
                self.tell_where(task)

    def unplace(self, state: ResourceState) -> None:
        """Empty a run queue, for the policy to place its tasks anew."""
        for task in list(state.queue):
            state.queue.remove(task)
            self._push(task, None, task.rank)
            self.tell_where(task)

    def withdraw(self, task: TaskRecord) -> None:
        """Take a task out of the slot or the queue where it is."""
        if task.state.placeable:
            self._queue_of(task).remove(task)
        elif task.state is State.RUNNING and task.resource is not None:
            del self.system.states[task.resource].running[task.id]
            self.system.departing.pop(task.id, None)
            task.preempting = False

    def hold(self, task: TaskRecord) -> None:
        """Let a task in no queue wait for its owner."""
        self.gate.leave(task)
        task.resource = None
        if task.state is not State.HELD:
            task.advance("TaskHeld", self.system.now)

    def retry(self, task: TaskRecord, event: str, reason: str) -> None:
        """Begin again from the last snapshot or the start, wherever the policy says."""
        task.progress, task.rank = task.kept, 0.0
        task.destination = task.last_resource = task.came_from = None
        task.bound = False
        task.advance(event, self.system.now)
        self.rerow(task)
        if task.holding or task.state is State.HELD:
            self.hold(task)
        else:
            self.enqueue(task)
        self.record(task, "retried", reason)

    def lose(self, task: TaskRecord, reason: str, *, begun: bool = True) -> None:
        """Take it that no worker holds the task any more, nor what no snapshot holds."""
        self.withdraw(task)
        task.bound = False
        task.attempts += begun
        limit = self.limits.attempts
        if task.cancelling is not None:
            self.end(task, "TaskAborted", task.cancelling)
        elif task.attempts >= limit and task.state is not State.HELD:
            reason = f"{reason}; {task.attempts} attempts are the limit"
            self.end(task, "TaskFailed", reason)
        else:
            self.retry(task, "WorkerLost", reason)

    def release_worker(self, task: TaskRecord) -> None:
        """Make the worker give up the task, unless that was asked already."""
        if task.bound and task.cancelling is None:
            self.actions.append(a.Abort(task.id, task.epoch))
        task.bound = False

    def end(self, task: TaskRecord, event: str, reason: str | None) -> None:
        """Close the record of a task in no queue, and of those that cannot follow it."""
        self._close(task, event, reason)
        ended = [task]
        # A list, no recursion: chains of dependents may be long.
        for predecessor in ended:
            ended.extend(self._follow(predecessor))

    def tell_where(self, task: TaskRecord) -> None:
        """Have `finish` tell where a task waits, once it is decided."""
        self._replaced[task.id] = task

    def record(self, task: TaskRecord, event: str, reason: str | None = None) -> None:
        """Have the shell keep and publish the task's state."""
        record = a.Record(task.id, task.state, event, task.resource, reason)
        self.actions.append(record)

    # ------------------------------------------------------------ parts of steps

    def _row(self, event: TaskSubmitted, resources: frozenset[str]) -> Row:
        key = (event.type, event.kinds, resources, event.work)
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= self._row_limit:
                self._forget_rows()
            row = self._rows[key] = Row(event.type, event.kinds, resources, event.work)
        return row

    def _forget_rows(self) -> None:
        """Forget the rows that no live task has."""
        live = {task.row for task in self.system.tasks.values()}
        self._rows = {key: row for key, row in self._rows.items() if row in live}
        self._row_limit = 2 * len(self._rows) + ROWS_KEPT
        self.system.forget_fits()

    def _await(self, task: TaskRecord) -> None:
        live = self.system.tasks
        task.unmet = frozenset(other for other in task.submitted.after if other in live)
        for other in task.unmet:
            self._dependents.setdefault(other, []).append(task)

    def _waiting(self, task_id: TaskId) -> TaskRecord:
        task = self.system.tasks[task_id]
        if not task.state.placeable:
            raise BugError(f"task {task_id} is {task.state}: it does not wait")
        return task

    def _queue_of(self, task: TaskRecord) -> RunQueue:
        if task.resource is None:
            return self.gate.queue_outside(task) or self.system.unplaced
        return self.system.states[task.resource].queue

    def _push(self, task: TaskRecord, resource: str | None, rank: float) -> None:
        task.resource = resource
        task.rank = rank
        self._queue_of(task).push(task, rank)

    def _bind(self, task: TaskRecord) -> None:
        if not task.bound:
            task.bound = True
            task.epoch = self._epoch
            self._epoch += 1

    def _draw_turn(self, task: TaskRecord) -> float:
        owner = task.submitted.owner
        expected = self.system.fit(task.row).expected.values()
        seconds = min(expected, default=SECOND) / SECOND
        return self._turns.draw(owner, seconds, self.gate.quotas.of(owner).share)

    def _keep_out_row(self, row: Row) -> None:
        unplaced = self.system.unplaced
        for task in [each for each in unplaced if each.row is row]:
            if not self.gate.admits(task):
                unplaced.remove(task)
                self.gate.keep_out(task)

    def _close(self, task: TaskRecord, event: str, reason: str | None) -> None:
        self.gate.leave(task)
        self.release_worker(task)
        task.advance(event, self.system.now)
        del self.system.tasks[task.id]
        deadline = task.submitted.deadline
        in_time = deadline is None or self.system.now <= deadline
        if task.state is State.COMPLETED and in_time:
            self.system.tally.complete(task.submitted.type)
        self.record(task, task.state.value, reason)

    def _follow(self, ended: TaskRecord) -> Iterator[TaskRecord]:
        """Let the dependents of a completed task go on; close those of any other."""
        for task in self._dependents.pop(ended.id, ()):
            if task.state.ended:
                continue
            task.unmet -= {ended.id}
            if ended.state is not State.COMPLETED:
                reason = (
                    f"task {ended.id}, which it comes after, ended as {ended.state}"
                )
                self._close(task, "DependencyEnded", reason)
                yield task
            elif not task.unmet and task.state is State.WAITING:
                task.advance("DependenciesMet", self.system.now)
                self.enqueue(task)
                self.record(task, "queued")
