"""The node: the scheduler with its journal and its workers; one shell around the core.

`dispatch(event)` is how everything changes. The loop feeds it what workers report, the
service what users ask; it carries the scheduler's actions out.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, assert_never

import msgspec

from hetd.clock import StepDetector
from hetd.config import quotas
from hetd.foreign_policy import FALLBACK, ForeignPolicy
from hetd.tasks.called_tasks import CalledTasks
from hetd.tasks.dependencies import Settled, settle
from hetd.tasks.history_notes import HistoryNotes
from hetd.tasks.journal import QUIET
from hetd.tasks.leases import SubmitterLeases
from hetd.tasks.operator_settings import OperatorSettings
from hetd.tasks.parts import keep_piece, open_part
from hetd.tasks.recovery import (
    pending_requests,
    running_s,
    submission,
)
from hetsched import actions as a
from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.policies import make_policy
from hetsched.system import SECOND
from hetsched.tasks import State, TaskRecord
from libtask import messages as m
from libtask.errors import BugError
from libtask.messages import ENDED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hetd.config import ActiveConfig, Config
    from hetd.devices.node_devices import NodeDevices
    from hetd.tasks.dependencies import EndedTask
    from hetd.tasks.journal import Journal
    from hetd.tasks.page import TaskPage
    from hetd.timers import Timers
    from hetd.transport.router import Peer
    from hetd.workers.commands import NodeWorkers
    from hetsched.actions import Action
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.policy import Policy
    from hetsched.scheduler import Scheduler
    from hetsched.tasks import TaskRuntime


log = logging.getLogger("hetd")

UNCHANGING = frozenset({e.TaskReady, e.TaskSubmitted})
"""Types of events after which a page need not be written: of a new task, it is to be anyway."""
NONE_ENDED: dict[int, EndedTask] = {}
"""No ended task is known; never changed."""
INDEPENDENT = Settled()
"""Of a task that depends on no other."""
GONE_ON = Settled(notok_met=True)
"""Dependencies of a task that did not wait for them any more when the daemon stopped."""
TIMED_OUT = 124
"""Exit status of a command that is ended at its time limit, as with timeout(1)."""
UNKNOWN_DUE: tuple[int | None, int | None, int | None] = (-1, -1, -1)
TIME_LOOK_S = 30
"""Seconds between two looks for jumps of the time of day while a task waits for an instant."""


class Runtime:
    """Carries out what the scheduler decides.

    Attributes:
        settings: those of operators.
        leases: those of the submitters of tasks.
        called: tasks that end with the runs of others.
        lifecycle: whether the daemon is to stop.

    """

    def __init__(  # noqa: PLR0913, PLR0917  what the scheduler decides concerns all of them
        self,
        config: ActiveConfig,
        timers: Timers,
        scheduler: Scheduler,
        journal: Journal,
        devices: NodeDevices,
        workers: NodeWorkers,
    ) -> None:
        self.clock = timers.clock
        self.counters = Counters()
        self.lifecycle = Lifecycle()
        self.scheduler = scheduler
        self.journal = journal
        self.pool = workers.pool
        self.watchdog = workers.watchdog
        self.settings = OperatorSettings(journal)
        self.leases = SubmitterLeases(journal, timers)
        self.called = CalledTasks(journal, timers)
        self._config = config
        self._timers = timers
        self.next_deadline = timers.next
        """Returns when `tick` has something to do."""
        self._devices = devices.infos
        self._metering = devices.metering
        self._circuits = devices.circuits
        self._commands = workers.commands
        self._history = HistoryNotes(scheduler.system, journal)
        self._pending: deque[Sequence[Event]] = deque()
        self._steps = StepDetector(self.clock)
        self._due = UNKNOWN_DUE
        """Instants of the next trial, train and beginning for which timers are set."""
        self.foreign_policy = ForeignPolicy(scheduler, timers)
        self.policy_fault = ""
        """Why the fallback decides in place of the chosen policy; empty: that one decides."""
        self._last_described: Described | None = None

    def configure(self, config: Config) -> None:
        """Apply another configuration, except for settings that need a restart."""
        self._config.replace(config)
        self.dispatch(e.QuotasChanged(quotas(config.limits)))

    def dispatch(self, *events: Event) -> None:
        """Tell the scheduler, and do what it wants; also of what follows from that.

        Args:
            events: of one instant; any number.

        """
        self._pending.append(events)
        while self._pending:
            # Read before any order leaves: no worker may begin before its record says.
            at = self.clock.wall()
            now = self._pending.popleft()
            self._keep(now, at)
            self._carry_out(self._decide(now), at)
            if self.journal.called:
                self._look_at_callers(now)
        if self.pool.assigned:
            self.watchdog.watch_assigned()
        self._set_timers()

    def _look_at_callers(self, events: Sequence[Event]) -> None:
        """End what callers have called whose worker left them: no `Record` need say so."""
        for event in events:
            task = getattr(event, "task", 0)
            if task in self.journal.called:
                self.called.changed(task)

    def watch_assigned(self) -> None:
        """Save which workers got tasks meanwhile, and set those tasks' deadlines."""
        if self.pool.assigned:
            self.watchdog.watch_assigned()

    def dispatch_any(self, events: Sequence[Event]) -> None:
        """Dispatch events of one instant, if there are any."""
        if events:
            self.dispatch(*events)

    def change_policy(self, policy: Policy) -> None:
        """Change the policy."""
        self.foreign_policy.adopt(policy)
        self.policy_fault = ""
        at = self.clock.wall()
        self._carry_out(self.scheduler.change_policy(policy, self.clock.now()), at)
        self.dispatch()

    def _carry_out(self, actions: Sequence[Action], at: float) -> None:
        """Do what the policy decided; let the fallback decide if it raised an error."""
        if not self.foreign_policy.decides:
            self._do_all(actions, at)
            return
        self.foreign_policy.check()
        self._do_all(actions, at)
        fault, more = self.scheduler.replace_failed_policy(self.clock.now())
        if fault:
            self.foreign_policy.adopt(self.scheduler.policy)
            self._note_fault(fault, at)
            self._do_all(more, at)

    def _note_fault(self, fault: str, at: float) -> None:
        """Tell everybody why the fallback decides in place of the chosen policy."""
        self.policy_fault = fault
        text = f"policy failed: {fault}; {FALLBACK} decides until another is set"
        log.error("%s", text)
        self.journal.record_note(at, "policy-failed", None, text)

    def give_up_policy(self, fault: str) -> None:
        """Store that the chosen policy must not decide after the start that follows.

        Nothing else that follows the last commit is stored, as in a crash: it depends on the
        state that the policy has changed. Its requests were not answered.
        """
        self.journal.drop_tasks()
        self._note_fault(fault, self.clock.wall())
        self.settings.fail(self._chosen_policy, fault)

    @property
    def _chosen_policy(self) -> str:
        """Name of the policy that was set, or else configured."""
        setting = self.settings.policy
        return setting.policy if setting is not None else self._config.value.policy

    def _decide(self, events: Sequence[Event]) -> list[Action]:
        now = self.clock.now()
        if len(events) == 1:
            actions = self.scheduler.handle(events[0], now)
        else:
            actions = self.scheduler.handle_all(events, now)
        self.counters.decided += len(events)
        self.counters.deciding_ns += self.clock.now() - now
        return actions

    def _keep(self, events: Sequence[Event], at: float) -> None:
        """Write the pages of the tasks that events concern with the next commit.

        What the scheduler keeps of a task, such as a pending cancellation, may change
        without a `Record`. Events of resources are noted.
        """
        journal = self.journal
        for event in events:
            if type(event) in UNCHANGING:
                continue
            page = journal.live.get(getattr(event, "task", 0))
            if page is not None:
                journal.save(page)
            else:
                self._history.record_resource_event(event, at)

    def restore(self) -> None:
        """Load the settings of operators and the unfinished tasks."""
        self._steps.step()
        chosen = self.settings.recall()
        fault = self.settings.fault_of(self._chosen_policy)
        if fault:
            text = "policy %s failed before this start: %s; %s decides until another is set"
            log.warning(text, self._chosen_policy, fault, FALLBACK)
            self.change_policy(make_policy(FALLBACK, {}))
            self.policy_fault = fault
        elif chosen is not None:
            self.change_policy(chosen)
        self.settings.tell(self._devices)
        self._circuits.recall()
        resources = frozenset(self._devices)
        pages = self.journal.restore(self.clock.wall())
        again = [wish for page in pages for wish in pending_requests(page, resources)]
        before = self.journal.encoded_pages(pages)
        # Running tasks keep their slots and shares of quotas.
        pages.sort(key=lambda page: page.state != "running")
        settled = {
            page.id: settle(page.spec, self.journal, {})
            for page in pages
            if page.state in ("waiting", "held") and not page.runtime.retried
        }
        ends = list(_left_over(settled))
        tasks = [
            (self._described(page, settled.get(page.id, GONE_ON)), page.runtime)
            for page in pages
        ]
        self._take_up(tasks, ends)
        for page in pages:
            if page.state == "running" and page.spec.time_limit_s is not None:
                self._await_time_limit(page, page.spec.time_limit_s)
        self.journal.drop_unchanged(before)
        # Ends propagate to dependent tasks: all must be restored by then.
        for wish in again:
            self.dispatch(wish)
        self.leases.recall()
        self.called.recall()

    def _take_up(
        self,
        tasks: Sequence[tuple[e.TaskSubmitted, TaskRuntime]],
        ends: Sequence[e.TaskCancelled],
    ) -> None:
        """Pass the tasks from before the start to the scheduler."""
        at = self.clock.wall()
        actions = self.scheduler.restore(tasks, self.clock.now())
        for task, page in self.journal.live.items():
            page.runtime = self.scheduler.system.tasks[TaskId(task)]
        self._do_all(actions, at)
        # at once: no task may start on a resource that it would have to leave
        self.dispatch(
            *self.watchdog.health.take_out_unusable(self._devices.values()),
            *self.settings.drains(self._devices),
            *ends,
            e.NodeStarted(),
        )

    def _described(self, page: TaskPage, settled: Settled) -> e.TaskSubmitted:
        """Describe a restored task to the scheduler; await the worker that may hold it."""
        submitted = self._describe_as_last(page)
        if submitted is None:
            submitted = self.submission(page, notok_met=settled.notok_met)
            self._watch_overrun(page, submitted)
            self._remember_description(page, submitted)
        if page.runtime.in_worker:
            self.watchdog.await_return(page)
        return submitted

    def submit(
        self, pages: Sequence[TaskPage], ended: Mapping[int, EndedTask] = NONE_ENDED
    ) -> None:
        """Submit new tasks; all are known before the first one is placed.

        A task that depends on one which did not complete is cancelled at once, as if that
        had ended after the submit: clients cannot know which came first.

        Args:
            pages: the tasks.
            ended: tasks that they depend on and that are known to have ended.

        """
        submitted: list[e.TaskSubmitted] = []
        settled: dict[int, Settled] = {}
        for page in pages:
            event = self._describe_as_last(page)
            submitted.append(event or self._describe(page, ended, settled))
        ended_at_once = _left_over(settled) if settled else ()
        self.dispatch(*submitted, *ended_at_once)

    def _describe(
        self,
        page: TaskPage,
        ended: Mapping[int, EndedTask],
        settled: dict[int, Settled],
    ) -> e.TaskSubmitted:
        """Describe a new task; keep the description for tasks like it.

        Args:
            page: the task.
            ended: tasks that it depends on and that are known to have ended.
            settled: gets the consequence of those.

        """
        spec = page.spec
        if spec.begin is not None:
            self.dispatch_any(self._time_steps())  # the begin is converted after it
        judged = INDEPENDENT
        if m.dependencies(spec):
            judged = settled[page.id] = settle(spec, self.journal, ended)
        event = self.submission(page, notok_met=judged.notok_met)
        self._watch_overrun(page, event)
        self._remember_description(page, event)
        return event

    def _remember_description(self, page: TaskPage, event: e.TaskSubmitted) -> None:
        """Keep a description for tasks that differ in their ids alone."""
        spec, config = page.spec, self._config.value
        timed = spec.deadline_s is not None or spec.begin is not None
        if not (timed or m.dependencies(spec) or page.holder):
            self._last_described = Described(spec, page.owner, config, event)

    def _describe_as_last(self, page: TaskPage) -> e.TaskSubmitted | None:
        """Describe a task that differs from the last one in its id alone; None: it does not."""
        known = self._last_described
        if known is None or not known.fits(page, self._config.value):
            return None
        return msgspec.structs.replace(known.event, task=TaskId(page.id))

    def amend_all(self, pages: Sequence[TaskPage]) -> None:
        """Apply changed priorities and deadlines of tasks."""
        events = []
        for page in pages:
            task = self.submission(page)
            self._watch_overrun(page, task)
            events.append(e.TaskAmended(task.task, task.priority, task.deadline))
        self.dispatch(*events)

    def submission(self, page: TaskPage, *, notok_met: bool = False) -> e.TaskSubmitted:
        """Describe a task of the journal to the scheduler."""
        seconds = self._config.value.migration_ms / 1e3
        return submission(page, seconds, self.clock, notok_met=notok_met)

    def give_strips(self, page: TaskPage, given: m.StripsGiven) -> None:
        """Make a part of the strips that a worker gave up, as it was asked."""
        record = self.scheduler.system.tasks[TaskId(page.id)]
        if not record.gives_strips:
            return  # the task will do them itself, when it runs next
        part = None
        if _is_possible(record, page, given):
            opened = open_part(self.journal, page, given, self.clock.wall())
            part = self.submission(opened)
        granule = min(given.granule / max(given.total, 1), 1.0)
        self.dispatch(e.StripsGiven(record.id, given.epoch, part, granule))

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        """Do what is due."""
        now = self.clock.now()
        for action in self._timers.due(now):
            self.dispatch_any(action(now))
        if now >= self.watchdog.next_look:
            for events in self.watchdog.look(now):
                self.dispatch_any(events)

    def _set_timers(self) -> None:
        """Call the scheduler when the next trial, train or beginning is due."""
        scheduler = self.scheduler
        trial, train = scheduler.next_trial(), scheduler.next_recall()
        beginning = scheduler.next_beginning()
        if (trial, train, beginning) == self._due:
            return
        self._due = trial, train, beginning
        timers = self._timers
        timers.set("trial", trial, partial(self._come, e.TrialDue()))
        timers.set("recall", train, partial(self._come, e.TrainOverdue()))
        timers.set("begin", beginning, partial(self._come, e.BeginningDue()))
        self._await_time_steps()

    def _come(self, event: Event, _now: Nanoseconds) -> Sequence[Event]:
        """Return the event of a timer that has fired; the timers are set again after it."""
        self._due = UNKNOWN_DUE
        return [event]

    def _await_time_steps(self) -> None:
        """Look for a jump of the time of day later, if a task waits for an instant."""
        waits = self.scheduler.next_beginning() is not None
        if waits and not self._timers.has("time of day"):
            look = self.clock.now() + TIME_LOOK_S * SECOND
            self._timers.set("time of day", look, self._look_at_time)

    def _look_at_time(self, _now: Nanoseconds) -> Sequence[Event]:
        """Look for a jump of the time of day, and again later."""
        self._await_time_steps()
        return self._time_steps()

    def _time_steps(self) -> Sequence[Event]:
        """Return the event of a jump of the time of day since the last look; else nothing."""
        step = self._steps.step()
        return [e.TimeStepped(-round(step * SECOND))] if step else ()

    def _watch_overrun(self, page: TaskPage, submitted: e.TaskSubmitted) -> None:
        """Schedule the end of a task that may not run after its deadline."""
        if page.spec.overrun == "stop":
            stop = partial(self._stop_overrun, submitted.task)
            self._timers.set(_overrun(submitted.task), submitted.deadline, stop)

    def _stop_overrun(self, task: TaskId, _now: Nanoseconds) -> Sequence[Event]:
        page = self.journal.live[task]
        after = f"{page.spec.deadline_s:g} s after submission"
        return [e.TaskCancelled(task, f"stopped at its deadline, {after}")]

    def _await_time_limit(self, page: TaskPage, limit: float) -> None:
        """Schedule the end of a task that starts to run and has a time limit, in seconds."""
        record = self.scheduler.system.tasks.get(TaskId(page.id))
        if record is not None:
            left = max(limit - running_s(page, self.clock.wall()), 0.0)
            due = self.clock.now() + int(left * SECOND)
            stop = partial(self._stop_at_time_limit, record.id, record.since)
            self._timers.at(due, stop)

    def _stop_at_time_limit(
        self, task: TaskId, since: Nanoseconds, _now: Nanoseconds
    ) -> Sequence[Event]:
        """Cancel a task that has run for as long as it may, if it still runs."""
        record = self.scheduler.system.tasks.get(task)
        if record is None or record.state != "running" or record.since != since:
            return ()  # if it was stopped in between, a later timer is for its new start
        page = self.journal.live[task]
        if page.spec.app == m.COMMAND:
            page.exit_code = TIMED_OUT
        reason = f"it ran for {page.spec.time_limit_s:g} s, its time limit"
        return [e.TaskCancelled(task, reason)]

    # ------------------------------------------------------------ actions

    def _do_all(self, actions: Sequence[Action], at: float) -> None:
        """Carry actions out in order; commands to the same worker are sent together."""
        gathers = self.pool.gather()
        try:
            for action in actions:
                match action:
                    case a.Record():
                        self._record(action, at)
                    case a.Run() | a.Begin():
                        self._begin(action)
                    case _:
                        self._do(action, at)
        finally:
            if gathers:
                self.pool.flush()

    def _do(
        self,
        action: a.Stage
        | a.Preempt
        | a.Abort
        | a.Recall
        | a.Suspend
        | a.Split
        | a.SetTimer
        | a.KeepCircuit,
        at: float,
    ) -> None:
        """Carry out an action of a kind that not every task needs."""
        match action:
            case a.Stage():
                self._commands.stage(action)
            case a.Preempt() | a.Abort() | a.Recall():
                self._stop(action, at)
            case a.Suspend():
                self._commands.suspend(action)
            case a.Split():
                self._commands.split(action)
            case a.SetTimer():
                self._timers.set("wake", action.at, lambda _now: [e.TimerFired()])
            case a.KeepCircuit():
                self._pending.append(self._circuits.keep(action))
            case _:
                assert_never(action)

    def _record(self, action: a.Record, at: float) -> None:
        """Enter a change of state in the task's page."""
        journal = self.journal
        page = journal.live[action.task]
        if action.event == "retried" or action.state is State.FAILED:
            # before the energy of the segment is charged
            journal.end_by_error(page, action.reason, at)
        if action.event not in QUIET:
            self._metering.note(action, page, self.scheduler.system.now)
        self.counters.records[action.event] += 1
        record = page.runtime
        if not isinstance(record, TaskRecord):  # its first change since the start
            record = self._record_of(action.task)
            page.runtime = record
        if record.not_before or page.begins is not None:
            self._note_beginning(page, record, at)
        journal.record(action, at, record.rule)
        if action.state in ENDED:
            self._finish(page, action.state)
        if page.id in journal.called:
            self.called.changed(page.id)

    def _record_of(self, task: TaskId) -> TaskRecord:
        record = self.scheduler.record(task)
        if record is None:
            raise BugError(f"task {task} is recorded, and not known")
        return record

    def _finish(self, page: TaskPage, state: State) -> None:
        """Do what follows from the end of a task that is a part, or has to stop in time."""
        spec = page.spec
        if spec.part is not None and state is State.COMPLETED:
            keep_piece(self.journal, page)
        if spec.overrun == "stop":
            self._timers.remove(_overrun(page.id))

    def _note_beginning(self, page: TaskPage, record: TaskRecord, at: float) -> None:
        """Enter when a task may begin, in seconds since the epoch, if it waits for that."""
        page.begins = None
        if record in self.scheduler.system.beginnings:
            left = record.not_before - self.scheduler.system.now
            page.begins = at + left / SECOND

    def _recall(self, action: a.Recall) -> None:
        """Recall a task that waits behind others; at once if it has no worker."""
        if self.pool.worker_of(action.task) is not None:
            self.pool.send(action.task, m.Recall(action.task, action.epoch))
            return
        self.pool.release(action.task)
        self._pending.append([e.TaskAborted(action.task, action.epoch)])

    def _begin(self, action: a.Run | a.Begin) -> None:
        """Order a worker to run a task, or watch one that has begun there behind others."""
        if isinstance(action, a.Begin):
            self.watchdog.runs(action.task)
        else:
            self._commands.run(action)
            if action.after is not None:
                return
        page = self.journal.live[action.task]
        if page.spec.time_limit_s is not None:
            self._await_time_limit(page, page.spec.time_limit_s)

    def _stop(self, action: a.Preempt | a.Abort | a.Recall, at: float) -> None:
        if isinstance(action, a.Recall):
            self._recall(action)
            return
        self._history.record_stop(action.task, at)
        if isinstance(action, a.Preempt):
            self._commands.preempt(action)
            return
        aborted = self._commands.abort(action)
        if aborted is not None:
            self._pending.append([aborted])

    # ------------------------------------------------------------ bugs

    def excuse(self, peer: Peer, message: m.Message, error: Exception) -> m.Error:
        """Log a bug, and make sure that the daemon may continue.

        Raises:
            BugError: the state is not consistent; hetd has to restart from the durable state.

        """
        self.foreign_policy.demand_blameless(error)
        kind = type(message).__name__
        log.error("a %s from uid %d failed", kind, peer.uid, exc_info=error)
        self._demand_whole()
        number = message.request if isinstance(message, m.Request) else 0
        return m.Error(number, "bug", "internal error of hetd; its log has the story")

    def _demand_whole(self) -> None:
        """Check that a failed message left a consistent state."""
        self.scheduler.check()
        known, live = self.scheduler.system.tasks, self.journal.live
        if known.keys() != live.keys():
            odd = sorted(known.keys() ^ live.keys())[:10]
            raise BugError(f"scheduler and journal differ about tasks {odd}")

    def order_again(self, task: TaskId) -> None:
        """Order another worker what the last one left undone."""
        aborted = self._commands.to_another(task)
        if aborted is not None:
            self.dispatch(aborted)


