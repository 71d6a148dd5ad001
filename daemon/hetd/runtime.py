"""The node: the scheduler with its journal and its workers; one shell around the core.

`dispatch(event)` is how everything changes. The loop feeds it what workers report, the
service what users ask; it carries the scheduler's actions out.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, assert_never

from hetd.clock import SYSTEM_CLOCK, Clock
from hetd.config import Origins, UserLimits, quotas
from hetd.devices.circuits import Circuits
from hetd.devices.metering import Metering
from hetd.devices.meters import Finder
from hetd.tasks.history_notes import HistoryNotes
from hetd.tasks.operator_settings import OperatorSettings
from hetd.tasks.recovery import (
    note,
    pending_requests,
    resource,
    restored,
    submission,
)
from hetd.workers.commands import Commands
from hetd.workers.watchdog import Watchdog, kill_group
from hetsched import actions as a
from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.limits import Limits
from hetsched.policies import make_policy
from hetsched.scheduler import Scheduler
from hetsched.state import dependency_ended
from hetsched.system import SECOND
from hetsched.tasks import Row
from libtask import messages as m
from libtask.processes import started_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hetd.config import Config
    from hetd.tasks.journal import Journal
    from hetd.tasks.page import TaskPage
    from hetd.workers.pool import WorkerPool
    from hetsched.actions import Action
    from hetsched.estimates.table import EstimateTable
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.policy import Policy


log = logging.getLogger("hetd")

FALLBACK = "finish-time"
"""Policy that replaces one of another package after an error."""
AT_ONCE = 250
"""Tasks that one decision handles in addition to those of its event: some 5 ms."""
TRAIN = 16
"""Short tasks that a worker is given at once, at most: they share messages and wake-ups."""
EPOCHS = 1 << 32
"""Epochs that one run of the daemon can give out; the next run's are all larger."""


