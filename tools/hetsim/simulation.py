"""The simulator's shell around the scheduler: the agenda plays the world.

It does what the daemon's loop does, with modelled workers in place of processes: events
go into `Scheduler.handle`, actions come out and are carried out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hetsched import actions as a
from hetsched import events as e
from hetsched.limits import Limits
from hetsched.policy import uses_belief
from hetsched.scheduler import Scheduler
from hetsched.tasks import State
from hetsim.agenda import Agenda, Occurrence, Order
from hetsim.contention import (
    ContendedNode,
    ContendedWorkers,
    enter_background,
    model_of,
)
from hetsim.correction import TELLING, CorrectedExpectations
from hetsim.sharing import SharedProcessor
from hetsim.workers import CrashingRun, Preparation, SlotWorkers
from hetsim.workload import (
    Expectations,
    capacity_of,
    jobs_of,
    nanoseconds,
    resources_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetsched.actions import Action
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.policy import Policy
    from hetsched.system import System
    from hetsim.agenda import Ticket
    from hetsim.scenario import Crash, Outage, Scenario
    from hetsim.workers import Workers
    from hetsim.workload import Job, Run

QUIET = 10_000
"""Changes of the background, readings of counters, and timers of the policy with nothing else to
come, while tasks wait and none runs. After these the simulation ends: the policy does not want
to run what waits."""

LIMITS = Limits(stage=0, train=16, train_task_s=0.0005)
"""Nothing is staged: inputs load in no time, so a staged task would start no sooner. Trains
are as in the daemon, but have no tasks above half a millisecond: to report an end takes no time
either, so these would start no sooner."""


_GOING_ON = tuple(state for state in State if not state.ended)
"""A tuple: few comparisons by identity are quicker than one hash of an enum."""


class Simulation:
    """One scenario under one policy.

    Args:
        correct: strips correct the expectations while they run, as in the daemon.
        seed: of other programs' loads, and of the noise of counters.

    Attributes:
        jobs: the tasks and, after `run`, what happened to them.
        recorder: called with every batch of events, its instant and the actions.

    """

    def __init__(  # noqa: PLR0913  as `simulate`
        self,
        scenario: Scenario,
        policy: Policy,
        expected: dict[str, dict[str, float]],
        recorder: Callable[[list[Event], Nanoseconds, list[Action]], None]
        | None = None,
        *,
        correct: bool = False,
        seed: int = 0,
    ) -> None:
        resources = resources_of(scenario)
        self.jobs = jobs_of(scenario, expected)
        self.agenda = Agenda()
        self.recorder = recorder
        contention = model_of(scenario)
        under_load = contention is not None and not uses_belief(policy)
        self._corrected = (
            CorrectedExpectations(expected, under_load=under_load) if correct else None
        )
        estimates = self._corrected or Expectations(
            expected, {kind.name: kind.spread for kind in scenario.types}
        )
        limits = replace(LIMITS, capacity=capacity_of(scenario))
        self.scheduler = Scheduler(
            resources, estimates, policy, limits=limits, contention=contention
        )
        self.kinds = frozenset(resource.kind for resource in resources)
        self._by_id = {job.id: job for job in self.jobs}
        self._timer: Ticket = -1
        self._trial_at: Nanoseconds | None = None
        self._recall_at: Nanoseconds | None = None
        self._behind: dict[TaskId, a.Run] = {}
        """Tasks that workers have behind others, and have not begun."""
        self._crashes = _crashes_of(scenario)
        node = None if contention is None else ContendedNode(scenario, contention)
        self._workers = _workers_of(scenario, self.agenda, node)
        self.arriving = len(self.jobs)
        """Tasks that have not arrived yet."""
        self._quiet = 0
        self._do: dict[type, Callable[[Any, Nanoseconds], None]] = {
            a.Run: self._start,
            a.Begin: self._begin,
            a.Recall: self._give_back,
            a.Preempt: self._preempt,
            a.Split: self._split,
            a.Abort: self._abort,
            a.SetTimer: self._set_timer,
            a.KeepCircuit: lambda _action, _now: None,
        }
        self._enter_jobs()
        for outage in scenario.outages:
            self._enter_outage(outage)
        if node is not None:
            enter_background(scenario, node, self, seed)

    def all_jobs(self) -> list[Job]:
        """List the tasks and the parts that were made of them."""
        return list(self._by_id.values())

    def goes_on(self) -> bool:
        """Whether any task may still run; see `QUIET`. Asked at each change that recurs."""
        system = self.scheduler.system
        if self.arriving:
            return True
        running = any(state.running for state in system.states.values())
        self._quiet = 0 if running else self._quiet + 1
        return bool(system.tasks) and self._quiet < QUIET

    def run(self) -> None:
        """Let everything happen."""
        agenda = self.agenda
        agenda.begin()
        while not agenda.is_over:
            now, events = agenda.next_instant()
            if events:
                self._tell(events, now)

    def _tell(self, events: list[Event], now: Nanoseconds) -> None:
        if self._corrected is not None:
            self._correct(self._corrected, events)
        if len(events) == 1:
            actions = self.scheduler.handle(events[0], now)
        else:
            actions = self.scheduler.handle_all(events, now)
        for action in actions:
            # Most actions are records, and few of these concern us.
            if type(action) is not a.Record:
                self._do[type(action)](action, now)
            elif action.state not in _GOING_ON:
                self._note(action, now)
        if self.recorder is not None:
            self.recorder(events, now, actions)
        if self._crashes or self._behind:
            self._await_trial()
            self._await_recall()

    def _await_trial(self) -> None:
        """Have the scheduler told when a pair may be tried, while that matters."""
        due = self.scheduler.next_trial()
        if due is not None and due != self._trial_at and self.scheduler.system.tasks:
            self._trial_at = due
            self.agenda.add(due, Order.TIMER, Told(e.TrialDue()))

    def _await_recall(self) -> None:
        """Have the scheduler told when a train takes too long."""
        due = self.scheduler.next_recall()
        if due is not None and due != self._recall_at:
            self._recall_at = due
            self.agenda.add(due, Order.TIMER, Told(e.TrainOverdue()))

    def _correct(self, estimates: CorrectedExpectations, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, TELLING):
                job = self._by_id[event.task]
                estimates.take_in(job, event, self.scheduler.system)

    # ------------------------------------------------------------ before the start

    def _enter_jobs(self) -> None:
        for job in sorted(self.jobs, key=lambda job: (job.told_at, job.depth)):
            arrival = Arrival(job, self)
            self.agenda.add(job.told_at, Order.ARRIVAL, arrival)
            if job.stop_at_deadline and job.deadline is not None:
                self._end_at_deadline(job, job.deadline)

    def _end_at_deadline(self, job: Job, at: Nanoseconds) -> None:
        passed = DeadlinePassed(job, self.scheduler.system)
        self.agenda.add(at, Order.DEADLINE, passed)

    def _enter_outage(self, outage: Outage) -> None:
        begin: Occurrence = DeviceFailure(outage.resource, self)
        if outage.drain:
            begin = Told(e.ResourceDrained(outage.resource))
        self.agenda.add(nanoseconds(outage.start), Order.RESOURCE, begin)
        if outage.finish is not None:
            end = Told(e.ResourceReturned(outage.resource))
            self.agenda.add(nanoseconds(outage.finish), Order.RESOURCE, end)

    # ------------------------------------------------------------ actions

    def _start(self, action: a.Run, now: Nanoseconds) -> None:
        job = self._by_id[action.task]
        job.placed = True
        if action.after is not None:
            self._behind[action.task] = action
            return
        if action.resource not in job.actual:
            reason = f"does not run on {action.resource}"
            failed = e.TaskFailed(job.id, action.epoch, reason, elsewhere=True)
            self.agenda.add(now, Order.WORKER, Told(failed))
            return
        crash = self._crash_of(job, action.resource, now) if self._crashes else None
        if crash is not None:
            crashing = job.run = CrashingRun(job, action.epoch)
            at = now + nanoseconds(crash.after)
            self.agenda.add(at, Order.WORKER, crashing)
        else:
            if job.kind.parallel:
                task = self.scheduler.system.tasks[action.task]
                job.merges = bool(task.parts) and not task.parts_left
            workers = self._workers[action.resource]
            job.run = workers.start(job, action.epoch, now)
        if job.stop_at_deadline and now >= (job.deadline or now + 1):
            self._end_at_deadline(job, now)

    def _begin(self, action: a.Begin, now: Nanoseconds) -> None:
        """Run a task from now on, as the one before it in its worker has ended."""
        run = self._behind.pop(action.task)
        self._start(a.Run(run.task, run.epoch, run.resource), now)

    def _give_back(self, action: a.Recall | a.Abort, now: Nanoseconds) -> None:
        """Give a task back that has not begun."""
        if self._behind.pop(action.task, None) is not None:
            gone = e.TaskAborted(action.task, action.epoch)
            self.agenda.add(now, Order.WORKER, Told(gone))

    def _crash_of(self, job: Job, resource: str, now: Nanoseconds) -> Crash | None:
        """Find what makes a task crash that starts on a resource now."""
        for crash in self._crashes.get((job.kind.name, resource), ()):
            over = crash.finish is not None and now >= nanoseconds(crash.finish)
            if nanoseconds(crash.start) <= now and not over:
                return crash
        return None

    def _preempt(self, action: a.Preempt, now: Nanoseconds) -> None:
        run = self._by_id[action.task].run
        if run is not None:
            run.preempt(now)

    def _split(self, action: a.Split, now: Nanoseconds) -> None:
        """Ask a worker for strips; it answers at its next checkpoint, a strip later at most."""
        job = self._by_id[action.task]
        if job.run is not None and job.home is not None:
            strip = job.actual[job.home] // job.strips
            asked = StripsAsked(job, job.run, action.limit, self._give)
            self.agenda.add(now + strip, Order.WORKER, asked)

    def _give(self, job: Job, limit: float, now: Nanoseconds) -> Event | None:
        """Make a part of the strips of a job from `limit` on, unless they have begun."""
        task, run = self.scheduler.system.tasks.get(job.id), job.run
        if run is None or task is None or not task.gives_strips:
            return None
        first = max(run.first_to_give(now), round(limit * job.strips))
        if first >= job.limit:
            return e.StripsGiven(job.id, run.epoch, granule=1.0 / job.strips)
        part = job.split(max(self._by_id) + 1, first)
        run.shorten(now)
        self._by_id[part.id] = part
        submission = part.submission(self.kinds)
        return e.StripsGiven(job.id, run.epoch, submission, 1.0 / job.strips)

    def lose_workers(self, resource: str, now: Nanoseconds) -> None:
        """Let the workers on a resource die with what they compute."""
        for task in self.scheduler.system.running(resource):
            run = self._by_id[task.id].run
            if run is not None:
                run.abandon(now)
                gone = e.WorkerLost(task.id, run.epoch, f"{resource} failed")
                self.agenda.add(now, Order.WORKER, Told(gone))

    def _abort(self, action: a.Abort, now: Nanoseconds) -> None:
        run = self._by_id[action.task].run
        if run is None:
            self._give_back(action, now)
            return
        run.abandon(now)
        gone = e.TaskAborted(action.task, action.epoch)
        self.agenda.add(now, Order.WORKER, Told(gone))

    def _note(self, action: a.Record, now: Nanoseconds) -> None:
        job = self._by_id[action.task]
        job.outcome = action.state
        job.finish = now
        job.placed = job.placed or action.resource is not None

    def _set_timer(self, action: a.SetTimer, now: Nanoseconds) -> None:
        self._timer = self.agenda.add(max(action.at, now), Order.TIMER, self)

    def happen(self, now: Nanoseconds, ticket: Ticket) -> Event | None:
        """Let the timer fire, unless another one replaced it, or it is all that is left.

        A policy may ask to be woken again and again, also when every task has ended.
        """
        if ticket != self._timer or (self.agenda.is_over and not self.goes_on()):
            return None
        return e.TimerFired()


class StripsAsked:
    """The worker of a task comes to the checkpoint at which it gives up strips."""

    __slots__ = ("_give", "_job", "_limit", "_run")

    def __init__(
        self,
        job: Job,
        run: Run,
        limit: float,
        give: Callable[[Job, float, Nanoseconds], Event | None],
    ) -> None:
        self._job = job
        self._run = run
        self._limit = limit
        self._give = give

    def happen(self, now: Nanoseconds, ticket: Ticket) -> Event | None:
        if self._job.run is not self._run:
            return None  # it ended, or yielded, before
        return self._give(self._job, self._limit, now)


class Told:
    """An event that goes to the scheduler unchanged."""

    def __init__(self, event: Event) -> None:
        self._event = event

    def happen(self, now: Nanoseconds, ticket: Ticket) -> Event:
        return self._event


class DeviceFailure:
    """A resource fails, and so do the workers that compute on it."""

    def __init__(self, resource: str, simulation: Simulation) -> None:
        self._resource = resource
        self._simulation = simulation

    def happen(self, now: Nanoseconds, ticket: Ticket) -> Event:
        self._simulation.lose_workers(self._resource, now)
        return e.ResourceLost(self._resource)


class Arrival:
    """A task arrives, unless it could not run any more."""

    __slots__ = ("_job", "_simulation", "_submission")

    def __init__(self, job: Job, simulation: Simulation) -> None:
        self._job = job
        self._simulation = simulation
        self._submission = job.submission(simulation.kinds)

    def happen(self, now: Nanoseconds, ticket: Ticket) -> Event | None:
        self._simulation.arriving -= 1
        job = self._job
        if (job.after or job.stop_at_deadline) and _hopeless(job, now):
            job.outcome = State.CANCELLED
            return None
        return self._submission


def _hopeless(job: Job, now: Nanoseconds) -> bool:
    """Return whether a job can no longer run: it is late, or a job before it failed."""
    if job.stop_at_deadline and job.deadline is not None and now >= job.deadline:
        return True
    return any(other.outcome not in (None, State.COMPLETED) for other in job.after)


class DeadlinePassed:
    """A task that is not to overrun its deadline is stopped, or gone before it starts.

    In a run queue it keeps its place until its turn comes, as in mokhtari-felare.
    """

    __slots__ = ("_job", "_system")

    def __init__(self, job: Job, system: System) -> None:
        self._job = job
        self._system = system

    def happen(self, now: Nanoseconds, ticket: Ticket) -> Event | None:
        task = self._system.tasks.get(self._job.id)
        if task is None:
            return None
        if task.state.placeable and task.resource is not None:
            return None
        return e.TaskCancelled(task.id, "its deadline has passed")


def _crashes_of(scenario: Scenario) -> dict[tuple[str, str], list[Crash]]:
    """Return the crashes of each task type on each resource."""
    crashes: dict[tuple[str, str], list[Crash]] = {}
    for crash in scenario.crashes:
        crashes.setdefault((crash.type, crash.resource), []).append(crash)
    return crashes


def _workers_of(
    scenario: Scenario, agenda: Agenda, node: ContendedNode | None
) -> dict[str, Workers]:
    """Make the workers of each resource."""
    contended = {model.name for model in scenario.resources if node and model.uses}
    resources = {each.name: each for each in resources_of(scenario)}
    preparation = Preparation(resources, contended)
    report = nanoseconds(scenario.report_s or 1.0)
    workers: dict[str, Workers] = {}
    for model in scenario.resources:
        if node is not None and model.uses:
            workers[model.name] = ContendedWorkers(
                model.name, preparation, agenda, node
            )
        elif model.sharing == "processor":
            workers[model.name] = SharedProcessor(
                model.name, preparation, agenda, report
            )
        else:
            workers[model.name] = SlotWorkers(model.name, preparation, agenda, report)
    return workers