def _left_over(settled: Mapping[int, Settled]) -> Iterator[e.TaskCancelled]:
    """Cancel tasks whose dependencies failed before they could be followed."""
    for task, judged in settled.items():
        if judged.reason:
            yield e.TaskCancelled(TaskId(task), judged.reason)


def _is_possible(record: TaskRecord, page: TaskPage, given: m.StripsGiven) -> bool:
    """Whether there are strips in a report, and they are the last ones of the task."""
    limit = given.total if page.limit is None else page.limit
    return (
        record.submitted.parallel
        and 0 < given.start < given.stop == limit <= given.total
        and record.kept <= given.start / given.total < record.limit
    )


def _overrun(task: int) -> str:
    """Name the timer that stops a task at its deadline."""
    return f"overrun of {task}"


@dataclass(frozen=True, slots=True)
class Described:
    """A description of a task for the scheduler, and the tasks that it is right for.

    Attributes:
        spec: what their owner specified; `config`: the configuration at that time.

    """

    spec: m.TaskSpec
    owner: int
    config: Config
    event: e.TaskSubmitted

    def fits(self, page: TaskPage, config: Config) -> bool:
        """Whether a task differs from the described one in its id alone."""
        return (
            page.spec is self.spec
            and page.owner == self.owner
            and config is self.config
            and page.holder is None
        )


@dataclass(slots=True)
class Lifecycle:
    """Whether the daemon stops, and how; signals and requests set it.

    Attributes:
        stop_requested: whether the loop ends after its present turn.
        draining: whether it refuses requests, and waits for running tasks.

    """

    stop_requested: bool = False
    draining: bool = False


@dataclass(slots=True)
class Counters:
    """Counts since the start; none of them ever shrinks.

    Attributes:
        records: changes of tasks, by the event that made them.
        decided: events that the scheduler took in; `deciding_ns`: time that it took.
        commits: made by the store; `commit_ns`: time from order to end.
        refused: messages that could not be understood, or were not for their sender
            to send.

    """

    records: Counter[str] = field(default_factory=Counter)
    decided: int = 0
    deciding_ns: int = 0
    commits: int = 0
    commit_ns: int = 0
    refused: int = 0
