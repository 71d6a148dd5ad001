"""The scheduler's state, and the steps by which it changes.

The scheduler applies the policy's decisions by these steps; the reactor composes them for
each event. Nothing else calls them. Each step appends the actions that follow from it to
`SchedulerState.actions`. The part of the state that policies read is `hetsched.system`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec import structs

from hetsched import actions as a
from hetsched.arrays import ArrayLimits
from hetsched.awaited import AwaitedTasks
from hetsched.beginnings import pause
from hetsched.breaker import LONGEST_REASON, Fault, Pair, key_of
from hetsched.fair_shares import FairShares
from hetsched.graphs import STEPS_OF_DECISION
from hetsched.needs import NeedsLedger
from hetsched.queues import RunQueue
from hetsched.quotas import AdmissionQuota
from hetsched.tasks import (
    COMPLETED,
    NAMES,
    PLACEABLE,
    RUNNING,
    Cancel,
    Hold,
    Row,
    State,
    Step,
    TaskRecord,
    TaskRuntime,
    Yield,
    durable_values,
)
from hetsched.transitions import advance
from libtask.errors import BugError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetsched.actions import Action
    from hetsched.events import Cause, TaskSubmitted
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.limits import Limits
    from hetsched.system import ResourceState, System

ROWS_KEPT = 1024
"""Rows kept in addition to twice those of live tasks; a daemon sees many types in years."""


UNBOUNDED = 1 << 62
"""Number of steps that stands for no limit."""


class SchedulerState:
    """Changes the system's state, and collects the actions that follow.

    One event may concern any number of tasks: dependents of a task that ends, tasks that
    wait for a drained resource or that a new policy must place again. `Limits.at_once`
    bounds how many of them one call handles; `continue_pending` handles the others in
    later calls, for which `finish` sets a timer.
    """

    def __init__(self, system: System, limits: Limits, first_epoch: int) -> None:
        self.system = system
        self.limits = limits
        self.actions: list[Action] = []
        self.admission = AdmissionQuota(system, limits.quotas)
        self.arrays = ArrayLimits(system)
        self.needs = NeedsLedger(system, limits.capacity)
        self.shares = FairShares(system, self.admission)
        self._epoch = first_epoch
        self._sequence = 0
        self._rows: dict[tuple[object, ...], Row] = {}
        self._row_limit = ROWS_KEPT
        self._dependents: dict[TaskId, deque[TaskRecord]] = {}
        self.closed: dict[TaskId, TaskRecord] = {}
        """Tasks that ended in the last call."""
        self._ended: deque[tuple[TaskRecord, str]] = deque()
        """Ended tasks whose dependents are to be handled, and why they ended."""
        self._to_defer: deque[TaskRecord] = deque()
        """Tasks to defer: their owners have no launcher to start workers."""
        self._replaced: dict[TaskId, TaskRecord] = {}
        self._steps = UNBOUNDED
        self.interrupted = False
        """Whether the policy had more to decide than could be applied at once."""
        self._staged: dict[TaskId, TaskRecord] = {}
        """Tasks that were staged, and perhaps run or have ended since."""
        self.successors: list[TaskRecord] = []
        """Tasks of trains that have got the slots of those before them since `begin`."""
        self.may_lend = False
        """Whether a task may be found that can run in the slot of one which waits for it."""
        self.arrival_rule = ""
        """See `policy.arrival_rule_of`."""

    def begin(self, *, bounded: bool = True) -> None:
        """Start a new list of actions.

        Args:
            bounded: whether `Limits.at_once` applies.

        """
        self.actions = []
        self.closed.clear()
        self.successors.clear()
        self.interrupted = False
        at_once = self.limits.at_once
        self._steps = at_once if bounded and at_once is not None else UNBOUNDED

    def finish(self) -> list[Action]:
        """Record tasks whose queue changed and circuits that changed; return all actions."""
        if self.unfinished or self._may_admit():
            self.actions.append(a.SetTimer(self.system.now + 1))
        if self._replaced:
            for task in self._replaced.values():
                if task.state in PLACEABLE:
                    self.record(task, "placed" if task.resource else "unplaced")
            self._replaced.clear()
        breaker = self.system.breaker
        if breaker.changed:
            for pair, circuit in breaker.changed.items():
                known = None if circuit is None else replace(circuit)
                self.actions.append(a.KeepCircuit(pair, known))
            breaker.changed.clear()
        return self.actions

    # ------------------------------------------------------------ many tasks

    @property
    def unfinished(self) -> bool:
        """Whether the limit of steps left work for the next call."""
        pending = self._ended or self.system.displaced or self._to_defer
        return bool(pending) or self.interrupted

    def _may_admit(self) -> bool:
        """Whether a task can be admitted, for the policy to place."""
        admission, arrays, needs = self.admission, self.arrays, self.needs
        if not (admission.to_review or arrays.to_review or needs.to_review):
            return False
        return admission.may_admit or arrays.may_admit or needs.may_admit

    def resume(self) -> None:
        """Continue what earlier calls left, and admit tasks that may be admitted by now.

        This is done at each event, so each part is called only if there is anything for it.
        """
        system = self.system
        pending = self._ended or self._to_defer or system.displaced
        if pending or system.beginnings.tasks:
            self.continue_pending()
        if self.arrays.to_review or self.admission.to_review:
            self.admit_deferred()
        if system.graphs.raised:
            system.graphs.settle(STEPS_OF_DECISION)
        if self.needs.to_review:
            self.admit_blocked()

    def spend(self, task: TaskRecord | None) -> bool:
        """Count a change of a task; return whether the limit allows another one."""
        self._steps -= 1 if task is None else task.submitted.weight
        return self._steps > 0

    def continue_pending(self) -> None:
        """Continue work that earlier calls left, up to the limit of steps."""
        self._follow_ended()
        if self.system.beginnings.tasks:
            self._begin_due()
        while self._to_defer and self._steps > 0:
            task = self._to_defer.popleft()
            self.spend(task)
            self._defer_unless_gone(task)
        while self.system.displaced and self._steps > 0:
            queue = self.system.displaced[0]
            for task in queue.first(self._steps):
                queue.remove(task)
                self.enqueue(task)
                self.report_place(task)
                if not self.spend(task):
                    break
            if not queue:
                self.system.displaced.pop(0)

    # ------------------------------------------------------------ decisions

    def place(self, task_id: TaskId, resource: str, rank: float) -> None:
        """Move a waiting task to the run queue of a resource."""
        task = self._waiting(task_id)
        if self.admission.deferred_queue(task) is not None:
            return  # deferred by a quota, whatever a policy decides
        if self.system.array_queue(task) is not None:
            return  # it waits for others of its array
        if task in self.system.blocked:
            return  # it waits for cores or memory
        if resource not in self.system.affinities(task.row):
            raise BugError(
                f"task {task_id} cannot run on {resource}: {task.describe_story()}"
            )
        self._queue_of(task).remove(task)
        self._push(task, resource, rank)
        self.report_place(task)

    def preempt(
        self,
        task_id: TaskId,
        destination: str | None,
        *,
        makes_way: bool = False,
        requeue: bool = False,
    ) -> None:
        """Ask a running task to yield; a second call changes the destination.

        A task that is not preemptible runs on, unless its owner asked to requeue it.
        """
        task = self.system.tasks[task_id]
        if task.state is not RUNNING:
            raise BugError(
                f"task {task_id} is {task.state}, not running: it cannot be preempted"
            )
        intent = task.intent
        if isinstance(intent, Cancel):
            return
        requeue = requeue or task.requeuing
        if not (task.preemptible or requeue):
            return
        makes_way = makes_way or task.makes_way
        was_asked = task.preempting
        if isinstance(intent, Hold):  # it stays with its owner, whatever a policy wants
            task.intent = Hold(yields=True, makes_way=makes_way, requeue=requeue)
        else:
            task.intent = Yield(destination, makes_way, requeue)
        if task.not_started:
            self.recall(task)
        elif not was_asked:
            self.recall_behind(task)
            self.system.departing[task.id] = task
            self.actions.append(a.Preempt(task.id, task.epoch, task.requeuing))

    def split(self, task_id: TaskId, resource: str, limit: float) -> None:
        """Ask a running parallel task to give up its strips from `limit` on.

        Raises:
            BugError: the task does not run, or its strips depend on each other.

        """
        task = self.system.tasks[task_id]
        if task.state is not RUNNING or not task.submitted.parallel:
            raise BugError(f"task {task_id} cannot be split: {task.describe_story()}")
        if task.intent is None and task.splits_for is None and not task.not_started:
            task.splits_for = resource
            self.actions.append(a.Split(task.id, task.epoch, limit))

    def drop(self, task_id: TaskId, reason: str) -> None:
        """End a waiting task as dropped."""
        task = self._waiting(task_id)
        self._remove(task)
        self.end(task, Step.DROPPED, reason)

    def dispatch(self, task: TaskRecord, state: ResourceState) -> None:
        """Run a task, already out of its queue, in a free slot."""
        name = state.resource.name
        if task.last_resource is not None and task.last_resource != name:
            task.came_from = task.last_resource
            task.moves += 1
            if self.system.is_untried(task.row, name):
                task.tried = (*task.tried, name)
        advance(task, Step.DISPATCHED, self.system.now)
        self.occupy(task, state)
        breaker = self.system.breaker
        if breaker.trials and breaker.trial_of(task.id) not in (None, name):
            self.end_trial(task)  # its policy prefers another resource
        self._replaced.pop(task.id, None)
        self._bind(task)
        self.actions.append(a.Run(task.id, task.epoch, name))
        self.record(task, "dispatched")

    def dispatch_behind(
        self, task: TaskRecord, state: ResourceState, first: TaskRecord
    ) -> None:
        """Run a task, already out of its queue, behind the first of a train, in its slot."""
        advance(task, Step.DISPATCHED, self.system.now)
        self.occupy(task, state)
        state.trailing[task.id] = state.running.pop(task.id)
        self.system.unload(task)
        if first.train is None:
            first.train = [first]
        task.train = first.train
        task.train.append(task)
        task.not_started = True
        self._replaced.pop(task.id, None)
        self._bind(task)
        name = state.resource.name
        self.actions.append(a.Run(task.id, task.epoch, name, first.id))
        self.record(task, "ordered")

    def recall_behind(self, task: TaskRecord) -> None:
        """Recall the unstarted tasks behind a task that is to leave its slot."""
        for other in task.train or ():
            self.recall(other)

    def recall(self, task: TaskRecord) -> None:
        """Ask the worker to give back an unstarted task, unless it was asked already."""
        if task.not_started and not task.recalled:
            task.recalled = True
            self.actions.append(a.Recall(task.id, task.epoch))

    def mark_started(self, task: TaskRecord) -> None:
        """Record that a task which was dispatched behind others has started."""
        if not task.not_started:
            return
        task.not_started = task.recalled = False
        task.since = self.system.now
        self.stamp_progress(task)
        self.actions.append(a.Begin(task.id, task.epoch))
        self.record(task, "dispatched")
        self.system.departing.pop(task.id, None)
        if task.leaving:
            self.system.departing[task.id] = task
        if task.preempting:  # it started before the recall reached its worker
            self.recall_behind(task)
            self.actions.append(a.Preempt(task.id, task.epoch, task.requeuing))

    def take_back(self, task: TaskRecord, reason: str | None = None) -> None:
        """Return an unstarted task of a train to a queue, or as its intent says."""
        where = task.destination or task.resource
        self.withdraw(task)
        task.bound = False
        task.last_resource = task.came_from = None
        advance(task, Step.RETURNED, self.system.now)
        if task.cancelling is not None:
            self.end(task, Step.TASK_CANCELLED, task.cancelling)
            return
        if task.holding:
            self.hold(task)
        else:
            self.enqueue(task, where)
        self.record(task, "returned", reason)

    def stage(self, task: TaskRecord) -> None:
        self._bind(task)
        self._staged[task.id] = task
        self.actions.append(a.Stage(task.id, task.epoch))

    def unstage_others(self, first: list[TaskRecord], most: int) -> None:
        """Unbind staged tasks that are not among the next ones any more.

        Each has a worker. A few are left, as others may go before a task for a short time.

        Args:
            first: the tasks that go next on the resource where tasks were staged last.
            most: how many others may stay staged, on all resources.

        """
        if len(self._staged) <= most:
            return
        waiting = {number: t for number, t in self._staged.items() if _is_staged(t)}
        others = [t for t in waiting.values() if t not in first]
        for task in others[: max(len(others) - most, 0)]:
            del waiting[task.id]
            self.release_worker(task)
        self._staged = waiting

    def unplace_all(self) -> None:
        """Remove every task from the run queues, for a new policy to place."""
        for state in self.system.states.values():
            self.unplace(state)
        if self._is_long(self.system.unplaced):
            queue, self.system.unplaced = self.system.unplaced, RunQueue()
            self.system.displaced.append(queue)

    # ------------------------------------------------------------ steps

    def add(self, event: TaskSubmitted, known: tuple[Any, ...] = ()) -> TaskRecord:
        """Add the record of an accepted task, which is in no queue yet.

        Args:
            event: describes the task.
            known: its durable fields; empty: it is new.

        """
        if event.task in self.system.tasks:
            raise BugError(f"task {event.task} was submitted twice")
        self._sequence += 1
        task = self._record_of(event, self._sequence, known)
        if event.needs is not None:
            task.needs = self.needs.capacity.bound(event.needs)
        task.not_before = event.begin
        if self.system.breaker.circuits:
            self._avoid_from_start(task)
        self.shares.expect(task)
        if event.after:
            self._await(task)
        if event.part_of is not None:
            self._link_part(task)
        if task.parts:
            task.parts_left = frozenset(task.parts).intersection(self.system.tasks)
        self.system.tasks[task.id] = task
        self.system.tally.arrive(event.type)
        if event.after or event.job or event.inputs:
            before = [
                self.system.tasks[other] for other in event.after if other in task.unmet
            ]
            self.system.graphs.add(task, before)
        return task

    def draft(self, event: TaskSubmitted) -> TaskRecord:
        """Return the record that a task would have, without accepting the task."""
        task = self._record_of(event, self._sequence + 1)
        self.update_row(task)
        return task

    def _record_of(
        self, event: TaskSubmitted, sequence: int, known: tuple[Any, ...] = ()
    ) -> TaskRecord:
        """Make the record of a task; see `add`."""
        task = TaskRecord(
            id=event.task,
            row=self._row(event, event.resources),
            submitted=event,
            arrival=self.system.now,
            sequence=sequence,
        )
        return _with_known(task, known) if known else task

    def current(self, task_id: TaskId, epoch: int) -> TaskRecord | None:
        """Return the task that a worker holds; None where the epoch is an old one."""
        task = self.system.tasks.get(task_id)
        return task if task and task.bound and task.epoch == epoch else None

    def update_row(self, task: TaskRecord, *, leaves: bool = False) -> None:
        """Set the row of a task in no queue from the resources that it may use now.

        A running task that is not preemptible may use only the resource on which it runs,
        so that no policy finds a better place for it, unless it leaves that.
        """
        allowed = task.submitted.resources
        stays = not leaves and not task.preemptible and self.has_slot(task)
        if stays and task.resource is not None:
            allowed = frozenset({task.resource})
        elif task.pinned is not None:
            allowed = frozenset({task.pinned})
        elif task.excluded:
            allowed = (allowed or frozenset(self.system.resources)) - task.excluded
            # An empty set would mean any resource, and no resource has an empty name.
            allowed = allowed or frozenset({""})
        task.row = self._row(task.submitted, allowed)
        if self.system.breaker.avoided(task.submitted):
            left = self.alternatives(task)
            if left and left != self.system.able(task.row):
                task.row = self._row(task.submitted, left)

    def has_slot(self, task: TaskRecord) -> bool:
        """Whether a task has a slot."""
        if task.resource is None:
            return False
        return task.id in self.system.states[task.resource].running

    def occupy(self, task: TaskRecord, state: ResourceState) -> None:
        """Assign a slot of a resource to a task."""
        submitted, now = task.submitted, self.system.now
        if self.shares.compared:
            self.shares.take_turn(task, state)
        if submitted.at_once:
            self.arrays.enter(task)
        if self.admission.limited:
            self.admission.enter(task)
        task.resource = task.last_resource = state.resource.name
        task.since = task.progress_at = now
        if state.resource.shared:
            task.attained = state.update_attained(now)
        task.progress_then = task.progress
        task.checkpointed = False
        state.running[task.id] = task
        state.program = submitted.app
        if self.system.crowding is not None:
            self.system.load(task)
        if task.needs is not None:
            self.needs.enter(task, state.resource.name)
        if not submitted.preemptible:
            self.update_row(task)

    def await_others(self, task: TaskRecord, others: Sequence[TaskId]) -> None:
        """Record that the code of a task that has a slot waits for these unfinished tasks."""
        if task.id not in self.system.awaited:
            self.system.states[task.assigned_to].awaiting += 1
            self.recall_behind(task)  # it may wait for them
        self.system.awaited[task.id] = AwaitedTasks(others)
        self.may_lend = True

    def await_no_more(self, task: TaskRecord) -> None:
        """Record that the code of a task goes on, or that the task leaves its slot."""
        if self.system.awaited.pop(task.id, None) is not None:
            self.system.states[task.assigned_to].awaiting -= 1

    def lend_slot(self, task: TaskRecord, state: ResourceState) -> None:
        """Make a slot for a task that another one, which has a slot there, waits for."""
        task.lent = True
        state.lent += 1
        state.slots += 1

    def _take_slot_back(self, task: TaskRecord, state: ResourceState) -> None:
        """Remove the slot that was made for a task, which has left it."""
        task.lent = False
        state.lent -= 1
        state.slots -= 1

    def stamp_progress(self, task: TaskRecord) -> None:
        """Set the instant of a task's progress to now."""
        task.progress_at = self.system.now
        if task.resource is None:
            return
        state = self.system.states[task.resource]
        if state.resource.shared:
            task.attained = state.update_attained(self.system.now)

    def arrive(self, task: TaskRecord) -> None:
        """Queue a new task: where it fits best, if the policy has an arrival rule."""
        if not self._admit_or_defer(task):
            return
        resource = None
        if self.arrival_rule:
            resource = self.system.fit(task.row).best
            task.rule = "" if resource is None else self.arrival_rule
        self._push(task, resource, task.rank)

    def enqueue(self, task: TaskRecord, resource: str | None = None) -> None:
        """Queue a task for `resource`; without one, or where it cannot run, for the policy."""
        task.intent = None
        if not self._admit_or_defer(task):
            return
        if resource is not None and resource not in self.system.affinities(task.row):
            resource = None
        self._push(task, resource, task.rank)

    def admit_deferred(self) -> None:
        """Queue deferred tasks that their arrays, and their owners' quotas, admit by now."""
        for task in self.arrays.admit_deferred(self._steps):
            self.spend(task)
            if self._admit_or_defer(task):
                self._push(task, None, task.rank)
        for task in self.admission.admit_deferred(self._steps):
            self.spend(task)
            self._push(task, None, task.rank)

    def admit_blocked(self) -> None:
        """Queue blocked tasks whose needs are free by now, for the policy."""
        for task in self.needs.admit(self._steps):
            self.spend(task)
            self._push(task, None, task.rank)

    def block_popped(self, task: TaskRecord) -> None:
        """Block a task, already out of its queue, whose needs are not free at its turn."""
        resource, task.resource = task.resource, None
        self.report_place(task)
        self.needs.block(task, resource)

    def defer_unfit(self) -> None:
        """Defer tasks that no usable resource can run; see `AdmissionQuota.admit`."""
        if not self.admission.quotas.limited:
            return
        for task in [
            t for t in self.system.blocked if not self.system.affinities(t.row)
        ]:
            self.defer_unadmitted(task)
        for row in list(self.system.unplaced.rows()):
            if not self.system.affinities(row):
                self._defer_row(row)

    def defer_unattended(self, owner: int) -> None:
        """Defer an owner's tasks that would wait for a worker; see `AdmissionQuota.close`."""
        self._to_defer += [
            task for task in self.system.tasks.values() if task.submitted.owner == owner
        ]
        self.continue_pending()

    def defer_unadmitted(self, task: TaskRecord) -> None:
        """Defer a waiting task that was admitted and would not be admitted now."""
        if self.system.array_queue(task) is not None:
            return
        if self.admission.deferred_queue(task) is not None or self.admission.admit(
            task
        ):
            return
        self._remove(task)
        if task.resource is not None:
            task.resource = None
            self.report_place(task)
        self.admission.defer(task)

    def defer_popped(self, task: TaskRecord) -> None:
        """Defer a task, already out of its queue, that would wait in a slot for a worker."""
        self.admission.leave(task)
        task.resource = None
        self.report_place(task)
        self.admission.defer(task)

    def unplace(self, state: ResourceState) -> None:
        """Empty a run queue, for the policy to place its tasks again.

        A long one is set aside as a whole; `continue_pending` queues its tasks in parts.
        """
        if self._is_long(state.queue):
            queue, state.queue = state.queue, RunQueue()
            for task in queue.tasks():
                task.resource = None
            self.system.displaced.append(queue)
            self._steps = 0  # this used up the limit of one call
            return
        for task in list(state.queue):
            self.spend(task)
            state.queue.remove(task)
            self._push(task, None, task.rank)
            self.report_place(task)

    def withdraw(self, task: TaskRecord) -> None:
        """Remove a task from its slot or queue.

        Its intent stays, for the caller to follow; `enqueue` and `hold` clear it.
        """
        if task.state in PLACEABLE:
            self._remove(task)
        elif task.state is RUNNING and task.resource is not None:
            self._vacate(task, self.system.states[task.resource])
            self.system.departing.pop(task.id, None)
            task.suspended = False

    def hold(self, task: TaskRecord) -> None:
        """Hold a task that is in no queue."""
        self._set_aside(task)
        if task.state is not State.HELD:
            advance(task, Step.TASK_HELD, self.system.now)

    def give(self, task: TaskRecord, event: TaskSubmitted) -> TaskRecord:
        """Add a part, in no queue yet, for the strips that a running task gave up."""
        runtime = TaskRuntime(
            progress=event.start,
            kept=event.start,
            furthest=event.start,
            limit=task.limit,
            pinned=task.pinned,
            excluded=task.excluded,
        )
        part = self.add(event, durable_values(runtime))
        part.granule = task.granule
        if task.pinned is not None or task.excluded:
            self.update_row(part)
        task.limit = event.start
        whole = self.system.tasks[event.part_of or task.id]
        whole.parts = (*whole.parts, part.id)
        return part

    def await_parts(self, task: TaskRecord) -> None:
        """Let a task in no queue wait for its parts, with the state that its worker holds."""
        self._set_aside(task)
        advance(task, Step.PARTS_AWAITED, self.system.now)

    def part_ended(self, part: TaskRecord, reason: str | None) -> None:
        """Let the whole task go on when its last part is done; fail it if a part fails."""
        whole = self.system.tasks.get(part.submitted.part_of or part.id)
        if whole is None:
            return  # it has ended, and the part with it
        whole.parts_left -= {part.id}
        if part.state is not COMPLETED:
            self._fail_whole(whole, f"its part ended as {part.state}: {reason}")
            return
        waits = whole.state is State.WAITING and whole not in self.system.beginnings
        if waits and not whole.parts_left:
            step = Step.PARTS_DONE if whole.bound else Step.DEPENDENCIES_MET
            self._begin(whole, step)

    def _fail_whole(self, whole: TaskRecord, reason: str) -> None:
        """Fail a task of which a part has failed, unless it is about to be cancelled."""
        if whole.cancelling is None:
            self.withdraw(whole)
            self.end(whole, Step.TASK_FAILED, reason)

    def cancel(self, task: TaskRecord, reason: str) -> None:
        """End a task as cancelled: at once, or when its worker has stopped it."""
        if task.cancelling is not None:
            return
        if task.state is not RUNNING:
            self.withdraw(task)
            self.end(task, Step.TASK_CANCELLED, reason)
            return
        task.intent = Cancel(reason, task.makes_way)
        if not task.not_started:
            self.system.departing[task.id] = task
        self.actions.append(a.Abort(task.id, task.epoch))

    def await_instant(self, task: TaskRecord) -> bool:
        """Let a task in no queue wait until it may begin; return whether it has to."""
        if task.not_before <= self.system.now:
            return False
        if task.state is not State.WAITING:
            advance(task, Step.INSTANT_AWAITED, self.system.now)
        self.system.beginnings.add(task)
        return True

    def shift_begin(self, task: TaskRecord, later: Nanoseconds) -> None:
        """Change the instant at which a task begins as its owner asked, if it has not come."""
        begin = task.submitted.begin
        if begin <= self.system.now:
            return
        shifted = max(begin + later, 1)
        task.submitted = structs.replace(task.submitted, begin=shifted)
        if task.not_before == begin:  # it is not in the pause after a failure
            task.not_before = shifted
            if task in self.system.beginnings:
                self.system.beginnings.add(task)

    def pause(self, task: TaskRecord, reason: str) -> None:
        """Let a task that failed, and is in no queue, run again after a pause.

        It starts from its last snapshot, or from the beginning.
        """
        held = task.holding
        self._set_aside(task)
        task.retried += 1
        task.not_before = self.system.now + pause(task.retried)
        task.progress, task.rank = task.kept, 0.0
        task.last_resource = task.came_from = None
        if held:
            advance(task, Step.INSTANT_AWAITED, self.system.now)
            self.hold(task)
        else:
            self.await_instant(task)
        self.update_row(task)
        self.record(task, "retried", reason)

    def retry(self, task: TaskRecord, step: Step, reason: str) -> None:
        """Queue a task to start again from its last snapshot, or from the beginning."""
        task.progress, task.rank = task.kept, 0.0
        task.last_resource = task.came_from = None
        task.bound = False
        advance(task, step, self.system.now)
        self.update_row(task)
        if task.holding or task.state is State.HELD:
            self.hold(task)
        elif task.awaits_parts:
            self.await_parts(task)
        else:
            self.enqueue(task)
        self.record(task, "retried", reason)

    def mark_lost(self, task: TaskRecord, reason: str, *, begun: bool = True) -> None:
        """Handle the loss of a task's worker: retry the task from its last snapshot, or end it.

        Args:
            task: held by the worker that was lost.
            reason: of the loss.
            begun: whether it counts as an attempt.

        """
        self.withdraw(task)
        task.bound = False
        task.attempts += begun
        limit = self.limits.attempts
        if task.cancelling is not None:
            self.end(task, Step.TASK_ABORTED, task.cancelling)
        elif task.attempts >= limit and task.state is not State.HELD:
            why = task.failure_reason(reason)
            reason = f"{why}; {task.attempts} attempts are the limit"
            self.end(task, Step.TASK_FAILED, reason)
        else:
            self.retry(task, Step.WORKER_LOST, reason)

    def move_to_back(self, task: TaskRecord) -> None:
        """Give a task the order of one that arrives now, behind all that wait."""
        if task.state.placeable:
            return  # it is in a queue, and keeps its place
        self._sequence += 1
        task.sequence = self._sequence

    def release_worker(self, task: TaskRecord) -> None:
        """Unbind a task from its worker, which is asked to abort it unless it was already."""
        if task.bound and task.cancelling is None:
            self.actions.append(a.Abort(task.id, task.epoch))
        task.bound = False

    def end(self, task: TaskRecord, step: Step, reason: str | None) -> None:
        """End a task that is in no queue, and handle its dependents."""
        self._close(task, step, reason)
        if self._ended:
            self._follow_ended()

    def report_place(self, task: TaskRecord) -> None:
        """Have `finish` record in which queue a task waits."""
        self._replaced[task.id] = task

    def record(self, task: TaskRecord, event: str, reason: str | None = None) -> None:
        """Have the shell store and publish a task's state."""
        record = a.Record(task.id, task.state, event, task.resource, reason)
        self.actions.append(record)

    # ------------------------------------------------------------ what is avoided

    def alternatives(self, task: TaskRecord) -> frozenset[str]:
        """Return the resources that a task may use and need not avoid.

        Its row must contain all that it may use. The resource on which it runs is not
        avoided.
        """
        avoided = self.system.breaker.avoided(task.submitted)
        if task.state is RUNNING and task.resource is not None:
            avoided -= {task.resource}
        return self.system.able(task.row) - avoided

    def blame(self, task: TaskRecord, resource: str, cause: Cause, reason: str) -> None:
        """Record a failure of a task's application on a resource in the circuit breaker."""
        submitted = task.submitted
        fault = Fault(submitted.version, cause, reason[:LONGEST_REASON])
        pair = Pair(*key_of(submitted), resource)
        changed = self.system.breaker.fail(pair, fault, task.since, self.system.now)
        self.reconsider(changed)

    def reach_checkpoint(self, task: TaskRecord) -> None:
        """Record that a running task reached a checkpoint where it runs."""
        task.checkpointed = True
        breaker = self.system.breaker
        if not breaker.circuits or task.resource is None:
            return
        key = key_of(task.submitted)
        pair = Pair(*key, task.resource)
        if breaker.worked(pair, task.submitted.version, task.since):
            self.reconsider({key})

    def reconsider(self, applications: set[tuple[int, str]]) -> None:
        """Update the rows of all tasks of these owners' applications."""
        if not applications:
            return
        for task in list(self.system.tasks.values()):
            if key_of(task.submitted) in applications:
                self._reconsider(task)

    def begin_trial(self, pair: Pair) -> None:
        """Let one of the waiting tasks try a half-open pair, if one may.

        Tasks that can run nowhere else at the moment are preferred.
        """
        able = [
            task
            for task in self.system.tasks.values()
            if task.state.placeable
            and key_of(task.submitted) == (pair.owner, pair.app)
            and self._may_take_trial(task, pair.resource)
            and self._is_up_for_trial(task)
        ]
        system = self.system
        chosen = min(
            able,
            key=lambda task: (bool(system.affinities(task.row)), task.sequence),
            default=None,
        )
        if chosen is None:
            return
        where = chosen.resource
        self.withdraw(chosen)
        self.enqueue(chosen)  # this offers it the trial
        if where is not None:
            self.report_place(chosen)

    def end_trial(self, task: TaskRecord) -> None:
        """Withdraw the trial of a pair from a task that does not run there."""
        if self.system.breaker.release(task.id, self.system.now):
            self.update_row(task)

    # ------------------------------------------------------------ parts of steps

    def _vacate(self, task: TaskRecord, state: ResourceState) -> None:
        """Remove a task from its slot, which passes to the next of its train."""
        if state.resource.shared:
            state.update_attained(self.system.now)
        if self.shares.compared:
            self.shares.end_turn(task, state)
        self.await_no_more(task)
        has_slot = state.running.pop(task.id, None) is not None
        if task.lent:
            self._take_slot_back(task, state)
        self.may_lend = bool(self.system.awaited)
        if self.system.crowding is not None:
            self.system.unload(task)
        if not has_slot:
            del state.trailing[task.id]
        elif task.needs is not None:
            self.needs.leave(task, state.resource.name)
        task.not_started = task.recalled = False
        task.splits_for = None
        if task.train is not None:
            self._leave_train(task, task.train, state, has_slot=has_slot)

    def _leave_train(
        self,
        task: TaskRecord,
        train: list[TaskRecord],
        state: ResourceState,
        *,
        has_slot: bool,
    ) -> None:
        """Remove a task from its train; the next one gets the slot that it had."""
        task.train = None
        train.remove(task)
        if has_slot and train:
            self._pass_slot_to(train[0], state)
        if len(train) == 1:
            train[0].train = None

    def _pass_slot_to(self, following: TaskRecord, state: ResourceState) -> None:
        """Let the next task of a train have the slot of the one before it."""
        state.running[following.id] = state.trailing.pop(following.id)
        self.successors.append(following)
        self.system.load(following)
        if following.recalled:  # its worker will report whether it has started
            self.system.departing[following.id] = following
        else:
            self.mark_started(following)

    def _avoid_from_start(self, task: TaskRecord) -> None:
        """Let a new task avoid resources on which its application failed."""
        gone = self.system.breaker.supersede(task.submitted)
        self.reconsider({pair[:2] for pair in gone})
        self.update_row(task)

    def _admit_or_defer(self, task: TaskRecord) -> bool:
        """Admit a task that begins to wait, or defer it; return whether it was admitted."""
        if self.shares.compared:
            self.shares.enter(task)
        if task.submitted.at_once and not self.arrays.admit(task):
            task.resource = None
            self.arrays.defer(task)
            return False
        if self.system.breaker.circuits:
            self._offer_trial(task)
        may_defer = self.admission.limited or self.system.unattended
        if may_defer and not self.admission.admit(task):
            task.resource = None
            self.admission.defer(task)
            return False
        if task.needs is None or self.needs.may_start(task):
            return True
        task.resource = None
        self.needs.block(task)
        return False

    def _reconsider(self, task: TaskRecord) -> None:
        before, where = task.row, task.resource
        if not task.state.placeable:
            self.update_row(task)
            return
        self.update_row(task)
        after, task.row = task.row, before
        if after is before:
            return
        self.withdraw(task)
        task.row = after
        self.enqueue(task, where)
        if where is not None:
            self.report_place(task)

    def _offer_trial(self, task: TaskRecord) -> None:
        """Let a task that begins to wait try a half-open pair that no task tries."""
        for resource in self.system.breaker.offers(task.submitted):
            if self._may_take_trial(task, resource):
                self.system.breaker.give_trial(task.submitted, resource)
                self.update_row(task)
                return

    def _is_up_for_trial(self, task: TaskRecord) -> bool:
        """Whether a task is admitted, or deferred only for want of a resource."""
        if self.system.array_queue(task) is not None:
            return False
        outside = self.admission.deferred_queue(task) is not None
        return not (outside and self.system.affinities(task.row))

    def _may_take_trial(self, task: TaskRecord, resource: str) -> bool:
        """Whether a task may try a pair: it is allowed there, and has no progress to lose."""
        if resource not in self.system.breaker.offers(task.submitted):
            return False
        allowed = task.submitted.resources
        if task.pinned is not None:
            allowed = frozenset({task.pinned})
        return (
            (not allowed or resource in allowed)
            and resource not in task.excluded
            and self.system.resources[resource].kind in task.submitted.kinds
            and task.progress <= task.kept
        )

    def _row(self, event: TaskSubmitted, resources: frozenset[str]) -> Row:
        owner, kinds, work = event.owner, event.kinds, event.work
        key = (owner, event.type, kinds, resources, work, event.seconds)
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= self._row_limit:
                self._forget_rows()
            seconds, account = dict(event.seconds), self.shares.account(owner)
            row = Row(event.type, kinds, resources, work, seconds, account)
            self._rows[key] = row
        return row

    def _forget_rows(self) -> None:
        """Remove the rows that no live task has, and the accounts of their owners."""
        live = {task.row for task in self.system.tasks.values()}
        self.shares.forget({row.account for row in live})
        self._rows = {key: row for key, row in self._rows.items() if row in live}
        self._row_limit = 2 * len(self._rows) + ROWS_KEPT
        self.system.clear_fits()

    def _link_part(self, part: TaskRecord) -> None:
        whole = self.system.tasks.get(part.submitted.part_of or part.id)
        if whole is not None:
            whole.parts_left |= {part.id}

    def _await(self, task: TaskRecord) -> None:
        live = self.system.tasks
        submitted = task.submitted
        task.unmet = {other for other in submitted.after if other in live}
        task.needed = not submitted.after_notok or submitted.notok_met
        for other in task.unmet:
            self._dependents.setdefault(other, deque()).append(task)

    def _waiting(self, task_id: TaskId) -> TaskRecord:
        task = self.system.tasks[task_id]
        if not task.state.placeable:
            raise BugError(f"task {task_id} is {task.state}, not waiting")
        return task

    def _set_aside(self, task: TaskRecord) -> None:
        """Withdraw what a task in no queue has been given to run."""
        self._leave_groups(task)
        task.intent = task.resource = None

    def _leave_groups(self, task: TaskRecord) -> None:
        """Remove a task in no queue from what counts it, or waits for it."""
        if task.submitted.at_once:
            self.arrays.leave(task)
        if self.admission.inside:
            self.admission.leave(task)
        if task.needs is not None:  # one that was admitted before blocked ones is gone
            self.needs.release()
        if self.system.breaker.trials:
            self.end_trial(task)
        if self.system.beginnings.tasks:
            self.system.beginnings.remove(task)

    def _remove(self, task: TaskRecord) -> None:
        """Remove a waiting task from where it waits."""
        if task in self.system.blocked:
            self.needs.unblock(task)
        elif not self.arrays.withdraw(task):
            self._queue_of(task).remove(task)

    def _queue_of(self, task: TaskRecord) -> RunQueue:
        if task.resource is None:
            return (
                self.admission.deferred_queue(task)
                or self._displaced(task)
                or self.system.unplaced
            )
        return self.system.states[task.resource].queue

    def _is_long(self, queue: RunQueue) -> bool:
        """Whether the tasks of a queue are too many, or too heavy, for one call."""
        if self._steps == UNBOUNDED:
            return False
        if len(queue) > self._steps:
            return True
        return sum(task.submitted.weight for task in queue.tasks()) > self._steps

    def _displaced(self, task: TaskRecord) -> RunQueue | None:
        """Return the queue in which a task was set aside; None: it was not."""
        return next((each for each in self.system.displaced if task in each), None)

    def _defer_unless_gone(self, task: TaskRecord) -> None:
        """Defer a task, unless it ended or its owner has a launcher again."""
        if task.id in self.system.tasks and task.state.placeable:
            self.defer_unadmitted(task)

    def _push(self, task: TaskRecord, resource: str | None, rank: float) -> None:
        task.resource = resource
        task.rank = rank
        self.may_lend = bool(self.system.awaited)
        if resource is None:
            self._queue_of(task).push(task, rank)
        else:
            self.system.states[resource].queue.push(task, rank)

    def _bind(self, task: TaskRecord) -> None:
        if not task.bound:
            task.bound = True
            task.epoch = self._epoch
            self._epoch += 1

    def _defer_row(self, row: Row) -> None:
        unplaced = self.system.unplaced
        for task in [each for each in unplaced if each.row is row]:
            self.defer_unadmitted(task)

    def _close(self, task: TaskRecord, step: Step, reason: str | None) -> None:
        system, submitted = self.system, task.submitted
        self._leave_groups(task)
        if task.bound:
            self.release_worker(task)
        completed = advance(task, step, system.now) is COMPLETED
        self.closed[task.id] = system.tasks.pop(task.id)
        if system.graphs.nodes:
            system.graphs.end(task, task.last_resource if completed else None)
        if task.id in self._dependents:
            system.ending.add(task.id)
            self._ended.append((task, reason or ""))
        deadline = submitted.deadline
        on_time = completed and (deadline is None or system.now <= deadline)
        system.tally.end(submitted.type, on_time=on_time)
        self.record(task, NAMES[task.state], reason)
        if task.parts_left or submitted.part_of is not None:
            self._end_parts(task, reason)

    def _end_parts(self, task: TaskRecord, reason: str | None) -> None:
        """Cancel the parts of a task that has ended; report the end of a part."""
        for number in sorted(task.parts_left):
            self.cancel(self.system.tasks[number], f"task {task.id} ended")
        if task.submitted.part_of is not None:
            self.part_ended(task, reason)

    def _follow_ended(self) -> None:
        """Handle the dependents of tasks that ended, in the order of their ends.

        A queue instead of recursion, because chains of dependents may be long.
        """
        while self._ended and self._steps > 0:
            ended, reason = self._ended[0]
            dependents = self._dependents[ended.id]
            while dependents and self._steps > 0:
                task = dependents.popleft()
                self.spend(task)
                self._follow(ended, reason, task)
            if not dependents:
                self._ended.popleft()
                self.system.ending.discard(ended.id)
                del self._dependents[ended.id]

    def _follow(self, ended: TaskRecord, why: str, task: TaskRecord) -> None:
        """Queue a dependent whose conditions are met by an end; cancel it if one cannot be."""
        if task.state.ended:
            return
        if isinstance(task.unmet, set):  # always, as it has a dependency
            task.unmet.discard(ended.id)
        reason = _reason_to_end(ended, why, task)
        if reason:
            self._close(task, Step.DEPENDENCY_ENDED, reason)
        elif not task.unmet and task.state is State.WAITING:
            self._begin(task, Step.DEPENDENCIES_MET)

    def _begin_due(self) -> None:
        """Queue tasks that waited for an instant which has come."""
        beginnings = self.system.beginnings
        while self._steps > 0 and beginnings.is_due(self.system.now):
            task = beginnings.pop()
            self.spend(task)
            self._begin(task, Step.INSTANT_CAME)

    def _begin(self, task: TaskRecord, step: Step) -> None:
        """Queue a task that waits for no other one, if it may begin by now."""
        if not self.await_instant(task):
            advance(task, step, self.system.now)
            self.enqueue(task)
            self.record(task, "queued")


