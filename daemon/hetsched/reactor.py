"""The reactor applies each event to the scheduler's state.

It has one method for each type of event, called by the scheduler only. The invariants of
`hetsched.invariants` hold after each of them. An event of a task that has ended, or of an
older epoch than the task's present binding, is late and changes nothing. The next states
of tasks are in the table `hetsched.transitions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, get_args

from msgspec import structs

from hetsched import actions as a
from hetsched import events as e
from hetsched.beginnings import pause
from hetsched.breaker import PERHAPS_FROM_OUTSIDE
from hetsched.policy import FRONT
from hetsched.tasks import (
    RUNNING,
    Hold,
    State,
    Step,
    Yield,
    durable_values,
)
from hetsched.transitions import advance

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetsched.events import Event
    from hetsched.ids import TaskId
    from hetsched.state import SchedulerState
    from hetsched.system import ResourceState
    from hetsched.tasks import TaskRecord, TaskRuntime
    from hetsched.trains import Trains


OfAllParts: TypeAlias = (
    e.TaskCancelled | e.TaskHeld | e.TaskReleased | e.TaskMoved | e.TaskAmended
)
"""Wishes of owners for a task that hold for its parts, too."""

OF_ALL_PARTS = get_args(OfAllParts)

MAY_FINISH = (RUNNING, State.PREEMPTED, State.HELD)
"""States of a task that a worker may finish: the command to run it was not recorded."""


class Reactor:
    """Applies events to the scheduler's state."""

    def __init__(self, state: SchedulerState, trains: Trains) -> None:
        self.state = state
        self._trains = trains
        self.system = state.system
        self._handlers: dict[type, Callable[..., None]] = {
            e.TaskSubmitted: self._on_submitted,
            e.TaskFound: self._on_found,
            e.TaskStarted: self._on_started,
            e.StripsDone: self._on_strips_done,
            e.StripsGiven: self._on_strips_given,
            e.TaskYielded: self._on_yielded,
            e.SnapshotTaken: self._on_snapshot_taken,
            e.TaskResumed: self._on_resumed,
            e.TaskParked: self._on_parked,
            e.OthersAwaited: self._on_others_awaited,
            e.TaskFinished: self._on_finished,
            e.TaskFailed: self._on_failed,
            e.TaskAborted: self._on_aborted,
            e.TaskCancelled: self._on_cancelled,
            e.TaskHeld: self._on_held,
            e.TaskReleased: self._on_released,
            e.TaskMoved: self._on_moved,
            e.TaskAmended: self._on_amended,
            e.WorkerLost: self._on_worker_lost,
            e.QuotasChanged: self._on_quotas_changed,
            e.OwnerUnattended: self._on_owner_unattended,
            e.OwnerAttended: self._on_owner_attended,
            e.TrialDue: self._on_trial_due,
            e.TrainOverdue: self._on_train_overdue,
            e.TimeStepped: self._on_time_stepped,
            e.FailuresForgotten: self._on_failures_forgotten,
            e.CountersRead: self._on_counters_read,
            e.PolicyChanged: self._on_policy_changed,
            e.ResourceLost: self._on_resource_lost,
            e.ResourceReturned: self._on_resource_returned,
            e.ResourceRecovered: self._on_resource_recovered,
            e.SlotsBlocked: self._on_slots_blocked,
            e.ResourceDrained: self._on_resource_drained,
            e.NodeStopping: self._on_node_stopping,
        }
        for kind in OF_ALL_PARTS:
            self._handlers[kind] = self._for_all_parts(self._handlers[kind])

    def apply(self, event: Event) -> None:
        """Apply an event. Types without a handler, such as `TimerFired`, change nothing."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def _for_all_parts(self, handler: Callable[..., None]) -> Callable[..., None]:
        """Return a handler that applies a wish to a task and to its parts."""

        def apply(event: OfAllParts) -> None:
            handler(event)
            for part in self._others_of(event.task):
                handler(structs.replace(event, task=part))

        return apply

    # ------------------------------------------------------------ events of users

    def _on_submitted(self, event: e.TaskSubmitted) -> None:
        task = self.state.add(event)
        may_wait = event.hold or event.after or event.begin
        if not may_wait or not self._waits_for_others(task, held=event.hold):
            self.state.arrive(task)
        self.state.record(task, "submitted")

    def _waits_for_others(self, task: TaskRecord, *, held: bool) -> bool:
        """Hold a new task, or let it wait for other tasks; return whether it had to."""
        if held:
            self.state.hold(task)
        elif task.unmet:
            advance(task, Step.DEPENDENCIES_AWAITED, self.system.now)
        else:
            return self.state.await_instant(task)
        return True

    def _others_of(self, task_id: TaskId) -> list[TaskId]:
        """List the whole task and the parts beside one of them, for a wish of its owner."""
        task = self.system.tasks.get(task_id)
        if task is None or not (task.parts_left or task.submitted.part_of):
            return []
        whole = self.system.tasks.get(task.submitted.part_of or task_id, task)
        return [
            each for each in [whole.id, *sorted(whole.parts_left)] if each != task_id
        ]

    def _on_cancelled(self, event: e.TaskCancelled) -> None:
        task = self.system.tasks.get(event.task)
        if task is not None:
            self.state.cancel(task, event.reason)

    def _on_held(self, event: e.TaskHeld) -> None:
        task = self.system.tasks.get(event.task)
        if task is None or task.state is State.HELD:
            return
        if task.state is RUNNING:
            self._hold_running(task, requeue=event.requeue)
            return
        self.state.withdraw(task)
        self.state.hold(task)
        self.state.record(task, "held")

    def _hold_running(self, task: TaskRecord, *, requeue: bool) -> None:
        """Ask a running task to yield and be held; suspend one that is not preemptible."""
        if task.cancelling is not None:
            return
        task.intent = Hold(task.preempting, task.makes_way, task.requeuing)
        if task.preemptible or requeue:
            self.state.preempt(task.id, None, requeue=requeue)
        else:
            self._suspend(task, on=True)

    def _on_released(self, event: e.TaskReleased) -> None:
        task = self.system.tasks.get(event.task)
        if task is None:
            return
        if isinstance(task.intent, Hold):
            task.intent = _intent_after_release(task.intent)
        if task.suspended:
            self._suspend(task, on=False)
        if task.state is not State.HELD:
            return
        if task.unmet:
            advance(task, Step.DEPENDENCIES_AWAITED, self.system.now)
        elif task.awaits_parts:
            self.state.await_parts(task)
        elif not self.state.await_instant(task):
            advance(task, Step.TASK_RELEASED, self.system.now)
            self.state.enqueue(task)
        self.state.record(task, "released")

    def _suspend(self, task: TaskRecord, *, on: bool) -> None:
        """Stop the process of a running task, which keeps its slot; or resume it."""
        if task.suspended is not on and task.cancelling is None:
            task.suspended = on
            self.state.actions.append(a.Suspend(task.id, task.epoch, on))
            self.state.record(task, "suspended" if on else "resumed")

    def _on_moved(self, event: e.TaskMoved) -> None:
        task = self.system.tasks.get(event.task)
        if task is None:
            return
        task.pinned = event.resource
        if task.state is RUNNING:
            self.state.update_row(task)
            if not task.preemptible:
                return  # it moves there only if it is started again
            if task.preempting or task.resource != event.resource:
                self.state.preempt(task.id, event.resource)
            return
        self.state.withdraw(task)
        self.state.update_row(task)
        task.rank = FRONT
        if task.state.placeable:
            self.state.enqueue(task, event.resource)
            self.state.record(task, "moved")

    def _on_amended(self, event: e.TaskAmended) -> None:
        task = self.system.tasks.get(event.task)
        if task is None:
            return
        waits, where = task.state.placeable, task.resource
        if waits:  # its place in the queue depends on both
            self.state.withdraw(task)
        task.submitted = structs.replace(
            task.submitted, priority=event.priority, deadline=event.deadline
        )
        if waits:
            self.state.enqueue(task, where)
        self.state.record(task, "amended")

    def _on_quotas_changed(self, event: e.QuotasChanged) -> None:
        self.state.admission.change(event.quotas)

    def _on_owner_unattended(self, event: e.OwnerUnattended) -> None:
        self.state.admission.close(event.owner)
        self.state.defer_unattended(event.owner)

    def _on_owner_attended(self, event: e.OwnerAttended) -> None:
        self.state.admission.open(event.owner)

    def _on_trial_due(self, event: e.TrialDue) -> None:
        for pair in self.system.breaker.due(self.system.now):
            self.state.begin_trial(pair)

    def _on_train_overdue(self, event: e.TrainOverdue) -> None:
        self._trains.recall_overdue()

    def _on_time_stepped(self, event: e.TimeStepped) -> None:
        for task in self.system.tasks.values():
            self.state.shift_begin(task, event.later)

    def _on_failures_forgotten(self, event: e.FailuresForgotten) -> None:
        gone = self.system.breaker.forget(
            lambda pair, _: (
                event.owner in (None, pair.owner)
                and (not event.apps or pair.app in event.apps)
                and (not event.resources or pair.resource in event.resources)
            )
        )
        self.state.reconsider({pair[:2] for pair in gone})

    def _on_counters_read(self, event: e.CountersRead) -> None:
        if self.system.crowding is not None:
            self.system.crowding.read(event.readings, self.system.now)

    def _on_policy_changed(self, event: e.PolicyChanged) -> None:
        self.state.unplace_all()

    # ------------------------------------------------------------ events of workers

    def _running(self, event: _OfWorker) -> TaskRecord | None:
        task = self.state.current(event.task, event.epoch)
        if task is None or task.state is not RUNNING:
            return None
        self.state.mark_started(task)
        return task

    def _on_started(self, event: e.TaskStarted) -> None:
        self._running(event)

    def _on_strips_done(self, event: e.StripsDone) -> None:
        task = self._running(event)
        if task is not None:
            task.reach(event.progress)
            self.state.stamp_progress(task)
            crowding = self.system.crowding
            if crowding is not None:
                crowding.report(task.id, event.share, event.seconds, self.system.now)
            if not task.checkpointed:
                self.state.reach_checkpoint(task)

    def _on_strips_given(self, event: e.StripsGiven) -> None:
        task = self._running(event)
        if task is None or not task.gives_strips:
            return  # it will do these strips itself, when it runs next
        where, task.splits_for = task.splits_for, None
        task.granule = event.granule
        if event.part is not None:
            part = self.state.give(task, event.part)
            self.state.enqueue(part, where)
            self.state.record(part, "submitted")
            self.state.record(task, "split")

    def _on_yielded(self, event: e.TaskYielded) -> None:
        task = self._running(event)
        if task is None:
            self._record_progress_of_held(event)
            return
        if event.progress > task.progress_then and not task.checkpointed:
            self.state.reach_checkpoint(task)
        self.state.withdraw(task)
        destination = task.destination
        task.reach(event.progress)
        task.rank = FRONT
        advance(task, Step.TASK_YIELDED, self.system.now)
        if not task.preemptible:
            self.state.update_row(task)  # it is not bound to this resource any more
        if task.cancelling is not None:
            self.state.end(task, Step.TASK_CANCELLED, task.cancelling)
            return
        if task.holding:
            self.state.hold(task)
        elif task.awaits_parts:
            self.state.await_parts(task)
        else:
            self.state.enqueue(task, destination)
        self.state.record(task, task.state.value)

    def _record_progress_of_held(self, event: e.TaskYielded) -> None:
        """Record the progress of a held task that was found running and has yielded."""
        task = self.state.current(event.task, event.epoch)
        if task is not None and task.state is State.HELD:
            task.reach(event.progress)

    def _on_snapshot_taken(self, event: e.SnapshotTaken) -> None:
        task = self.state.current(event.task, event.epoch)
        if task is None:
            return
        if event.progress > task.kept or not event.progress:
            # a task that does not know its progress reports 0
            task.attempts = 0
        task.kept = min(event.progress, task.limit)
        if task.progress < task.kept:
            task.reach(task.kept)

    def _on_resumed(self, event: e.TaskResumed) -> None:
        task = self.state.current(event.task, event.epoch)
        if task is not None:
            reached = max(event.progress, task.submitted.start)
            task.progress = task.kept = min(reached, task.limit)
            self.state.stamp_progress(task)
            task.progress_then = event.progress

    def _on_parked(self, event: e.TaskParked) -> None:
        task = self.state.current(event.task, event.epoch)
        if task is None:
            return
        task.bound = False
        if task.state is not RUNNING:
            task.progress = task.kept
            if task.state.placeable:
                self.state.defer_unadmitted(task)
            return
        # `Run` was sent to it at the same moment; another worker will get that.
        self.state.withdraw(task)
        if task.cancelling is not None:
            self.state.end(task, Step.TASK_ABORTED, task.cancelling)
        else:
            self.state.retry(task, Step.RETRIED, "it waited on disk, and is read back")

    def _on_others_awaited(self, event: e.OthersAwaited) -> None:
        task = self._running(event)
        if task is None or not self.state.has_slot(task):
            return
        live = self.system.tasks
        others = [
            other
            for other in event.others
            if other in live
            and other != task.id
            and live[other].submitted.owner == task.submitted.owner
        ]
        if others:
            self.state.await_others(task, others)
        else:
            self.state.await_no_more(task)

    def _on_finished(self, event: e.TaskFinished) -> None:
        task = self.state.current(event.task, event.epoch)
        if task is None or task.state not in MAY_FINISH:
            return
        if task.not_started:
            self.state.mark_started(task)
        if not task.checkpointed and task.state is RUNNING:
            self.state.reach_checkpoint(task)
        self.state.withdraw(task)
        task.bound = False
        if task.intent is not None and task.cancelling is not None:
            # the cancellation was confirmed to its owner before it finished
            self.state.end(task, Step.TASK_ABORTED, task.cancelling)
        else:
            self.state.end(task, Step.TASK_FINISHED, None)

    def _on_failed(self, event: e.TaskFailed) -> None:
        task = self.state.current(event.task, event.epoch)
        if task is None:
            return
        self.state.mark_started(task)
        ran_on = task.resource if task.state is RUNNING else None
        task.bound = False
        task.progress = task.kept
        if task.state is State.HELD:
            return  # it had been staged; it is staged again after its release
        self.state.withdraw(task)
        if task.cancelling is not None:
            self.state.end(task, Step.TASK_ABORTED, task.cancelling)
            return
        if ran_on is None or not event.elsewhere:
            self._run_again_or_fail(task, event.reason)
            return
        task.record_failure(ran_on, event.reason)
        if event.cause is not None:
            self.state.blame(task, ran_on, event.cause, event.reason)
        there = self._alike(ran_on, whole_kind=event.whole_kind)
        self._retry_or_fail(task, there, Step.RETRIED, event.reason)

    def _run_again_or_fail(self, task: TaskRecord, reason: str) -> None:
        """Run a task that failed by itself again after a pause, as often as its owner wants."""
        submitted = task.submitted
        if task.retried >= submitted.retries or submitted.served:
            self.state.end(task, Step.TASK_FAILED, reason)
        else:
            self.state.pause(task, reason)

    def _alike(self, name: str, *, whole_kind: bool) -> frozenset[str]:
        """Return the resource's name, or those of all resources of its kind."""
        if not whole_kind:
            return frozenset({name})
        known = self.system.resources
        return frozenset(n for n in known if known[n].kind == known[name].kind)

    def _retry_or_fail(
        self, task: TaskRecord, failed_on: frozenset[str], step: Step, reason: str
    ) -> None:
        """Retry a task on another resource; fail it where none is left."""
        if self._exclude(task, failed_on):
            self.state.retry(task, step, reason)
        else:
            self.state.end(task, Step.TASK_FAILED, task.failure_reason(reason))

    def _exclude(self, task: TaskRecord, failed_on: frozenset[str]) -> bool:
        """Exclude resources for a task; return whether it can still run somewhere."""
        task.excluded |= failed_on
        task.pinned = None
        self.state.update_row(task, leaves=True)
        return task.cancelling is None and self.system.possible(task.row)

    def _avoid(self, task: TaskRecord, name: str) -> None:
        """Exclude a resource for a running task, unless no other can run it."""
        before = task.excluded, task.pinned
        if not self._exclude(task, frozenset({name})):
            task.excluded, task.pinned = before
            self.state.update_row(task, leaves=True)

    def _on_aborted(self, event: e.TaskAborted) -> None:
        task = self.state.current(event.task, event.epoch)
        if task is None:
            return
        if task.not_started:
            self.state.take_back(task)
        else:
            self.state.mark_lost(task, "given up by its worker")

    def _on_worker_lost(self, event: e.WorkerLost) -> None:
        task = self.state.current(event.task, event.epoch)
        if task is None or self._take_back_unstarted(task, event):
            return
        if event.unserved:
            self.state.move_to_back(task)
        if task.state is not RUNNING or task.resource is None:
            self.state.mark_lost(task, event.reason, begun=event.begun)
        elif event.cause is None or task.checkpointed or task.cancelling is not None:
            if event.elsewhere:
                self._avoid(task, task.resource)
            self.state.mark_lost(task, event.reason, begun=event.begun)
        elif event.cause in PERHAPS_FROM_OUTSIDE:
            self._mark_lost_by_others(task, task.resource, event)
        else:
            self._mark_lost_by_fault(task, task.resource, event)

    def _take_back_unstarted(self, task: TaskRecord, event: e.WorkerLost) -> bool:
        """Return an unstarted task of a lost worker's train to its queue.

        Returns:
            whether the event is dealt with by that.

        No task of the train is put into a train again, so that the next loss shows
        which of them was at fault.
        """
        for other in task.train or ():
            other.never_in_train = True
        if task.not_started and not event.begun:
            self.state.take_back(task, event.reason)
            return True
        self.state.mark_started(task)
        return False

    def _mark_lost_by_fault(
        self, task: TaskRecord, resource: str, event: e.WorkerLost
    ) -> None:
        """Exclude the resource on which a task's own fault lost its worker; retry or fail it."""
        self.state.withdraw(task)
        task.bound = False
        task.progress = task.kept
        self._blame(task, resource, event)
        self._retry_or_fail(task, frozenset({resource}), Step.WORKER_LOST, event.reason)

    def _mark_lost_by_others(
        self, task: TaskRecord, resource: str, event: e.WorkerLost
    ) -> None:
        """Retry a task elsewhere whose worker was killed or is stuck in the kernel.

        That may not be the task's fault: the first time on a resource does not count as
        an attempt if there is another one, and the resource is not excluded.
        """
        first = resource not in task.failures
        self._blame(task, resource, event)
        self.state.update_row(task, leaves=True)
        others = self.state.alternatives(task) - {resource}
        self.state.mark_lost(task, event.reason, begun=not (first and others))

    def _blame(self, task: TaskRecord, resource: str, event: e.WorkerLost) -> None:
        task.record_failure(resource, event.reason)
        if event.cause is not None:
            self.state.blame(task, resource, event.cause, event.reason)

    # ------------------------------------------------------------ restart

    def restore(self, submitted: e.TaskSubmitted, before: TaskRuntime) -> None:
        """Restore a task as it was known before the start."""
        task = self.state.add(submitted, durable_values(_without_place(before)))
        if before.retried and before.state is State.WAITING:  # the pause starts again
            task.not_before = self.system.now + pause(task.retried)
        if task.excluded:
            self.state.update_row(task)
        if before.runs:
            self._restore_running(task, before)
        elif not self._waits_for_others(task, held=before.state is State.HELD):
            self._restore_waiting(task)
        if task.state.placeable:
            self.state.report_place(task)
        else:
            self.state.record(task, "restored")

    def restore_parts(self) -> None:
        """Let tasks wait for their parts; cancel parts whose whole task has ended."""
        for task in list(self.system.tasks.values()):
            whole = task.submitted.part_of
            if whole is not None and whole not in self.system.tasks:
                self.state.cancel(task, f"task {whole} ended")
            elif task.awaits_parts and task.state.placeable:
                self.state.withdraw(task)
                self.state.await_parts(task)
                self.state.record(task, "restored")

    def _restore_running(self, task: TaskRecord, before: TaskRuntime) -> None:
        state = self.system.states.get(before.resource or "")
        if (
            state is None
            or not state.up
            or len(state.running) >= state.slots + before.lent
        ):
            self.state.release_worker(task)
            task.progress = task.kept
            self.state.enqueue(task)
        else:
            advance(task, Step.RESTORED, self.system.now)
            if before.lent:
                self.state.lend_slot(task, state)
            self.state.occupy(task, state)
            task.checkpointed = before.checkpointed

    def _restore_waiting(self, task: TaskRecord) -> None:
        if task.bound:
            advance(task, Step.RESTORED_WAITING, self.system.now)
        self.state.enqueue(task)  # no resource is known to be usable yet

    def _on_found(self, event: e.TaskFound) -> None:
        task = self.state.current(event.task, event.epoch)
        if task is None or task.cancelling is not None:
            return
        if task.state is RUNNING and task.resource == event.resource:
            return
        if task.state is State.HELD:
            # Its release was not recorded, so it must wait again.
            self.state.actions.append(a.Preempt(task.id, task.epoch))
            return
        state = self.system.states.get(event.resource)
        free = state is not None and len(state.running) < state.slots
        free = free and self.system.array_queue(task) is None
        self.state.withdraw(task)
        if state is not None and free and state.up and task.state is State.PREEMPTED:
            advance(task, Step.RESTORED, self.system.now)
            self.state.occupy(task, state)
            self.state.record(task, "found")
        else:
            # Its slot belongs to another task by now.
            self.state.release_worker(task)
            self.state.retry(task, Step.WORKER_LOST, "its place was given away")

    # ------------------------------------------------------------ events of resources

    def _on_resource_lost(self, event: e.ResourceLost) -> None:
        """Take a resource out of service; what runs there leaves, as from a drained one.

        No task is given to another worker while the present one may still compute it. One
        whose device fails fails itself, and one that does not answer is lost with its worker.
        """
        state = self.system.states[event.resource]
        state.up = False
        self._close_resource(state)
        self._send_away(state)

    def _on_resource_returned(self, event: e.ResourceReturned) -> None:
        state = self.system.states[event.resource]
        state.up = True
        state.draining = False
        self._reopen_resource(event.resource)

    def _on_resource_recovered(self, event: e.ResourceRecovered) -> None:
        self.system.states[event.resource].up = True
        self._reopen_resource(event.resource)

    def _reopen_resource(self, resource: str) -> None:
        """Admit tasks to a resource that is usable again; let one that avoids it try it soon."""
        self.system.resources_changed()
        self.state.admission.review()
        self.state.needs.release()
        self.system.breaker.expire(resource, self.system.now)

    def _on_slots_blocked(self, event: e.SlotsBlocked) -> None:
        state = self.system.states[event.resource]
        state.slots = state.resource.slots - event.slots + state.lent
        self.system.resources_changed()
        if not state.usable:
            self.state.unplace(state)
            self.state.defer_unfit()
        self.state.admission.review()
        self.state.needs.release()

    def _on_resource_drained(self, event: e.ResourceDrained) -> None:
        state = self.system.states[event.resource]
        state.draining = True
        self._close_resource(state)
        self._send_away(state)

    def _on_node_stopping(self, event: e.NodeStopping) -> None:
        for state in self.system.states.values():
            state.draining = True
        self.system.resources_changed()
        for state in self.system.states.values():
            self.state.unplace(state)
            for task in state.running.values():
                self.state.preempt(task.id, None)
        self.state.defer_unfit()

    def _send_away(self, state: ResourceState) -> None:
        """Ask the tasks that run on a resource to yield.

        One that can run nowhere else, or cannot yield, runs to its end.
        """
        for task in list(state.running.values()):
            if not task.preempting and self.system.affinities(task.row):
                self.state.preempt(task.id, None)

    def _close_resource(self, state: ResourceState) -> None:
        """Empty the queue of a resource that is out of use; its tasks are placed again."""
        self.system.resources_changed()
        self.state.unplace(state)
        self.state.needs.release()
        self.state.defer_unfit()


def _without_place(before: TaskRuntime) -> TaskRuntime:
    """Return what outlasts a restart: not places, nor staged tasks, nor requests.

    The shell repeats the requests of users.
    """
    left = before.durable()
    left.bound = before.in_worker
    if not left.bound:
        left.progress = left.kept
    left.state = State.QUEUED
    left.resource = left.intent = left.pinned = None
    left.suspended = left.checkpointed = left.not_started = left.lent = False
    return left


def _intent_after_release(hold: Hold) -> Yield | None:
    """Return what is wanted of a running task once its owner lets it go on.

    A worker that was asked to yield cannot be told otherwise.
    """
    if not hold.yields:
        return None
    return Yield(None, hold.makes_way, hold.requeue)


_OfWorker = (
    e.TaskStarted
    | e.StripsDone
    | e.StripsGiven
    | e.TaskYielded
    | e.TaskFinished
    | e.TaskAborted
    | e.OthersAwaited
)
