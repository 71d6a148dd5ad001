"""The scheduler: the only mutator. `handle(event, now)` returns actions.

Mechanism, not policy: a free slot always takes the head of its queue, the next tasks
of a busy resource are staged, a task that yielded goes where it was sent. Where tasks
go is the policy's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from hetsched import actions as a
from hetsched import events as e
from hetsched import policy as p
from hetsched.breaker import Breaker
from hetsched.invariants import check
from hetsched.limits import Limits
from hetsched.reactor import Reactor
from hetsched.state import SchedulerState
from hetsched.system import System

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetsched.actions import Action
    from hetsched.events import Event, TaskRestored, TaskSubmitted
    from hetsched.ids import Nanoseconds
    from hetsched.policy import Decision, Policy
    from hetsched.system import Estimates, Resource, ResourceState
    from hetsched.tasks import Row, TaskRecord


class Scheduler:
    """Events in, actions out."""

    def __init__(
        self,
        resources: Sequence[Resource],
        estimates: Estimates,
        policy: Policy,
        *,
        limits: Limits | None = None,
        first_epoch: int = 1,
    ) -> None:
        limits = limits or Limits()
        self.system = System(resources, estimates, Breaker(limits.avoid_ns))
        self.state = SchedulerState(self.system, limits, first_epoch)
        self._adopt(policy)
        self._reactor = Reactor(self.state)

    def handle(self, event: Event, now: Nanoseconds) -> list[Action]:
        """Take in what happened; return what to do about it, in order.

        Raises:
            BugError: the event is impossible in the present state.

        """
        self.system.now = now
        state = self.state
        # at the start nobody waits for answers yet
        state.begin(bounded=not isinstance(event, e.NodeStarted))
        self._reactor.apply(event)
        self._decide([event])
        return state.finish()

    def handle_all(self, events: Sequence[Event], now: Nanoseconds) -> list[Action]:
        """Take in what happened at one instant, as one.

        No decision is made on half of it: tasks that arrive together are all there
        before the first one is placed. Of several events of one type the policy is told
        the last, as the system has taken in all of them (of `TaskYielded` each); or one
        after the other, if it decides for each.

        Raises:
            BugError: an event is impossible in the present state.

        """
        self.system.now = now
        starts = any(isinstance(event, e.NodeStarted) for event in events)
        self.state.begin(bounded=not starts)
        for event in events:
            self._reactor.apply(event)
        self._decide(events)
        return self.state.finish()

    def restore(
        self, tasks: Sequence[TaskSubmitted | TaskRestored], now: Nanoseconds
    ) -> list[Action]:
        """Take in tasks that there were before the start; `NodeStarted` is to follow.

        No task may be placed where another still runs that is not taken up yet. Where
        the waiting ones wait is told once, when they are placed.

        Args:
            tasks: in the order of their ids, but for those that run.
            now: one instant for all.

        """
        self.system.now = now
        self.state.begin()
        for task in tasks:
            self._reactor.restore(task)
        return self.state.actions

    def change_policy(self, policy: Policy, now: Nanoseconds) -> list[Action]:
        """Let another policy decide from now on; return the actions that follow."""
        self.system.now = now
        self._adopt(policy)
        return self.handle(e.PolicyChanged(), now)

    def next_trial(self) -> Nanoseconds | None:
        """When `TrialDue` is to be told; None: never, as things are."""
        return self.system.breaker.next_retry()

    def next_recall(self) -> Nanoseconds | None:
        """When `TrainOverdue` is to be told; None: never, as things are."""
        return self.state.next_recall()

    def check(self) -> None:
        """Raise `BugError` where an invariant of the state does not hold."""
        check(self.system)

    def _adopt(self, policy: Policy) -> None:
        self.policy = policy
        self.system.set_objective(p.objective_of(policy))
        self.state.arrival_rule = p.arrival_rule_of(policy)

    def _decide(self, events: Sequence[Event]) -> None:
        """Go on with what earlier events led to, and carry the policy's decisions out."""
        self.state.continue_pending()
        self.state.admit_deferred()
        each = p.reacts_to_each(self.policy)
        for same in _alike(events):
            # where it decides nothing, it would decide nothing for the next one either
            for event in same if each else same[-1:]:
                if not self._react(event):
                    break
        self._fill()
        self._stage()

    def _react(self, event: Event) -> bool:
        """Apply what the policy decides, as many decisions as one handling may.

        A policy that is stopped short looks at the system anew, when the timer is due.

        Returns:
            Whether it decided something, and may decide more.

        """
        decided = False
        for decision in self.policy.react(event, self.system, self.system.now):
            if self.state.interrupted:
                return False
            if isinstance(decision, p.Wake):
                task = None
            else:
                task = self.system.tasks.get(decision.task)
                decided = True
            self._apply(decision)
            if not self.state.spend(task):
                self.state.interrupted = True
        return decided

    def _apply(self, decision: Decision) -> None:
        match decision:
            case p.Place():
                self.state.place(decision.task, decision.resource, decision.rank)
                self.system.tasks[decision.task].rule = decision.rule
            case p.Preempt():
                self.state.preempt(
                    decision.task, decision.destination, makes_way=decision.makes_way
                )
                self.system.tasks[decision.task].rule = decision.rule
            case p.Drop():
                self.state.drop(decision.task, decision.reason)
            case p.Wake():
                self.state.actions.append(a.SetTimer(decision.at))
            case _:
                assert_never(decision)

    def _fill(self) -> None:
        """Let every free slot take the head of its queue."""
        for state in self.system.usable_states():
            while len(state.running) < state.slots and state.queue:
                task = state.queue.pop()
                if self.state.admission.lacks_worker(task):
                    self.state.defer_popped(task)
                    continue
                self.state.dispatch(task, state)
                if self.state.limits.train > 1 and state.queue:
                    self._extend_train(task, state)

    def _extend_train(self, first: TaskRecord, state: ResourceState) -> None:
        """Let short tasks like the one that has just got a slot follow it there."""
        if state.resource.shared or not _may_join_train(first):
            return
        limits = self.state.limits
        seconds = self.system.estimates.seconds(first.row, state.resource)
        if seconds > limits.train_task_s:
            return
        most = min(limits.train, int(limits.train_s / max(seconds, 1e-9)))
        # what waits is shared with the other slots
        for _ in range(min(most - 1, len(state.queue) // state.slots)):
            task = state.queue.head()
            if task is None or not _is_like(task, first) or not _may_join_train(task):
                return
            self.state.dispatch_behind(state.queue.pop(), state, first)

    def _stage(self) -> None:
        """Bind the next tasks of every busy resource to workers."""
        if not self.state.limits.stage:
            return
        for state in self.system.usable_states():
            queue = state.queue
            if not queue.touched:
                continue
            queue.touched = False
            # Most queues of very short tasks hold nothing else: not worth a walk.
            if any(self._worth_staging(row, state.resource) for row in queue.rows()):
                self._stage_first(state)

    def _stage_first(self, state: ResourceState) -> None:
        for task in state.queue.first(self.state.limits.stage * state.slots):
            if self.state.admission.lacks_worker(task):
                continue  # it is about to be kept out
            if not task.bound and self._worth_staging(task.row, state.resource):
                self.state.stage(task)

    def _worth_staging(self, row: Row, resource: Resource) -> bool:
        seconds = self.system.estimates.seconds(row, resource)
        return seconds >= self.state.limits.stage_above_s


def _alike(events: Sequence[Event]) -> list[list[Event]]:
    """Group the events that say the same to a policy; what yielded is there to be judged."""
    groups: dict[object, list[Event]] = {}
    for event in events:
        which = event.task if isinstance(event, e.TaskYielded) else None
        groups.setdefault((type(event), which), []).append(event)
    return list(groups.values())


def _may_join_train(task: TaskRecord) -> bool:
    """Whether nothing is known of a task that would make it a bad neighbour."""
    submitted = task.submitted
    return not (
        task.never_in_train
        or task.attempts
        or task.progress
        or task.failures
        or submitted.served
        or submitted.single
        or task.pinned is not None
        or not task.preemptible
    )


def _is_like(task: TaskRecord, first: TaskRecord) -> bool:
    """Whether a waiting task may follow another in its slot."""
    mine, other = task.submitted, first.submitted
    return (
        task.row is first.row
        and not task.bound
        and mine.owner == other.owner
        and mine.priority == other.priority
    )