def _is_staged(task: TaskRecord) -> bool:
    """Whether a task that was staged still waits with a worker."""
    return task.bound and task.state is State.QUEUED


def _with_known(task: TaskRecord, known: tuple[Any, ...]) -> TaskRecord:
    """Return the record of a task whose durable fields are known.

    It is a second record: those of new tasks would take twice as long with these arguments.
    """
    return TaskRecord(
        *known,
        id=task.id,
        row=task.row,
        submitted=task.submitted,
        arrival=task.arrival,
        sequence=task.sequence,
    )


def _reason_to_end(ended: TaskRecord, why: str, task: TaskRecord) -> str:
    """Apply the condition of a dependency; return why the dependent ends, empty: it does not.

    Args:
        ended: the task that ended.
        why: the reason of its end.
        task: the dependent.

    """
    submitted = task.submitted
    completed = ended.state is COMPLETED
    if ended.id in submitted.after_notok:
        task.needed = task.needed or not completed
        if not task.needed and submitted.after_notok.isdisjoint(task.unmet):
            return not_needed(ended.id)
    elif not completed and ended.id not in submitted.after_any:
        return dependency_ended(ended.id, ended.state, why)
    return ""


_AFTER = ", which it comes after, ended as "
_LONGEST_CAUSE = 200
"""Most characters of a reason that its dependents repeat."""


def dependency_ended(task: int, state: str, why: str) -> str:
    """Return why a task ends that depends on one which did not complete.

    Args:
        task: the other task.
        state: how it ended.
        why: the reason of its end. In a chain of dependents this is the end of another
            task; only the first one is repeated, so that reasons do not grow.

    """
    chained = why.rfind(_AFTER)
    first = max(why.rfind("task ", 0, chained), 0) if chained >= 0 else 0
    cause = f": {why[first:][:_LONGEST_CAUSE]}" if why else ""
    return f"task {task}{_AFTER}{state}{cause}"


def not_needed(task: int) -> str:
    """Return why a task ends that runs only if one before it does not complete."""
    return f"not needed: task {task} completed"
