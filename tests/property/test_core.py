"""Whatever happens in whatever order, the scheduler loses, doubles and overloads nothing.

A model of the world obeys the scheduler's actions and complains of those that no
worker could obey; Hypothesis makes up what happens in it. Every policy is tested.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, assert_never

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from builders import a_resource, a_task, estimates
from hetd.core import actions as a
from hetd.core import events as e
from hetd.core.quotas import Quota, Quotas
from hetd.core.scheduler import Limits, Scheduler
from hetd.core.system import SECOND
from hetd.policies import POLICIES, make_policy

if TYPE_CHECKING:
    from hetd.core.actions import Action
    from hetd.core.events import Event, TaskId

STRIPS = 4
RESOURCES = {
    resource.name: resource
    for resource in (
        a_resource("cpu", slots=2),
        a_resource("gpu", "gpu0"),
        a_resource("gpu", "gpu1"),
        a_resource("fpga"),
    )
}
SECONDS = {
    "to-cpu": {"cpu": 1.0, "gpu0": 3.0, "gpu1": 3.0, "fpga0": 2.0},
    "to-gpu": {"cpu": 9.0, "gpu0": 1.0, "gpu1": 2.0, "fpga0": 3.0},
    "to-fpga": {"cpu": 6.0, "gpu0": 4.0, "gpu1": 5.0, "fpga0": 2.0},
    "tiny": dict.fromkeys(RESOURCES, 1e-4),
}
TYPES = [*SECONDS, "unknown"]
QUOTAS = Quotas(single={1: Quota(running=1), 2: Quota(running=2, share=3.0)})
"""The tasks of user 0 are not limited."""
PICK = st.integers(0, 10**6)
NAMES = st.sampled_from(list(RESOURCES))


@dataclass
class Binding:
    """A worker that holds a task: staged, or kept after a yield, or running."""

    task: TaskId
    epoch: int
    resource: str | None = None
    asked_to_yield: bool = False
    aborted: bool = False
    strips: list[int] = field(default_factory=list)

    @property
    def progress(self) -> float:
        return len(self.strips) / STRIPS


class World(RuleBasedStateMachine):
    """Workers and resources that do what the scheduler orders, or die."""

    def __init__(self, policy: str) -> None:
        super().__init__()
        self.policy = policy
        self.scheduler = a_new_scheduler(policy)
        self.now = 0
        self.history: list[tuple[tuple[Event, ...], int, list[Action]]] = []
        self.submitted: dict[TaskId, e.TaskSubmitted] = {}
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
        self.last_epoch = 0
        self.timer: int | None = None

    # ------------------------------------------------------------ what users do

    @rule(
        task_type=st.sampled_from(TYPES),
        kinds=st.sets(st.sampled_from(["cpu", "gpu", "fpga"]), min_size=1),
        priority=st.integers(-1, 1),
        after=st.lists(PICK, max_size=2),
        hold=st.sampled_from([False, False, False, True]),
        names=st.one_of(st.just(set()), st.sets(NAMES, min_size=1)),
        owner=st.sampled_from([0, 0, 0, 1, 2]),
        deadline=st.one_of(st.none(), st.floats(0, 20)),
    )
    def submit(  # noqa: PLR0913, PLR0917  a task has that many independent properties
        self,
        task_type: str,
        kinds: set[str],
        priority: int,
        after: list[int],
        hold: bool,  # noqa: FBT001  drawn by name
        names: set[str],
        owner: int,
        deadline: float | None,
    ) -> None:
        number = len(self.submitted) + 1
        able = {name for name in names if RESOURCES[name].kind in kinds}
        event = a_task(
            number,
            task_type,
            kinds=kinds,
            priority=priority,
            after={1 + pick % number for pick in after} - {number},
            hold=hold,
            resources=able,
            owner=owner,
            deadline=None if deadline is None else self.now + int(deadline * SECOND),
        )
        self.submitted[event.task] = event
        self.happen(event)

    @precondition(lambda self: self.submitted)
    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        self.happen(e.TaskCancelled(self.any_task(pick)))

    @precondition(lambda self: self.submitted)
    @rule(pick=PICK)
    def hold(self, pick: int) -> None:
        self.happen(e.TaskHeld(self.any_task(pick)))

    @precondition(lambda self: self.submitted)
    @rule(pick=PICK)
    def release(self, pick: int) -> None:
        self.happen(e.TaskReleased(self.any_task(pick)))

    @precondition(lambda self: self.submitted)
    @rule(pick=PICK, where=PICK)
    def move(self, pick: int, where: int) -> None:
        task = self.any_task(pick)
        kinds = self.submitted[task].kinds
        able = [name for name in RESOURCES if RESOURCES[name].kind in kinds]
        self.pins[task] = able[where % len(able)]
        self.happen(e.TaskMoved(task, self.pins[task]))

    @precondition(lambda self: self.submitted)
    @rule(
        pick=PICK,
        priority=st.integers(-1, 1),
        deadline=st.one_of(st.none(), st.floats(0, 20)),
    )
    def amend(self, pick: int, priority: int, deadline: float | None) -> None:
        due = None if deadline is None else self.now + int(deadline * SECOND)
        self.happen(e.TaskAmended(self.any_task(pick), priority, due))

    # ------------------------------------------------------------ what workers do

    @precondition(lambda self: self.running())
    @rule(pick=PICK)
    def run_a_strip(self, pick: int) -> None:
        binding = choose(self.running(), pick)
        if len(binding.strips) < STRIPS:
            self.strip(binding)

    @precondition(lambda self: self.running())
    @rule(pick=PICK)
    def finish(self, pick: int) -> None:
        self.finish_binding(choose(self.running(), pick))

    @precondition(lambda self: self.asked())
    @rule(pick=PICK)
    def yield_(self, pick: int) -> None:
        self.yield_binding(choose(self.asked(), pick))

    @precondition(lambda self: self.bindings)
    @rule(pick=PICK, elsewhere=st.booleans())
    def fail(self, pick: int, elsewhere: bool) -> None:  # noqa: FBT001  drawn by name
        binding = choose(list(self.bindings.values()), pick)
        cancelled = self.scheduler.system.tasks[binding.task].cancelling is not None
        if elsewhere and binding.resource is not None and not cancelled:
            self.barred[binding.task, binding.resource] += 1
            self.pins.pop(binding.task, None)
        self.forget(binding)
        self.happen(e.TaskFailed(binding.task, binding.epoch, "failed", elsewhere))

    @precondition(lambda self: self.running())
    @rule(pick=PICK)
    def abort(self, pick: int) -> None:
        """Give up; mostly, but not only, as asked."""
        binding = choose(self.aborted() or self.running(), pick)
        self.forget(binding)
        self.happen(e.TaskAborted(binding.task, binding.epoch))

    @precondition(lambda self: self.bindings)
    @rule(pick=PICK, hung=st.booleans())
    def lose_worker(self, pick: int, hung: bool) -> None:  # noqa: FBT001  drawn by name
        self.happen(self.loss(choose(list(self.bindings.values()), pick), hung=hung))

    @precondition(lambda self: self.on_cpu())
    @rule(pick=PICK)
    def hold_on_to_a_slot(self, pick: int) -> None:
        """Let a worker hang that nothing can end."""
        lost = self.loss(choose(self.on_cpu(), pick), hung=True)
        self.blocked += 1
        self.happen(lost, e.SlotsBlocked("cpu", self.blocked, "stuck"))

    @precondition(lambda self: self.blocked)
    @rule()
    def give_a_slot_back(self) -> None:
        self.blocked -= 1
        self.happen(e.SlotsBlocked("cpu", self.blocked))

    @precondition(lambda self: self.bindings)
    @rule(pick=PICK)
    def write_snapshot(self, pick: int) -> None:
        self.snapshot(choose(list(self.bindings.values()), pick))

    @precondition(lambda self: self.waiting())
    @rule(pick=PICK)
    def park(self, pick: int) -> None:
        """Let a task wait on disk."""
        binding = choose(self.waiting(), pick)
        self.snapshot(binding)
        self.forget(binding)
        self.happen(e.TaskParked(binding.task, binding.epoch))

    @precondition(lambda self: self.just_begun())
    @rule(pick=PICK)
    def park_while_told_to_go_on(self, pick: int) -> None:
        binding = choose(self.just_begun(), pick)
        self.forget(binding)
        self.happen(e.TaskParked(binding.task, binding.epoch))

    @precondition(lambda self: self.just_begun())
    @rule(pick=PICK)
    def find_the_newest_snapshot_bad(self, pick: int) -> None:
        """Go on from an older one, or from the start."""
        binding = choose(self.just_begun(), pick)
        self.kept[binding.task] = pick % (len(binding.strips) + 1)
        binding.strips = list(range(self.kept[binding.task]))
        resumed = e.TaskResumed(binding.task, binding.epoch, binding.progress)
        self.happen(resumed)

    @precondition(lambda self: self.past)
    @rule(pick=PICK, kind=st.integers(0, 9))
    def report_too_late(self, pick: int, kind: int) -> None:
        old = choose(self.past, pick)
        task, epoch = old.task, old.epoch
        late: list[Event] = [
            e.TaskReady(task, epoch),
            e.StripsDone(task, epoch, 0.75, 0.25, 1.0),
            e.TaskYielded(task, epoch, 0.75),
            e.TaskFinished(task, epoch),
            e.TaskFailed(task, epoch, "late", elsewhere=True),
            e.TaskAborted(task, epoch),
            e.WorkerLost(task, epoch, "late"),
            e.SnapshotTaken(task, epoch, 0.75),
            e.TaskResumed(task, epoch, 0.75),
            e.TaskParked(task, epoch),
        ]
        before = self.recorded[task]
        self.happen(late[kind])
        assert self.recorded[task].state == before.state

    # ------------------------------------------------------------ what resources do

    @rule(name=NAMES)
    def lose_resource(self, name: str) -> None:
        self.unusable.add(name)
        self.happen(e.ResourceLost(name, "fell off the bus"))
        for binding in self.running():
            if binding.resource == name:
                self.forget(binding)

    @rule(name=NAMES)
    def return_resource(self, name: str) -> None:
        self.unusable.discard(name)
        self.happen(e.ResourceReturned(name))

    @rule(name=NAMES)
    def recover_resource(self, name: str) -> None:
        """Let a lost resource work again: a drained one stays so."""
        if not self.scheduler.system.states[name].draining:
            self.unusable.discard(name)
        self.happen(e.ResourceRecovered(name))

    @rule(name=NAMES)
    def drain_resource(self, name: str) -> None:
        self.unusable.add(name)
        self.happen(e.ResourceDrained(name))

    # ------------------------------------------------------------ what else happens

    @rule(seconds=st.floats(0.0, 3.0))
    def pass_time(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)
        if self.timer is not None and self.timer <= self.now:
            self.fire_timer()

    @rule()
    def fire_timer(self) -> None:
        self.now = max(self.now, self.timer or 0)
        self.timer = None
        self.happen(e.TimerFired())

    @rule(name=st.sampled_from(list(POLICIES)))
    def change_policy(self, name: str) -> None:
        self.happen(e.PolicyChanged(make_policy(name, {})))
        self.happen(e.PolicyChanged(make_policy(self.policy, {})))

    # ------------------------------------------------------------ steps

    def happen(self, *events: Event) -> None:
        self.now += 1_000
        actions = handled(self.scheduler, events, self.now)
        self.history.append((events, self.now, actions))
        for action in actions:
            self.obey(action)

    def obey(self, action: Action) -> None:
        match action:
            case a.Stage():
                self.bind(action.task, action.epoch)
            case a.Run():
                self.run(action)
            case a.Preempt():
                binding = self.held(action.task, action.epoch)
                assert binding.resource is not None
                assert not binding.asked_to_yield
                binding.asked_to_yield = True
            case a.Abort():
                self.give_up(self.held(action.task, action.epoch))
            case a.Record():
                self.keep(action)
            case a.SetTimer():
                assert action.at > self.now
                self.timer = action.at
            case _:
                assert_never(action)

    def bind(self, task: TaskId, epoch: int) -> Binding:
        assert task not in self.bindings, "two workers for one task"
        assert epoch > self.last_epoch
        self.last_epoch = epoch
        strips = list(range(self.kept.get(task, 0)))
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
        binding.resource = action.resource
        binding.asked_to_yield = False
        taken = Counter(running.resource for running in self.running())
        assert taken[action.resource] <= self.slots(action.resource)

    def can_run(self, task: TaskId, name: str) -> bool:
        submitted = self.submitted[task]
        if name in self.unusable or RESOURCES[name].kind not in submitted.kinds:
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
        if binding.resource is None or binding.resource in self.lost():
            self.forget(binding)

    def lost(self) -> set[str]:
        states = self.scheduler.system.states
        return {name for name, state in states.items() if not state.up}

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
        self.happen(taken)

    def strip(self, binding: Binding) -> None:
        binding.strips.append(len(binding.strips))
        done = e.StripsDone(
            binding.task, binding.epoch, binding.progress, 1 / STRIPS, 0.5
        )
        self.happen(done)

    def finish_binding(self, binding: Binding) -> None:
        binding.strips.extend(range(len(binding.strips), STRIPS))
        self.forget(binding)
        self.happen(e.TaskFinished(binding.task, binding.epoch))
        assert self.recorded[binding.task].state == "completed"
        assert binding.strips == list(range(STRIPS))

    def yield_binding(self, binding: Binding) -> None:
        resource, binding.resource = binding.resource, None
        assert resource is not None
        if binding.aborted:
            self.forget(binding)
        self.happen(e.TaskYielded(binding.task, binding.epoch, binding.progress))

    def any_task(self, pick: int) -> TaskId:
        task: TaskId = choose(list(self.submitted), pick)
        return task

    def running(self) -> list[Binding]:
        return [b for b in self.bindings.values() if b.resource is not None]

    def on_cpu(self) -> list[Binding]:
        return [b for b in self.running() if b.resource == "cpu"]

    def waiting(self) -> list[Binding]:
        return [b for b in self.bindings.values() if b.resource is None]

    def just_begun(self) -> list[Binding]:
        """Find the workers that go on from a snapshot, or begin, and did no strip yet."""
        kept = self.kept
        return [b for b in self.running() if len(b.strips) == kept.get(b.task, 0)]

    def asked(self) -> list[Binding]:
        return [b for b in self.running() if b.asked_to_yield]

    def aborted(self) -> list[Binding]:
        return [b for b in self.running() if b.aborted]

    # ------------------------------------------------------------ what always holds

    @invariant()
    def the_scheduler_is_consistent(self) -> None:
        self.scheduler.check()

    @invariant()
    def no_task_is_lost(self) -> None:
        live = set(self.scheduler.system.tasks)
        ended = {task for task, last in self.recorded.items() if last.state.ended}
        assert live | ended == set(self.submitted)
        assert not live & ended

    @invariant()
    def what_was_recorded_is_so(self) -> None:
        for task in self.scheduler.system.tasks.values():
            last = self.recorded[task.id]
            assert (last.state, last.resource) == (task.state, task.resource)

    @invariant()
    def the_workers_hold_what_the_scheduler_thinks(self) -> None:
        thought = {
            task.id: (
                task.epoch,
                task.resource if task.state == "running" else None,
                task.progress,
            )
            for task in self.scheduler.system.tasks.values()
            if task.bound
        }
        assert thought == {
            b.task: (b.epoch, b.resource, b.progress) for b in self.bindings.values()
        }

    @invariant()
    def nobody_takes_more_than_his_quota(self) -> None:
        taken = Counter(self.submitted[each.task].owner for each in self.running())
        for owner, quota in QUOTAS.single.items():
            assert quota.running is not None
            assert taken[owner] <= quota.running

    def teardown(self) -> None:
        self.everything_comes_to_an_end()
        self.the_same_events_give_the_same_actions()

    def everything_comes_to_an_end(self) -> None:
        """Let all resources and workers behave: every task that can run completes."""
        for name in RESOURCES:
            self.return_resource(name)
        while self.blocked:
            self.give_a_slot_back()
        for task in list(self.submitted):
            self.release(task - 1)
        for _ in range(20 * len(self.submitted)):
            self.let_go_on()
            self.the_scheduler_is_consistent()
        assert not self.scheduler.system.tasks, "some tasks never end"

    def let_go_on(self) -> None:
        for binding in self.running():
            if self.bindings.get(binding.task) is not binding:
                continue
            if binding.asked_to_yield:
                self.yield_binding(binding)
            elif binding.resource is not None:
                self.finish_binding(binding)
        self.pass_time(1.0)

    def the_same_events_give_the_same_actions(self) -> None:
        again = a_new_scheduler(self.policy)
        for events, now, actions in self.history:
            assert handled(again, events, now) == actions


def a_new_scheduler(policy: str) -> Scheduler:
    return Scheduler(
        list(RESOURCES.values()),
        estimates(SECONDS),
        make_policy(policy, {}),
        limits=Limits(quotas=QUOTAS),
    )


def handled(scheduler: Scheduler, events: tuple[Event, ...], now: int) -> list[Action]:
    if len(events) == 1:
        return scheduler.handle(events[0], now)
    return scheduler.handle_all(events, now)


def choose(things: list[Any], pick: int) -> Any:
    return things[pick % len(things)]


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_lost_doubled_or_overloaded(policy: str) -> None:
    run_state_machine_as_test(
        lambda: World(policy),  # type: ignore[arg-type]  # a factory does as well
        settings=settings(
            max_examples=120,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
