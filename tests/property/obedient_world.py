"""A world of workers and resources that carries out actions, and fails on impossible ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, assert_never, cast

import msgspec
from hypothesis.stateful import RuleBasedStateMachine

from builders import a_resource, estimates
from hetsched import actions as a
from hetsched import events as e
from hetsched.breaker import PERHAPS_FROM_OUTSIDE
from hetsched.limits import Capacity, Limits, Quota, Quotas
from hetsched.policies import make_policy
from hetsched.policy import Split
from hetsched.scheduler import Scheduler
from hetsched.tasks import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.actions import Action
    from hetsched.events import Cause, Event
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.policy import Decision, Policy
    from hetsched.system import System

STRIPS = 4
RESOURCES = {
    resource.name: resource
    for resource in (
        a_resource("cpu", slots=2),
        replace(a_resource("gpu", "gpu0"), memory_bytes=4),
        replace(a_resource("gpu", "gpu1"), memory_bytes=2),
        a_resource("fpga"),
    )
}
SECONDS = {
    "to-cpu": {"cpu": 1.0, "gpu0": 3.0, "gpu1": 3.0, "fpga0": 2.0},
    "to-gpu": {"cpu": 9.0, "gpu0": 1.0, "gpu1": 2.0, "fpga0": 3.0},
    "to-fpga": {"cpu": 6.0, "gpu0": 4.0, "gpu1": 5.0, "fpga0": 2.0},
    "tiny": dict.fromkeys(RESOURCES, 1e-4),
}
QUOTAS = Quotas(single={1: Quota(running=1), 2: Quota(running=2, share=3.0)})
"""The tasks of user 0 are not limited."""
CAPACITY = Capacity(cores=4, memory_bytes=8)
"""What tasks with needs may take up together; the GPUs have 4 and 2 bytes of memory."""


@dataclass
class Binding:
    """A worker that holds a task: staged, or kept after a yield, or running."""

    task: TaskId
    epoch: int
    resource: str | None = None
    asked_to_yield: bool = False
    suspended: bool = False
    aborted: bool = False
    checkpointed: bool = False
    behind: str | None = None
    """Resource on which it runs once those before it in its worker have ended."""
    crew: int = 0
    """Which worker it is: the epoch of the first task of the train."""
    recalled: bool = False
    split_at: float | None = None
    """Share of the work from which on it was asked to give strips up."""
    strips: list[int] = field(default_factory=list)
    waits_for: tuple[TaskId, ...] = ()
    """Tasks for whose results its code waits."""
    lent: bool = False
    """Whether it runs in a slot that one which waits for it lends."""

    @property
    def progress(self) -> float:
        return len(self.strips) / STRIPS


class Splitting:
    """A policy that also splits every parallel task as soon as any other resource is idle."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __getattr__(self, name: str) -> Any:
        """Have the properties of the policy."""
        return getattr(self._policy, name)

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        yield from self._policy.react(event, system, now)
        for name in system.idle():
            for state in system.states.values():
                for task in state.running.values():
                    asked = task.splits_for is not None or task.intent is not None
                    if task.submitted.parallel and task.left and not asked:
                        yield Split(task.id, name, task.limit - task.left / 2)


