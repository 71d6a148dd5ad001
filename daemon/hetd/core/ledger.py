"""The ledger: applies events and decisions to the system's state.

One method an event. Called by the scheduler only; every method leaves the invariants
of `checks` true. The actions that follow are collected in `actions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.core import actions as a
from hetd.core import events as e
from hetd.core.policy import FRONT
from hetd.core.tasks import Row, State, TaskRecord
from libtask.errors import BugError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetd.core.actions import Action
    from hetd.core.events import Event, TaskId
    from hetd.core.queues import RunQueue
    from hetd.core.scheduler import Limits
    from hetd.core.system import ResourceState, System


class Ledger:
    """Books every change of the system's state."""

    def __init__(self, system: System, limits: Limits, first_epoch: int) -> None:
        self.system = system
        self.limits = limits
        self.actions: list[Action] = []
        self._epoch = first_epoch
        self._sequence = 0
        self._rows: dict[tuple[object, ...], Row] = {}
        self._dependents: dict[TaskId, list[TaskRecord]] = {}
        self._placed: dict[TaskId, TaskRecord] = {}
        self._handlers: dict[type, Callable[..., None]] = {
            e.TaskSubmitted: self._on_submitted,
            e.TaskRestored: self._on_restored,
            e.StripsDone: self._on_strips_done,
            e.TaskYielded: self._on_yielded,
            e.TaskFinished: self._on_finished,
            e.TaskFailed: self._on_failed,
            e.TaskAborted: self._on_aborted,
            e.TaskCancelled: self._on_cancelled,
            e.TaskHeld: self._on_held,
            e.TaskReleased: self._on_released,
            e.TaskMoved: self._on_moved,
            e.WorkerLost: self._on_worker_lost,
            e.ResourceLost: self._on_resource_lost,
            e.ResourceReturned: self._on_resource_returned,
            e.ResourceDrained: self._on_resource_drained,
        }

    def begin(self) -> None:
        """Start a new list of actions."""
        self.actions = []

    def finish(self) -> list[Action]:
        """Close the list: tell of the placed tasks that did not start at once."""
        for task in self._placed.values():
            if task.state.placeable:
                self._record(task, "placed")
        self._placed.clear()
        return self.actions

    def take(self, event: Event) -> None:
        """Apply an event. `TaskReady`, `TaskStarted`, `TimerFired` change nothing here."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    # ------------------------------------------------------------ decisions

    def place(self, task_id: TaskId, resource: str, rank: float) -> None:
        """Put a waiting task into a run queue, out of the one where it waits."""
        task = self._waiting(task_id)
        if resource not in self.system.affinities(task.row):
            raise BugError(f"task {task_id} cannot run on {resource}")
        self._queue_of(task).remove(task)
        task.resource = resource
        task.rank = rank
        self.system.queue(resource).push(task, rank)
        self._placed[task.id] = task

    def preempt(self, task_id: TaskId, destination: str | None) -> None:
        """Ask a running task to yield; once more with another destination: redirect it."""
        task = self.system.tasks[task_id]
        if task.state is not State.RUNNING:
            raise BugError(f"task {task_id} is {task.state}: it cannot be preempted")
        task.destination = destination
        if not task.preempting and task.cancelling is None:
            task.preempting = True
            self.actions.append(a.Preempt(task.id, task.epoch))

    def drop(self, task_id: TaskId, reason: str) -> None:
        """Give a waiting task up."""
        task = self._waiting(task_id)
        self._queue_of(task).remove(task)
        self._end(task, "Dropped", reason)

    def dispatch(self, task: TaskRecord, state: ResourceState) -> None:
        """Give a task, already out of its queue, a free slot."""
        name = state.resource.name
        if task.last_resource not in (None, name):
            task.moves += 1
            task.came_from = task.last_resource
        task.advance("Dispatched", self.system.now)
        task.last_resource = name
        self._placed.pop(task.id, None)
        task.since = task.progress_at = self.system.now
        state.running[task.id] = task
        self._bind(task)
        self.actions.append(a.Run(task.id, task.epoch, name))
        self._record(task, "dispatched")

    def stage(self, task: TaskRecord) -> None:
        self._bind(task)
        self.actions.append(a.Stage(task.id, task.epoch))

    def unplace_all(self) -> None:
        """Take every task out of the run queues, for a new policy to place."""
        for state in self.system.states.values():
            self._unplace(state)

    # ------------------------------------------------------------ events of users

    def _on_submitted(self, event: e.TaskSubmitted) -> None:
        task = self._admit(event)
        task.unmet = {other for other in event.after if other in self.system.tasks}
        for other in task.unmet:
            self._dependents.setdefault(other, []).append(task)
        if event.hold:
            task.state = State.HELD
        elif task.unmet:
            task.state = State.WAITING
        else:
            self.system.unplaced.push(task)
        self._record(task, "submitted")

    def _on_restored(self, event: e.TaskRestored) -> None:
        task = self._admit(event.submitted)
        task.progress = event.progress
        state = self.system.states.get(event.resource)
        if state is None or len(state.running) >= state.resource.slots:
            task.progress = 0.0
            self.system.unplaced.push(task)
            self.actions.append(a.Abort(task.id, event.epoch))
            return
        task.state = State.RUNNING
        task.resource = task.last_resource = event.resource
        task.epoch = event.epoch
        task.bound = True
        task.since = task.progress_at = self.system.now
        state.running[task.id] = task

    def _on_cancelled(self, event: e.TaskCancelled) -> None:
        task = self.system.tasks.get(event.task)
        if task is None or task.cancelling is not None:
            return
        if task.state is State.RUNNING:
            task.cancelling = event.reason
            self.actions.append(a.Abort(task.id, task.epoch))
            return
        if task.state.placeable:
            self._queue_of(task).remove(task)
        self._release_worker(task)
        self._end(task, "TaskCancelled", event.reason)

    def _on_held(self, event: e.TaskHeld) -> None:
        task = self.system.tasks[event.task]
        if task.state is State.HELD:
            return
        if task.state is State.RUNNING:
            task.holding = True
            self.preempt(task.id, None)
            return
        if task.state.placeable:
            self._queue_of(task).remove(task)
            task.resource = None
        task.advance("TaskHeld", self.system.now)
        self._record(task, "held")

    def _on_released(self, event: e.TaskReleased) -> None:
        task = self.system.tasks[event.task]
        task.holding = False
        if task.state is not State.HELD:
            return
        if task.unmet:
            task.state = State.WAITING
        else:
            task.advance("TaskReleased", self.system.now)
            self.system.unplaced.push(task)
        self._record(task, "released")

    def _on_moved(self, event: e.TaskMoved) -> None:
        task = self.system.tasks[event.task]
        task.pinned = event.resource
        if task.state is State.RUNNING:
            if task.preempting or task.resource != event.resource:
                self.preempt(task.id, event.resource)
            return
        waits = task.state.placeable
        if waits:
            self._queue_of(task).remove(task)
        self._rerow(task)
        if waits:
            self._queue_up(task, event.resource)

    # ------------------------------------------------------------ events of workers

    def _on_strips_done(self, event: e.StripsDone) -> None:
        task = self._current(event.task, event.epoch)
        if task is not None:
            task.progress = event.progress
            task.progress_at = self.system.now

    def _on_yielded(self, event: e.TaskYielded) -> None:
        task = self._current(event.task, event.epoch)
        if task is None or task.state is not State.RUNNING:
            return
        self._leave(task)
        task.progress = event.progress
        task.advance("TaskYielded", self.system.now)
        self._rerow(task)
        if task.cancelling is not None:
            self._release_worker(task)
            self._end(task, "TaskCancelled", task.cancelling)
        elif task.holding:
            task.advance("TaskHeld", self.system.now)
            self._record(task, "held")
        else:
            self._queue_up(task, task.destination)
        task.destination = None

    def _on_finished(self, event: e.TaskFinished) -> None:
        task = self._current(event.task, event.epoch)
        if task is None or task.state is not State.RUNNING:
            return
        self._leave(task)
        task.bound = False
        self._end(task, "TaskFinished", None)

    def _on_failed(self, event: e.TaskFailed) -> None:
        task = self._current(event.task, event.epoch)
        if task is None or not task.bound:
            return
        task.bound = False
        if task.state is State.HELD:
            return  # a staged task that was held; it is staged anew when released
        ran_on = task.resource if task.state is State.RUNNING else None
        self._withdraw(task)
        if event.elsewhere and ran_on is not None and task.cancelling is None:
            task.excluded |= {ran_on}
            self._rerow(task)
            if self.system.affinities(task.row):
                self._retry(task, "Retried", event.reason)
                return
        self._end(task, "TaskFailed", event.reason)

    def _on_aborted(self, event: e.TaskAborted) -> None:
        task = self._current(event.task, event.epoch)
        if task is None or task.state is not State.RUNNING:
            return
        self._leave(task)
        task.bound = False
        if task.cancelling is not None:
            self._end(task, "TaskAborted", task.cancelling)
        else:
            self._retry(task, "Retried", "given up by its worker")

    def _on_worker_lost(self, event: e.WorkerLost) -> None:
        task = self._current(event.task, event.epoch)
        if task is None or not task.bound:
            return
        self._withdraw(task)
        task.bound = False
        task.attempts += 1
        if task.cancelling is not None:
            self._end(task, "TaskAborted", task.cancelling)
        elif task.attempts >= self.limits.attempts and task.state is not State.HELD:
            reason = f"{event.reason}; {task.attempts} attempts are the limit"
            self._end(task, "TaskFailed", reason)
        else:
            self._retry(task, "WorkerLost", event.reason)

    # ------------------------------------------------------------ events of resources

    def _on_resource_lost(self, event: e.ResourceLost) -> None:
        state = self.system.states[event.resource]
        state.up = False
        self.system.forget_affinities()
        self._unplace(state)
        reason = f"{event.resource} was lost: {event.reason}"
        for task in list(state.running.values()):
            self.actions.append(a.Abort(task.id, task.epoch))
            self._on_worker_lost(e.WorkerLost(task.id, task.epoch, reason))

    def _on_resource_returned(self, event: e.ResourceReturned) -> None:
        state = self.system.states[event.resource]
        state.up = True
        state.draining = False
        self.system.forget_affinities()

    def _on_resource_drained(self, event: e.ResourceDrained) -> None:
        state = self.system.states[event.resource]
        state.draining = True
        self.system.forget_affinities()
        self._unplace(state)
        for task in state.running.values():
            # What can run nowhere else goes on to its end.
            if self.system.affinities(task.row):
                self.preempt(task.id, None)

    # ------------------------------------------------------------ steps

    def _admit(self, event: e.TaskSubmitted) -> TaskRecord:
        if event.task in self.system.tasks:
            raise BugError(f"task {event.task} was submitted twice")
        self._sequence += 1
        row = self._row(event, event.resources)
        task = TaskRecord(event.task, row, event, self.system.now, self._sequence)
        self.system.tasks[task.id] = task
        return task

    def _row(self, event: e.TaskSubmitted, resources: frozenset[str]) -> Row:
        key = (event.type, event.kinds, resources, event.work)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = Row(event.type, event.kinds, resources, event.work)
        return row

    def _rerow(self, task: TaskRecord) -> None:
        """Take up a changed set of allowed resources; the task is in no queue."""
        allowed = task.submitted.resources
        if task.pinned is not None:
            allowed = frozenset({task.pinned})
        elif task.excluded:
            allowed = (allowed or frozenset(self.system.resources)) - task.excluded
            allowed = allowed or frozenset({"-"})
        task.row = self._row(task.submitted, allowed)

    def _current(self, task_id: TaskId, epoch: int) -> TaskRecord | None:
        """Find the task, unless it has ended or the epoch is an old one."""
        task = self.system.tasks.get(task_id)
        return task if task is not None and task.epoch == epoch else None

    def _waiting(self, task_id: TaskId) -> TaskRecord:
        task = self.system.tasks[task_id]
        if not task.state.placeable:
            raise BugError(f"task {task_id} is {task.state}: it does not wait")
        return task

    def _queue_of(self, task: TaskRecord) -> RunQueue:
        if task.resource is None:
            return self.system.unplaced
        return self.system.queue(task.resource)

    def _queue_up(self, task: TaskRecord, resource: str | None) -> None:
        """Put a task that is in no queue first into a resource's; else unplaced."""
        task.resource = None
        if resource is not None and resource in self.system.affinities(task.row):
            task.resource = resource
            task.rank = FRONT
        self._queue_of(task).push(task, FRONT)
        self._record(task, task.state.value)

    def _unplace(self, state: ResourceState) -> None:
        for task in list(state.queue):
            state.queue.remove(task)
            task.resource = None
            self.system.unplaced.push(task, task.rank)

    def _leave(self, task: TaskRecord) -> None:
        """Free the slot of a running task."""
        assert task.resource is not None  # noqa: S101  running tasks have one
        del self.system.states[task.resource].running[task.id]
        task.preempting = False

    def _withdraw(self, task: TaskRecord) -> None:
        """Take a task out of the slot or the queue where it is."""
        if task.state is State.RUNNING:
            self._leave(task)
        elif task.state.placeable:
            self._queue_of(task).remove(task)

    def _retry(self, task: TaskRecord, event: str, reason: str) -> None:
        """Begin again from the start, wherever the policy says."""
        task.progress = 0.0
        task.destination = None
        task.advance(event, self.system.now)
        self._rerow(task)
        if task.holding or task.state is State.HELD:
            task.state = State.HELD
        else:
            task.resource = None
            self.system.unplaced.push(task)
        self._record(task, "retried", reason)

    def _bind(self, task: TaskRecord) -> None:
        if not task.bound:
            task.bound = True
            task.epoch = self._epoch
            self._epoch += 1

    def _release_worker(self, task: TaskRecord) -> None:
        if task.bound:
            task.bound = False
            self.actions.append(a.Abort(task.id, task.epoch))

    def _end(self, task: TaskRecord, event: str, reason: str | None) -> None:
        self._release_worker(task)
        task.advance(event, self.system.now)
        del self.system.tasks[task.id]
        self._record(task, task.state.value, reason)
        for dependent in self._dependents.pop(task.id, []):
            self._on_dependency_ended(dependent, task)

    def _on_dependency_ended(self, task: TaskRecord, ended: TaskRecord) -> None:
        if task.state.ended:
            return
        task.unmet.discard(ended.id)
        if ended.state is not State.COMPLETED:
            reason = f"task {ended.id}, which it comes after, was {ended.state}"
            self._end(task, "DependencyEnded", reason)
        elif not task.unmet and task.state is State.WAITING:
            task.advance("DependenciesMet", self.system.now)
            self.system.unplaced.push(task)
            self._record(task, "queued")

    def _record(self, task: TaskRecord, event: str, reason: str | None = None) -> None:
        record = a.Record(task.id, task.state, event, task.resource, reason)
        self.actions.append(record)