class Runtime:
    """Carries out what the scheduler decides.

    Args:
        devices: the resources.
        first_epoch: larger than every epoch given out before.
        clock: source of time.
        kill: kills a worker of our own user and its descendants, by its pid.
        started_at: returns when the process of a pid started; 0: there is none.

    """

    def __init__(  # noqa: PLR0913, PLR0917  the parts of the daemon meet here
        self,
        devices: Sequence[m.DeviceInfo],
        config: Config,
        policy: Policy,
        estimates: EstimateTable,
        journal: Journal,
        pool: WorkerPool,
        *,
        first_epoch: int,
        clock: Clock = SYSTEM_CLOCK,
        kill: Callable[[int], None] = kill_group,
        started_at: Callable[[int], int] = started_at,
    ) -> None:
        self.clock = clock
        self.counters = Counters()
        self.devices = {device.spec.name: device for device in devices}
        self.config = config
        self.origins = Origins()
        self.limits = UserLimits(config.limits)
        self.stopping = False
        """Whether the daemon stops: it refuses requests, and waits for tasks."""
        self.estimates = estimates
        self.journal = journal
        self.pool = pool
        self.scheduler = Scheduler(
            [resource(device, config.queue_limit) for device in devices],
            estimates,
            policy,
            limits=_limits(config),
            first_epoch=first_epoch,
        )
        self.scheduler.fallback = make_policy(FALLBACK, {})
        resources = list(self.scheduler.system.resources.values())
        meters = Finder().find(devices) if config.meters else {}
        self.metering = Metering(resources, meters, clock.now())
        self._history = HistoryNotes(self.scheduler.system, journal)
        self.settings = OperatorSettings(journal)
        self.timer: Nanoseconds | None = None
        self._pending: deque[Sequence[Event]] = deque()
        self._overruns: list[tuple[Nanoseconds, TaskId]] = []
        self.watchdog = Watchdog(self, kill, started_at)
        breaker, health = self.scheduler.system.breaker, self.watchdog.health
        self.circuits = Circuits(breaker, journal, health, clock)
        self.commands = Commands(
            self.devices, self.scheduler.system, journal, pool, self.watchdog
        )

    def configure(self, config: Config) -> None:
        """Apply another configuration, except for settings that need a restart."""
        self.config = config
        self.limits = UserLimits(config.limits)
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
            self._history.record_resource_events(now, at)
            self._do_all(self._decide(now), at)
            self._replace_failed_policy(at)

    def change_policy(self, policy: Policy) -> None:
        """Change the policy."""
        at = self.clock.wall()
        self._do_all(self.scheduler.change_policy(policy, self.clock.now()), at)
        self._replace_failed_policy(at)
        self.dispatch()

    def _replace_failed_policy(self, at: float) -> None:
        """Let the fallback decide if the policy of another package raised an error."""
        fault, actions = self.scheduler.replace_failed_policy(self.clock.now())
        if fault:
            text = f"policy failed: {fault}; {FALLBACK} decides until another is set"
            log.error("%s", text)
            self.journal.record_note(at, "policy-failed", None, text)
            self._do_all(actions, at)

    def _do_all(self, actions: Sequence[Action], at: float) -> None:
        gathers = self.pool.gather()
        try:
            for action in actions:
                self._do(action, at)
        finally:
            if gathers:
                self.pool.flush()

    def _decide(self, events: Sequence[Event]) -> list[Action]:
        now = self.clock.now()
        if len(events) == 1:
            actions = self.scheduler.handle(events[0], now)
        else:
            actions = self.scheduler.handle_all(events, now)
        self.counters.decided += len(events)
        self.counters.deciding_ns += self.clock.now() - now
        return actions

    def restore(self) -> None:
        """Load the settings of operators and the unfinished tasks."""
        chosen = self.settings.recall()
        if chosen is not None:
            self.change_policy(chosen)
        self.settings.tell(self.devices)
        self.circuits.recall()
        resources = frozenset(self.devices)
        pages = self.journal.restore()
        again = [
            (TaskId(page.id), wish)
            for page in pages
            for wish in pending_requests(page, resources)
        ]
        before = self.journal.encoded_pages(pages)
        # Running tasks keep their slots and shares of quotas.
        pages.sort(key=lambda page: page.state != "running")
        ends = list(self._left_over(pages))
        self._take_up([self._restoration(page) for page in pages], ends)
        self.journal.drop_unchanged(before)
        # Ends propagate to dependent tasks: all must be restored by then.
        for task, wish in again:
            self.dispatch(wish)
            self.keep(task)

    def _left_over(self, pages: Sequence[TaskPage]) -> Iterator[e.TaskCancelled]:
        """Cancel tasks whose dependencies failed just before the daemon stopped."""
        for page in pages:
            if page.state not in ("waiting", "held"):
                continue
            gone = (task for task in page.spec.after if task not in self.journal.live)
            for other in filter(None, map(self.journal.find, gone)):
                if other.state != "completed":
                    reason = dependency_ended(other.id, other.state)
                    yield e.TaskCancelled(TaskId(page.id), reason)
                    break

    def _take_up(
        self,
        tasks: Sequence[e.TaskSubmitted | e.TaskRestored],
        ends: Sequence[e.TaskCancelled],
    ) -> None:
        """Pass the tasks from before the start to the scheduler."""
        at = self.clock.wall()
        for action in self.scheduler.restore(tasks, self.clock.now()):
            self._do(action, at)
        # at once: no task may start on a resource that it would have to leave
        self.dispatch(
            *self.watchdog.health.take_out_unusable(self.devices.values()),
            *self.settings.drains(self.devices),
            *ends,
            e.NodeStarted(),
        )

    def _restoration(self, page: TaskPage) -> e.TaskSubmitted | e.TaskRestored:
        submitted = self.submission(page)
        self._watch_overrun(page, submitted)
        event = restored(page, submitted)
        if isinstance(event, e.TaskRestored) and event.epoch:
            self.watchdog.await_return(page)
        return event

    def submit(self, pages: Sequence[TaskPage]) -> None:
        """Submit new tasks; all are known before the first one is placed."""
        submitted = [self.submission(page) for page in pages]
        for page, event in zip(pages, submitted, strict=True):
            self._watch_overrun(page, event)
        self.dispatch(*submitted)

    def amend_all(self, pages: Sequence[TaskPage]) -> None:
        """Apply changed priorities and deadlines of tasks."""
        events = []
        for page in pages:
            task = self.submission(page)
            self._watch_overrun(page, task)
            events.append(e.TaskAmended(task.task, task.priority, task.deadline))
        self.dispatch(*events)

    def submission(self, page: TaskPage) -> e.TaskSubmitted:
        """Describe a task of the journal to the scheduler."""
        return submission(page, self.config.migration_ms / 1e3, self.clock)

    def expected(self, spec: m.TaskSpec) -> dict[str, tuple[float, float]]:
        """Return the expected seconds of a task, and their relative deviation.

        Only for resources where its application was measured.
        """
        kinds, allowed = frozenset(spec.kinds), frozenset(spec.resources)
        row = Row(spec.type or spec.app, kinds, allowed, spec.work)
        return {
            name: (
                self.estimates.seconds(row, resource),
                self.estimates.spread(row, resource),
            )
            for name, resource in self.scheduler.system.resources.items()
            if resource.kind in kinds
            and (not allowed or name in allowed)
            and self.estimates.knows_app(row, resource)
        }

    # ------------------------------------------------------------ time

    def next_deadline(self) -> Nanoseconds | None:
        """When `tick` has something to do."""
        due = self.watchdog.next_deadline()
        times = [due] if due is not None else []
        if self.timer is not None:
            times.append(self.timer)
        if self._overruns:
            times.append(self._overruns[0][0])
        later = (self.scheduler.next_trial(), self.scheduler.next_recall())
        times += [at for at in later if at is not None]
        return min(times, default=None)

    def tick(self) -> None:
        """Do what is due."""
        now = self.clock.now()
        self.metering.tick(now)
        if self.timer is not None and self.timer <= now:
            self.timer = None
            self.dispatch(e.TimerFired())
        while self._overruns and self._overruns[0][0] <= now:
            self._stop_overrun(*heappop(self._overruns))
        trial = self.scheduler.next_trial()
        if trial is not None and trial <= now:
            self.dispatch(e.TrialDue())
        recall = self.scheduler.next_recall()
        if recall is not None and recall <= now:
            self.dispatch(e.TrainOverdue())
        self.watchdog.tick(now)

    def _watch_overrun(self, page: TaskPage, submitted: e.TaskSubmitted) -> None:
        """Schedule the end of a task that may not run after its deadline."""
        if submitted.deadline is not None and page.spec.overrun == "stop":
            heappush(self._overruns, (submitted.deadline, submitted.task))

    def _stop_overrun(self, due: Nanoseconds, task: TaskId) -> None:
        record = self.scheduler.system.tasks.get(task)
        if record is not None and record.submitted.deadline == due:  # not amended since
            page = self.journal.live[task]
            after = f"{page.spec.deadline_s:g} s after submission"
            self.dispatch(e.TaskCancelled(task, f"stopped at its deadline, {after}"))

    # ------------------------------------------------------------ actions

    def _do(self, action: Action, at: float) -> None:
        match action:
            case a.Record():
                page = self.journal.live[action.task]
                self.journal.end_by_error(page, action, at)
                self.metering.note(action, page, self.scheduler.system.now)
                self.note(action.task)
                self.counters.records[action.event] += 1
                self.journal.record(action, at, self._history.rule(action.task))
            case a.Run() | a.Begin() | a.Stage():
                self._order(action)
            case a.Preempt() | a.Abort() | a.Recall():
                self._stop(action, at)
            case a.Suspend():
                self.commands.suspend(action)
            case a.SetTimer():
                self.timer = action.at
            case a.KeepCircuit():
                self._pending.append(self.circuits.keep(action))
            case _:
                assert_never(action)

    def _recall(self, action: a.Recall) -> None:
        """Recall a task that waits behind others; at once if it has no worker."""
        if self.pool.worker_of(action.task) is not None:
            self.pool.send(action.task, m.Recall(action.task, action.epoch))
            return
        self.pool.release(action.task)
        self._pending.append([e.TaskAborted(action.task, action.epoch)])

    def _order(self, action: a.Run | a.Begin | a.Stage) -> None:
        if isinstance(action, a.Run):
            self.commands.run(action)
        elif isinstance(action, a.Stage):
            self.commands.stage(action)
        else:
            self.watchdog.runs(action.task, action.epoch)

    def _stop(self, action: a.Preempt | a.Abort | a.Recall, at: float) -> None:
        if isinstance(action, a.Recall):
            self._recall(action)
            return
        self._history.record_stop(action.task, at)
        if isinstance(action, a.Preempt):
            self.commands.preempt(action)
            return
        aborted = self.commands.abort(action)
        if aborted is not None:
            self._pending.append([aborted])

    def note(self, task: TaskId) -> None:
        """Have the journal know what is wanted of a task."""
        record = self.scheduler.system.tasks.get(task)
        if record is not None:
            note(self.journal.live[task], record)

    def keep(self, task: TaskId) -> None:
        """Keep on disk what is wanted of a task that has not ended."""
        if task in self.journal.live:
            self.note(task)
            self.journal.save(self.journal.live[task])

    def forget_dropped(self) -> None:
        """Have the store forget the execution times that the estimates have dropped."""
        for key in self.estimates.dropped():
            self.journal.batch.forget(key)

    def order_again(self, task: TaskId) -> None:
        """Order another worker what the last one left undone."""
        aborted = self.commands.to_another(task)
        if aborted is not None:
            self.dispatch(aborted)


def _limits(config: Config) -> Limits:
    """Return the parameters of the scheduler's mechanism under a configuration."""
    return Limits(
        config.attempts,
        config.stage,
        quotas=quotas(config.limits),
        avoid_ns=int(config.avoid_s * SECOND),
        at_once=AT_ONCE,
        train=TRAIN,
    )


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