class World(RuleBasedStateMachine):
    """Workers and resources that do what the scheduler orders, until something happens."""

    def __init__(  # noqa: PLR0915  one statement for each thing to know
        self, policy: str, at_once: int | None = None
    ) -> None:
        super().__init__()
        self.policy, self.at_once = policy, at_once
        self.scheduler = a_new_scheduler(policy, at_once)
        self.now = 0
        self.history: list[tuple[tuple[Event | Policy, ...], int, list[Action]]] = []
        self.submitted: dict[TaskId, e.TaskSubmitted] = {}
        self.awaited: dict[TaskId, dict[TaskId, str]] = {}
        """Task -> tasks that were unfinished when it was submitted, and their conditions."""
        self.recorded: dict[TaskId, a.Record] = {}
        self.bindings: dict[TaskId, Binding] = {}
        self.past: list[Binding] = []
        self.kept: dict[TaskId, int] = {}
        """Strips that a snapshot of the task holds."""
        self.pins: dict[TaskId, str] = {}
        self.barred: Counter[tuple[TaskId, str]] = Counter()
        self.unusable: set[str] = set()
        self.blocked = 0
        """Slots of the CPU that processes hold on to which nothing can end."""
        self.unattended: set[int] = set()
        """Users for whose tasks nobody makes workers."""
        self.last_epoch = 0
        self.ending: set[TaskId] = set()
        """Tasks whose ends are reported to the scheduler before they are known to have started."""
        self.timer: int | None = None
        self.paused: dict[TaskId, int] = {}
        """Task -> instant before which it may not run again after its failure."""
        self.parts: dict[TaskId, list[TaskId]] = {}
        """Task -> the parts that were made of it."""
        self.limits: dict[TaskId, int] = {}
        """Task -> strips after which it stops, where its parts do the rest."""
        self.begins: dict[TaskId, int] = {}
        """Task -> instant before which its owner does not want it to start."""

    # ------------------------------------------------------------ steps

    def dispatch(self, *events: Event | Policy) -> None:
        self.now += 1_000
        actions = handled(self.scheduler, events, self.now)
        self.history.append((events, self.now, actions))
        for action in actions:
            self.obey(action)

    def obey(self, action: Action) -> None:  # noqa: C901, PLR0912, PLR0915  a case for each action
        match action:
            case a.Stage():
                self.bind(action.task, action.epoch)
            case a.Run():
                self.run(action)
            case a.Begin():
                if action.task not in self.ending:
                    self.begin(self.held(action.task, action.epoch))
            case a.Recall():
                binding = self.held(action.task, action.epoch)
                assert binding.behind is not None
                assert not binding.recalled
                binding.recalled = True
            case a.Split():
                binding = self.held(action.task, action.epoch)
                assert self.submitted[action.task].parallel
                assert binding.resource is not None
                assert binding.split_at is None, "it was asked before"
                binding.split_at = action.limit
            case a.Preempt() | a.Suspend():
                self.stop(action)
            case a.Abort():
                self.give_up(self.held(action.task, action.epoch))
            case a.Record():
                self.keep(action)
            case a.KeepCircuit():
                pass  # the scheduler has it, too
            case a.SetTimer():
                assert action.at > self.now
                self.timer = action.at
            case _:
                assert_never(action)

    def stop(self, action: a.Preempt | a.Suspend) -> None:
        """Ask a worker to yield; or stop its task, or let it go on, where it is."""
        binding = self.held(action.task, action.epoch)
        preemptible = self.submitted[action.task].preemptible
        assert binding.resource is not None
        if isinstance(action, a.Suspend):
            assert not preemptible
            assert binding.suspended is not action.on
            binding.suspended = action.on
            return
        assert not binding.asked_to_yield
        assert preemptible or action.requeue, "it cannot go on elsewhere"
        binding.asked_to_yield = True

    def bind(self, task: TaskId, epoch: int) -> Binding:
        assert task not in self.bindings, "two workers for one task"
        assert self.submitted[task].owner not in self.unattended, "nobody makes it"
        assert epoch > self.last_epoch
        self.last_epoch = epoch
        strips = list(range(self.kept.get(task, self.start_of(task))))
        self.bindings[task] = Binding(task, epoch, strips=strips)
        return self.bindings[task]

    def held(self, task: TaskId, epoch: int) -> Binding:
        """Find the worker that an action is meant for; it has not been aborted."""
        binding = self.bindings[task]
        assert binding.epoch == epoch
        assert not binding.aborted
        return binding

    def run(self, action: a.Run) -> None:
        if action.task not in self.bindings:
            self.bind(action.task, action.epoch)
        binding = self.held(action.task, action.epoch)
        assert binding.resource is None, "it runs already"
        assert self.can_run(action.task, action.resource)
        assert self.now >= self.paused.get(action.task, 0), "it did not pause"
        assert self.now >= self.begins[action.task], "too early"
        self.demand_no_avoided(action)
        self.demand_conditions(action.task)
        binding.crew = action.epoch
        if action.after is not None:
            binding.behind = action.resource
            binding.crew = self.bindings[action.after].epoch
            return
        binding.resource = action.resource
        binding.split_at = None
        binding.asked_to_yield = binding.checkpointed = binding.suspended = False
        binding.waits_for = ()
        binding.lent = self.own_slots_taken(action.resource) > self.slots(
            action.resource
        )
        if binding.lent:
            assert action.task in self.awaited_on(action.resource)

    def own_slots_taken(self, name: str) -> int:
        """Count what runs on a resource without those that run in lent slots."""
        return sum(b.resource == name and not b.lent for b in self.running())

    def awaited_on(self, name: str) -> set[TaskId]:
        """List what the code of tasks on a resource waits for, and what that comes after."""
        waits = [b for b in self.running() if b.resource == name and b.waits_for]
        lent = sum(b.resource == name and b.lent for b in self.running())
        assert lent <= len(waits), "more slots are lent than tasks wait"
        found: set[TaskId] = set()
        left = [other for binding in waits for other in binding.waits_for]
        while left:
            task = left.pop()
            if task not in found:
                found.add(task)
                left += [*self.awaited.get(task, ()), *self.family(task)]
        return found

    def begin(self, binding: Binding) -> None:
        """Run what was behind others, if it does not run yet."""
        if binding.behind is None:
            return
        binding.resource, binding.behind = binding.behind, None
        assert self.own_slots_taken(binding.resource) <= self.slots(binding.resource)

    def behind(self, binding: Binding) -> list[Binding]:
        """List what a worker has besides the task that it runs."""
        return [
            each
            for each in self.bindings.values()
            if each.crew == binding.crew and each.behind is not None
        ]

    def losses_behind(self, binding: Binding) -> list[Event]:
        """Let what a lost worker has not begun go with it."""
        behind = self.behind(binding)[::-1] if binding.crew else []
        for each in behind:
            self.forget(each)
        return [
            e.WorkerLost(each.task, each.epoch, "killed", begun=False)
            for each in behind
        ]

    def demand_conditions(self, task: TaskId) -> None:
        """Demand that a task runs only after others ended as its conditions say."""
        awaited = self.awaited.get(task, {})
        ends = {other: self.recorded[other].state for other in awaited}
        assert all(state.ended for state in ends.values()), "too early"
        done = {other for other, state in ends.items() if state is State.COMPLETED}
        required = {other for other in awaited if awaited[other] == "ok"}
        failures = {other for other in awaited if awaited[other] == "notok"}
        assert required <= done, "a task before it did not complete"
        assert not failures or failures - done, "it is not needed"

    def demand_no_avoided(self, action: a.Run) -> None:
        """Demand that a task runs where its application failed only as the one that tries.

        A task that may use nothing else runs there, too.
        """
        submitted = self.submitted[action.task]
        breaker = self.scheduler.system.breaker
        circuit = breaker.find(submitted, action.resource)
        if circuit is None or circuit.trial == action.task:
            return
        others = set(self.allowed(action.task)) - {action.resource}
        assert others <= breaker.avoided(submitted), "it was to be avoided"

    def allowed(self, task: TaskId) -> list[str]:
        """List where a task may run, if not now then when it is usable."""
        return [name for name in RESOURCES if self.may_run(task, name)]

    def can_run(self, task: TaskId, name: str) -> bool:
        return name not in self.unusable and self.may_run(task, name)

    def may_run(self, task: TaskId, name: str) -> bool:
        submitted = self.submitted[task]
        if RESOURCES[name].kind not in submitted.kinds:
            return False
        if task in self.pins:
            return self.pins[task] == name
        allowed = not submitted.resources or name in submitted.resources
        return allowed and not self.barred[task, name]

    def slots(self, name: str) -> int:
        return RESOURCES[name].slots - (self.blocked if name == "cpu" else 0)

    def loss(self, binding: Binding, *, hung: bool) -> e.WorkerLost:
        """Let a worker go; one that hung is not to hang there again, if possible."""
        cancelled = self.scheduler.system.tasks[binding.task].cancelling is not None
        name = binding.resource
        if hung and name is not None and not cancelled and self.others(binding):
            self.barred[binding.task, name] += 1
            self.pins.pop(binding.task, None)
        self.forget(binding)
        return e.WorkerLost(binding.task, binding.epoch, "killed", elsewhere=hung)

    def crash(self, binding: Binding, cause: Cause) -> e.WorkerLost:
        """Let a worker end before its task's first checkpoint where it runs."""
        name = binding.resource
        assert name is not None
        cancelled = self.scheduler.system.tasks[binding.task].cancelling is not None
        if (
            cause not in PERHAPS_FROM_OUTSIDE
            and not cancelled
            and not binding.checkpointed
        ):
            self.barred[binding.task, name] += 1
            self.pins.pop(binding.task, None)
        self.forget(binding)
        return e.WorkerLost(binding.task, binding.epoch, "crashed", cause=cause)

    def others(self, binding: Binding) -> list[str]:
        """List where else a task could run, if not now then later."""
        submitted = self.submitted[binding.task]
        return [
            name
            for name, resource in RESOURCES.items()
            if resource.kind in submitted.kinds
            and (not submitted.resources or name in submitted.resources)
            and name != binding.resource
            and not self.barred[binding.task, name]
        ]

    def give_up(self, binding: Binding) -> None:
        """Abort: at the next checkpoint what runs, at once what does not."""
        binding.aborted = True
        record = self.scheduler.system.tasks.get(binding.task)
        where = binding.resource or binding.behind
        if record is None and self.submitted[binding.task].parallel:
            self.forget(binding)  # a part has failed, and the whole task with it
        elif where is None:
            self.forget(binding)
        elif binding.behind is not None:
            binding.recalled = True

    def keep(self, record: a.Record) -> None:
        before = self.recorded.get(record.task)
        assert before is None or not before.state.ended, "it had ended before"
        self.recorded[record.task] = record

    def forget(self, binding: Binding) -> None:
        del self.bindings[binding.task]
        self.past.append(binding)

    def snapshot(self, binding: Binding) -> None:
        self.kept[binding.task] = len(binding.strips)
        taken = e.SnapshotTaken(binding.task, binding.epoch, binding.progress)
        self.dispatch(taken)

    def strip(self, binding: Binding) -> None:
        binding.strips.append(len(binding.strips))
        binding.checkpointed = True
        done = e.StripsDone(
            binding.task, binding.epoch, binding.progress, 1 / STRIPS, 0.5
        )
        self.dispatch(done)

    def start_of(self, task: TaskId) -> int:
        return round(self.submitted[task].start * STRIPS)

    def limit_of(self, task: TaskId) -> int:
        return self.limits.get(task, STRIPS)

    def family(self, task: TaskId) -> list[TaskId]:
        """List a whole task and its parts."""
        whole = self.submitted[task].part_of or task
        return [whole, *self.parts.get(whole, [])]

    def is_whole(self, task: TaskId) -> bool:
        """Whether the parts of a task, and it, are to do each of its strips once."""
        stretches = [
            range(self.start_of(each), self.limit_of(each))
            for each in self.family(task)
        ]
        strips = sorted(strip for stretch in stretches for strip in stretch)
        return strips == list(range(STRIPS))

    def awaits_parts(self, task: TaskId) -> bool:
        """Whether parts of a task have not completed."""
        return any(
            self.recorded[part].state is not State.COMPLETED
            for part in self.parts.get(task, [])
        )

    def give_up_strips(self, binding: Binding) -> None:
        """Make a part of the strips that a worker was asked for, if any are left."""
        assert binding.split_at is not None
        task, limit = binding.task, self.limit_of(binding.task)
        first = max(round(binding.split_at * STRIPS), len(binding.strips))
        binding.split_at = None
        gives = self.scheduler.system.tasks[task].gives_strips
        part = None
        if gives and first < limit:
            part = self.open_part(task, first)
        self.dispatch(e.StripsGiven(task, binding.epoch, part))

    def open_part(self, task: TaskId, first: int) -> e.TaskSubmitted:
        whole = self.submitted[task].part_of or task
        number = cast("TaskId", len(self.submitted) + 1)
        part = msgspec.structs.replace(
            self.submitted[task],
            task=number,
            after=(),
            after_any=frozenset(),
            after_notok=frozenset(),
            hold=False,
            array="",
            at_once=0,
            begin=0,
            part_of=whole,
            start=first / STRIPS,
        )
        self.submitted[number], self.begins[number] = part, 0
        self.limits[number], self.limits[task] = self.limit_of(task), first
        self.parts.setdefault(whole, []).append(number)
        for (other, name), times in list(self.barred.items()):
            if other == task:
                self.barred[number, name] = times
        if task in self.pins:
            self.pins[number] = self.pins[task]
        return part

    def finish_binding(self, binding: Binding) -> None:
        task, limit = binding.task, self.limit_of(binding.task)
        binding.strips.extend(range(len(binding.strips), limit))
        if self.awaits_parts(task):
            self.yield_binding(binding)
            return
        assert self.is_whole(task)
        self.forget(binding)
        self.dispatch(e.TaskFinished(binding.task, binding.epoch))
        # a cancel that was acknowledged wins
        expected = "cancelled" if binding.aborted else "completed"
        assert self.recorded[binding.task].state == expected
        assert binding.strips == list(range(limit))

    def yield_binding(self, binding: Binding) -> None:
        resource, binding.resource = binding.resource, None
        binding.lent = False
        assert resource is not None
        if binding.aborted:
            self.forget(binding)
        self.dispatch(e.TaskYielded(binding.task, binding.epoch, binding.progress))

    def any_task(self, pick: int) -> TaskId:
        task: TaskId = choose(list(self.submitted), pick)
        return task

    def asked_for_strips(self) -> list[Binding]:
        return [each for each in self.running() if each.split_at is not None]

    def running(self) -> list[Binding]:
        return [b for b in self.bindings.values() if b.resource is not None]

    def on_cpu(self) -> list[Binding]:
        return [b for b in self.running() if b.resource == "cpu"]

    def waiting(self) -> list[Binding]:
        return [b for b in self.begun() if b.resource is None]

    def begun(self) -> list[Binding]:
        """List what is behind no other task of its worker."""
        return [b for b in self.bindings.values() if b.behind is None]

    def recalled(self) -> list[Binding]:
        return [
            b for b in self.bindings.values() if b.recalled and b.behind is not None
        ]

    def just_begun(self) -> list[Binding]:
        """Find the workers that go on from a snapshot, or begin, and did no strip yet."""
        kept = self.kept
        return [b for b in self.running() if len(b.strips) == kept.get(b.task, 0)]

    def asked(self) -> list[Binding]:
        return [b for b in self.running() if b.asked_to_yield]

    def aborted(self) -> list[Binding]:
        return [b for b in self.running() if b.aborted]


def a_new_scheduler(policy: str, at_once: int | None = None) -> Scheduler:
    return Scheduler(
        list(RESOURCES.values()),
        estimates(SECONDS),
        Splitting(make_policy(policy, {})),
        # trains of tasks that are not all that short, as estimates are wrong
        limits=Limits(
            quotas=QUOTAS,
            at_once=at_once,
            train=4,
            train_task_s=3,
            train_s=9,
            capacity=CAPACITY,
        ),
    )


def handled(
    scheduler: Scheduler, events: tuple[Event | Policy, ...], now: int
) -> list[Action]:
    """Tell a scheduler of events of one instant, or of another policy."""
    first, *_ = events
    if not isinstance(first, msgspec.Struct):
        return scheduler.change_policy(first, now)
    told = cast("tuple[Event, ...]", events)
    if len(told) == 1:
        return scheduler.handle(told[0], now)
    return scheduler.handle_all(told, now)


def choose(things: list[Any], pick: int) -> Any:
    return things[pick % len(things)]
