"""The scheduler: events in, actions out.

Theory of operation
===================

The scheduler decides which task runs where. It is pure: it does no I/O, starts no thread and
reads no clock. Its caller, the *shell*, passes the present instant with every call. There are
two shells: the daemon (`hetd.runtime`) and the simulator (`hetsim`).

*Events* (`events`) are facts about the world: a task was submitted, a worker reported progress,
a resource was lost. `Scheduler.handle(event, now)` does four things, in this order:

1. The *reactor* (`reactor`) applies the event to the state. It has one method for each type of
   event. An event of an ended task, or of an older binding to a worker (an older `epoch`), is
   late and changes nothing. `handle_all` applies several events of one instant first and then
   decides once for all of them.
2. What earlier events left over is continued, and tasks within their owners' quotas are
   admitted (`quotas`), and those whose needs are free (`needs`). A policy never sees tasks that
   are beyond a quota, or that wait for cores or memory.
3. The *policy* (`policy`) is asked once for each type of event, and for each `TaskYielded`. It
   yields decisions: place, preempt or drop a task, or call again later. Each decision is applied
   before the policy goes on, so that it sees the effects of its own decisions.
4. Mechanism that is the same for all policies follows: each free slot takes the head of its run
   queue (`queues`), short tasks that are alike follow it in the same worker (`trains`), and the
   next longer tasks of busy resources are staged in workers of their own.

*Actions* (`actions`) are what the shell is to do, in order: `Run`, `Preempt`, `Abort`, `Record`
and so on. The scheduler never waits for their results; those come back as events.

The state is split in two. `System` (`system`) is what policies may read. `SchedulerState`
(`state`) wraps it with the steps by which it changes; only the reactor and the scheduler call
these. A task (`tasks`) has a state, changed by `transitions` alone, and while it runs an intent:
yield, hold, cancel or none. It keeps a story of its steps, which every `BugError` quotes.

One call does a bounded amount of work where `Limits.at_once` is set. What remains is done by the
next call, for which the actions contain a `SetTimer`.

`invariants` holds after every call: each task is in exactly one place, no slot is used twice, no
slot idles while a task waits for it, and a task is departing if and only if it was asked to
leave. Tests call `Scheduler.check()` after each event; the daemon does so now and then, and only
while a policy of another package decides.

Read on in `tasks`, `events`, `actions`, `policy`, `reactor` and `state`; then a policy, for
instance `hetsched.policies.finish_time`. How applications avoid resources on which they failed
is in `breaker`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from hetsched import actions as a
from hetsched import events as e
from hetsched import policy as p
from hetsched.breaker import Breaker
from hetsched.decision_checks import SOONEST_WAKE, checked
from hetsched.invariants import check
from hetsched.lending import SlotLending
from hetsched.limits import Limits
from hetsched.reactor import Reactor
from hetsched.state import SchedulerState
from hetsched.system import System
from hetsched.trains import Trains
from libtask.errors import BugError
from libtask.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hetsched.actions import Action
    from hetsched.contention import ContentionModel
    from hetsched.events import Event, TaskSubmitted
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.policy import Decision, Policy
    from hetsched.system import Estimates, Resource, ResourceState
    from hetsched.tasks import Row, TaskRecord, TaskRuntime


class Scheduler:
    """Events in, actions out.

    Args:
        resources: the processors of the node.
        estimates: expected execution times.
        policy: the policy that decides.
        limits: parameters of the mechanism.
        first_epoch: larger than every epoch of earlier runs.
        contention: what resources share; None: contention is not modelled.

    Attributes:
        fallback: replaces a policy of another package that raises an error; None: the
            error is raised, for its developer to see.

    """

    def __init__(  # noqa: PLR0913  what a shell may choose, by keyword
        self,
        resources: Sequence[Resource],
        estimates: Estimates,
        policy: Policy,
        *,
        limits: Limits | None = None,
        first_epoch: int = 1,
        contention: ContentionModel | None = None,
    ) -> None:
        limits = limits or Limits()
        self.fallback: Policy | None = None
        self._policy_fault = ""
        breaker = Breaker(limits.avoid_ns)
        self.system = System(resources, estimates, breaker, contention)
        self.state = SchedulerState(self.system, limits, first_epoch)
        self._trains = Trains(self.state)
        self._lending = SlotLending(self.state)
        self._adopt(policy)
        self._reactor = Reactor(self.state, self._trains)

    def handle(self, event: Event, now: Nanoseconds) -> list[Action]:
        """Apply an event; return the actions that follow, in order.

        Raises:
            BugError: the event is impossible in the present state.

        """
        self.system.now = now
        state = self.state
        # the work is not bounded at the start: nobody waits for a reply yet
        state.begin(bounded=type(event) is not e.NodeStarted)
        self._reactor.apply(event)
        state.resume()
        self._ask(event)
        self._fill()
        return state.finish()

    def handle_all(self, events: Sequence[Event], now: Nanoseconds) -> list[Action]:
        """Apply several events of one instant, then decide once for all of them.

        Tasks that arrive together are all present before the first one is placed. The
        policy is asked once for each type of event, with the last of that type (for
        `TaskYielded` with each); one with `each_event` is asked with each of them, until
        it decides nothing.

        Raises:
            BugError: an event is impossible in the present state.

        """
        self.system.now = now
        starts = e.NodeStarted in map(type, events)
        self.state.begin(bounded=not starts)
        for event in events:
            self._reactor.apply(event)
        self.state.resume()
        self._ask_for_all(events)
        self._fill()
        return self.state.finish()

    def restore(
        self, tasks: Sequence[tuple[TaskSubmitted, TaskRuntime]], now: Nanoseconds
    ) -> list[Action]:
        """Restore the tasks of an earlier run of the shell; `NodeStarted` must follow.

        Nothing is placed before `NodeStarted`, so that no task gets a slot in which one
        that is not restored yet still runs. The place of a waiting task is recorded once,
        when it is placed. The shell must send requests that were pending again.

        Args:
            tasks: descriptions and durable fields, as stored; running tasks first, then the
                others in the order of their ids.
            now: the present instant, the same for all.

        """
        self.system.now = now
        self.state.begin()
        for submitted, runtime in tasks:
            self._reactor.restore(submitted, runtime)
        self._reactor.restore_parts()
        return self.state.actions

    def change_policy(self, policy: Policy, now: Nanoseconds) -> list[Action]:
        """Let another policy decide from now on; return the actions that follow."""
        self.system.now = now
        self._adopt(policy)
        return self.handle(e.PolicyChanged(), now)

    def replace_failed_policy(self, now: Nanoseconds) -> tuple[str, list[Action]]:
        """Change to the fallback if the policy has raised an error.

        Returns:
            the error, empty if there was none, and the actions that follow.

        """
        fault, self._policy_fault = self._policy_fault, ""
        if not fault or self.fallback is None:
            return "", []
        return fault, self.change_policy(self.fallback, now)

    def next_trial(self) -> Nanoseconds | None:
        """Return the instant at which `TrialDue` must be sent; None: no trial is pending."""
        return self.system.breaker.next_retry()

    def next_recall(self) -> Nanoseconds | None:
        """Return the instant at which `TrainOverdue` must be sent; None: there is no train."""
        return self._trains.next_recall()

    def next_beginning(self) -> Nanoseconds | None:
        """Return the instant at which `BeginningDue` must be sent; None: no task waits for one."""
        return self.system.beginnings.next()

    def record(self, task: TaskId) -> TaskRecord | None:
        """Return the record of a live task, or of one that ended in the last call."""
        return self.system.tasks.get(task) or self.state.closed.get(task)

    def check(self) -> None:
        """Raise `BugError` where an invariant of the state does not hold."""
        check(self.system)

    def _adopt(self, policy: Policy) -> None:
        self.policy = policy
        self._is_foreign = p.is_foreign(policy)
        self._each_event = p.reacts_to_each(policy)
        self.system.set_objective(p.objective_of(policy))
        self.state.arrival_rule = p.arrival_rule_of(policy)

    def _ask_for_all(self, events: Sequence[Event]) -> None:
        """Ask the policy with the events of one instant."""
        for same in _alike(events):
            # a policy that decides nothing for one would decide nothing for the next
            for event in same if self._each_event else same[-1:]:
                if not self._ask(event):
                    break

    def _ask(self, event: Event) -> bool:
        """Ask the policy; an error in one of another package must not end the shell.

        Returns:
            whether it decided something and may decide more.

        Raises:
            StateChangedError: the policy changed the state, from which nothing can go on.

        """
        if not self._is_foreign:
            return self._apply_all(event)
        if self._policy_fault:
            return False
        try:
            return self._apply_all(event)
        except p.StateChangedError as error:
            fault = f"{self._policy_class}: {error}"
            if self.fallback is None:
                fault = f"policy {fault}"
            raise p.StateChangedError(fault) from error
        except (BugError, SystemExit) as error:
            self._blame_policy(error)
        except Exception as error:
            if self.fallback is None:
                raise  # its developer wants to see where
            self._blame_policy(error)
        return False

    @property
    def _policy_class(self) -> str:
        return type(self.policy).__name__

    def _blame_policy(self, error: BaseException) -> None:
        """Note that the policy failed.

        Raises:
            BugError: there is no other policy that could decide instead.

        """
        kind = "" if isinstance(error, BugError) else f"{type(error).__name__}: "
        fault = f"{self._policy_class}: {kind}{one_line(error)}"
        if self.fallback is None:
            raise BugError(f"policy {fault}") from error
        self._policy_fault = fault

    def _apply_all(self, event: Event) -> bool:
        """Apply the policy's decisions, up to the limit of one call.

        A policy that is interrupted by the limit is asked again when the timer fires.

        Returns:
            whether it decided something and may decide more.

        """
        decided = False
        for decision in self._decisions(event):
            if self.state.interrupted:
                return False
            if isinstance(decision, p.Wake):
                task = None
            else:
                if decision.task in self.state.closed:
                    continue  # an earlier decision ended it: parts end with the whole task
                task = self.system.tasks.get(decision.task)
                if task is None:
                    raise BugError(f"there is no task {decision.task}")
                decided = True
            self._apply(decision)
            if not self.state.spend(task):
                self.state.interrupted = True
        return decided

    def _decisions(self, event: Event) -> Iterable[Decision]:
        """Return what the policy decides, one after the other."""
        if self._is_foreign:
            return checked(self.policy, event, self.system)
        return self.policy.react(event, self.system, self.system.now)

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
            case p.Split():
                self.state.split(decision.task, decision.resource, decision.limit)
            case p.Drop():
                self.state.drop(decision.task, decision.reason)
            case p.Wake():
                # a task with a past deadline may have become ready in this call
                soonest = SOONEST_WAKE if self._is_foreign else 1
                at = max(decision.at, self.system.now + soonest)
                self.state.actions.append(a.SetTimer(at))
            case _:
                assert_never(decision)

    def _fill(self) -> None:
        """Dispatch the head of its queue to every free slot, then stage tasks.

        Tasks that were just admitted because what they need became free come first; where
        they wait for a busy resource, others may take it.
        """
        states, needs = self.system.usable_states(), self.state.needs
        if self.state.shares.compared:
            self.state.shares.charge_overdue()
        if needs.pledged:
            for state in states:
                self._fill_with_admitted(state)
            needs.end_pledges()
        for state in states:
            while state.queue.entries and len(state.running) < state.slots:
                self._start(state.queue.pop(), state)
        self._lending.fill()
        if self.state.limits.train > 1:
            self._trains.adapt(states)
        if self.state.limits.stage:
            self._stage()

    def _fill_with_admitted(self, state: ResourceState) -> None:
        """Dispatch tasks to free slots, without using what is held for admitted ones.

        If the head of the queue cannot start, the first one that was just admitted does.
        """
        needs, name = self.state.needs, state.resource.name
        while len(state.running) < state.slots and state.queue:
            (head,) = state.queue.first(1)
            for task in [head, *needs.pledged_to(name)]:
                if needs.may_start(task, name):
                    break
            else:
                return
            state.queue.remove(task)
            self._start(task, state)

    def _start(self, task: TaskRecord, state: ResourceState) -> None:
        """Dispatch a task, already out of its queue, to a free slot, unless it has to wait."""
        name = state.resource.name
        if self.system.unattended and self.state.admission.lacks_worker(task):
            self.state.defer_popped(task)
        elif task.needs is not None and not self.state.needs.may_start(task, name):
            self.state.block_popped(task)
        else:
            self.state.dispatch(task, state)
            if self.state.limits.train > 1 and state.queue.entries:
                self._trains.extend(task, state)

    def _stage(self) -> None:
        """Bind the next tasks of every busy resource to workers."""
        for state in self.system.usable_states():
            queue = state.queue
            if not queue.touched:
                continue
            queue.touched = False
            # Most queues of very short tasks hold nothing else, and need no walk.
            if any(self._worth_staging(row, state.resource) for row in queue.rows()):
                self._stage_first(state)

    def _stage_first(self, state: ResourceState) -> None:
        first = state.queue.first(self.state.limits.stage * state.slots)
        for task in first:
            if self.state.admission.lacks_worker(task):
                continue  # it will be deferred
            if task.bound or self._trains.awaits(task, state):
                continue
            if self._worth_staging(task.row, state.resource):
                self.state.stage(task)
        slots = sum(each.slots for each in self.system.usable_states())
        self.state.unstage_others(first, 2 * self.state.limits.stage * slots)

    def _worth_staging(self, row: Row, resource: Resource) -> bool:
        seconds = self.system.estimates.seconds(row, resource)
        return seconds >= self.state.limits.stage_above_s


def _alike(events: Sequence[Event]) -> list[list[Event]]:
    """Group events by type; each `TaskYielded` is a group, for policies judge its task."""
    groups: dict[object, list[Event]] = {}
    for event in events:
        which = event.task if isinstance(event, e.TaskYielded) else None
        groups.setdefault((type(event), which), []).append(event)
    return list(groups.values())
