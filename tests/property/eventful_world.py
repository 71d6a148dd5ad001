"""Events of a world of workers and resources, at any time and in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from builders import a_task
from hetsched import events as e
from hetsched.decision_checks import SOONEST_WAKE
from hetsched.ids import TaskId
from hetsched.limits import Needs
from hetsched.policies import POLICIES, make_policy
from hetsched.system import SECOND
from hetsched.tasks import State
from property.obedient_world import RESOURCES, SECONDS, STRIPS, Splitting, World, choose

if TYPE_CHECKING:
    from hetsched.events import Cause, Event
    from property.obedient_world import Binding


TYPES = [*SECONDS, "unknown"]
PICK = st.integers(0, 10**6)
NAMES = st.sampled_from(list(RESOURCES))
OWNERS = st.sampled_from([0, 0, 0, 1, 2])
NEEDS = st.none() | st.builds(
    Needs,
    st.integers(0, 5),
    st.sampled_from([0, 0, 3, 8]),
    st.sampled_from([0, 0, 1, 2, 9]),
)
"""Some need more cores than there are: tasks of a time at which there were more."""
CONDITIONS = st.sampled_from(["ok", "ok", "any", "notok"])


class EventfulWorld(World):
    """Users, workers and resources that do whatever they like."""

    # ------------------------------------------------------------ what users do

    @rule(
        task_type=st.sampled_from(TYPES),
        kinds=st.sets(st.sampled_from(["cpu", "gpu", "fpga"]), min_size=1),
        priority=st.integers(-1, 1),
        after=st.lists(st.tuples(PICK, CONDITIONS), max_size=3),
        hold=st.sampled_from([False, False, False, True]),
        names=st.one_of(st.just(set()), st.sets(NAMES, min_size=1)),
        owner=OWNERS,
        deadline=st.one_of(st.none(), st.floats(0, 20)),
        version=st.sampled_from(["", "", "", "2"]),
        preemptible=st.sampled_from([True, True, False]),
        needs=NEEDS,
        retries=st.sampled_from([0, 0, 1, 3]),
        begins=st.one_of(st.none(), st.none(), st.floats(-5, 5)),
        at_once=st.sampled_from([0, 0, 1, 2]),
        parallel=st.booleans(),
    )
    def submit(  # noqa: PLR0913, PLR0917  a task has that many independent properties
        self,
        task_type: str,
        kinds: set[str],
        priority: int,
        after: list[tuple[int, str]],
        hold: bool,  # noqa: FBT001  drawn by name
        names: set[str],
        owner: int,
        deadline: float | None,
        version: str,
        preemptible: bool,  # noqa: FBT001  drawn by name
        needs: Needs | None,
        retries: int,
        begins: float | None,
        at_once: int,
        parallel: bool,  # noqa: FBT001  drawn by name
    ) -> None:
        number = len(self.submitted) + 1
        able = {name for name in names if RESOURCES[name].kind in kinds}
        conditions = {1 + pick % number: condition for pick, condition in after}
        conditions.pop(number, None)
        self.awaited[TaskId(number)] = awaited = {
            TaskId(other): condition
            for other, condition in conditions.items()
            if other in self.scheduler.system.tasks
        }
        event = a_task(
            number,
            task_type,
            kinds=kinds,
            priority=priority,
            after=conditions,
            after_any={each for each in awaited if awaited[each] == "any"},
            after_notok={each for each in awaited if awaited[each] == "notok"},
            hold=hold,
            resources=able,
            owner=owner,
            deadline=None if deadline is None else self.now + int(deadline * SECOND),
            version=version,
            preemptible=preemptible,
            needs=needs,
            retries=retries,
            begin=max(0, self.now + int((begins or -1.0) * SECOND)),
            array=f"of {at_once}",
            at_once=at_once,
            parallel=parallel and preemptible,
        )
        self.submitted[event.task] = event
        self.begins[event.task] = event.begin
        self.dispatch(event)

    @precondition(lambda self: self.submitted)
    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        self.dispatch(e.TaskCancelled(self.any_task(pick)))

    @precondition(lambda self: self.submitted)
    @rule(pick=PICK, requeue=st.booleans())
    def hold(self, pick: int, requeue: bool) -> None:  # noqa: FBT001  drawn by name
        self.dispatch(e.TaskHeld(self.any_task(pick), requeue))

    @precondition(lambda self: self.submitted)
    @rule(pick=PICK)
    def release(self, pick: int) -> None:
        self.dispatch(e.TaskReleased(self.any_task(pick)))

    @precondition(lambda self: self.submitted)
    @rule(pick=PICK, where=PICK)
    def move(self, pick: int, where: int) -> None:
        task = self.any_task(pick)
        kinds = self.submitted[task].kinds
        able = [name for name in RESOURCES if RESOURCES[name].kind in kinds]
        resource = able[where % len(able)]
        if task in self.scheduler.system.tasks:  # a wish for one that has ended is late
            for each in self.family(task):
                self.pins[each] = resource
        self.dispatch(e.TaskMoved(task, resource))

    @precondition(lambda self: self.submitted)
    @rule(
        pick=PICK,
        priority=st.integers(-1, 1),
        deadline=st.one_of(st.none(), st.floats(0, 20)),
    )
    def amend(self, pick: int, priority: int, deadline: float | None) -> None:
        due = None if deadline is None else self.now + int(deadline * SECOND)
        self.dispatch(e.TaskAmended(self.any_task(pick), priority, due))

    # ------------------------------------------------------------ what workers do

    @precondition(lambda self: self.running())
    @rule(pick=PICK)
    def run_a_strip(self, pick: int) -> None:
        binding = choose(self.running(), pick)
        if len(binding.strips) < self.limit_of(binding.task):
            self.strip(binding)

    @precondition(lambda self: self.running())
    @rule(pick=PICK, others=st.lists(PICK, max_size=4))
    def wait_for_others(self, pick: int, others: list[int]) -> None:
        """Let the code of a task wait for other tasks, or go on."""
        binding = choose(self.running(), pick)
        binding.waits_for = awaited = tuple(self.any_task(other) for other in others)
        self.dispatch(e.OthersAwaited(binding.task, binding.epoch, awaited))

    @precondition(lambda self: self.asked_for_strips())
    @rule(pick=PICK)
    def give_strips(self, pick: int) -> None:
        self.give_up_strips(choose(self.asked_for_strips(), pick))

    @precondition(lambda self: self.running())
    @rule(pick=PICK)
    def finish(self, pick: int) -> None:
        self.finish_binding(choose(self.running(), pick))

    @precondition(lambda self: self.asked())
    @rule(pick=PICK)
    def yield_(self, pick: int) -> None:
        self.yield_binding(choose(self.asked(), pick))

    @precondition(lambda self: self.recalled())
    @rule(pick=PICK)
    def give_back(self, pick: int) -> None:
        """Give a task back that has not begun."""
        binding = choose(self.recalled(), pick)
        self.forget(binding)
        self.dispatch(e.TaskAborted(binding.task, binding.epoch))

    @precondition(lambda self: self.recalled())
    @rule(pick=PICK)
    def begin_all_the_same(self, pick: int) -> None:
        """Report a strip of a task that is recalled: it had started."""
        binding = choose(self.recalled(), pick)
        state = self.scheduler.system.states[binding.behind or ""]
        if binding.task in state.running:  # those before it have ended
            self.begin(binding)
            self.strip(binding)

    @rule()
    def let_a_train_take_long(self) -> None:
        due = self.scheduler.next_recall()
        if due is not None:
            self.now = max(self.now, due)
            self.dispatch(e.TrainOverdue())

    @rule()
    def let_a_pause_end(self) -> None:
        due = self.scheduler.next_beginning()
        if due is not None:
            self.now = max(self.now, due)
            self.dispatch(e.BeginningDue())

    @rule(later=st.floats(-3.0, 3.0))
    def let_the_time_of_day_jump(self, later: float) -> None:
        shift = int(later * SECOND)
        for task, begin in self.begins.items():
            if begin > self.now + 1_000:  # the instant at which the event arrives
                self.begins[task] = max(begin + shift, 1)
        self.dispatch(e.TimeStepped(shift))

    @precondition(lambda self: self.running())
    @rule(pick=PICK, count=st.integers(2, 4))
    def finish_several(self, pick: int, count: int) -> None:
        """Report the ends of a train in one call."""
        first = choose(self.running(), pick)
        train = [first, *self.behind(first)][:count]
        if any(each.recalled or each.aborted or each.asked_to_yield for each in train):
            return
        for each in train:
            each.strips.extend(range(len(each.strips), STRIPS))
            each.behind = None
            self.forget(each)
        self.ending = {each.task for each in train}
        self.dispatch(*(e.TaskFinished(each.task, each.epoch) for each in train))
        self.ending = set()

    @precondition(lambda self: self.begun())
    @rule(pick=PICK, elsewhere=st.booleans(), program=st.booleans())
    def fail(self, pick: int, elsewhere: bool, program: bool) -> None:  # noqa: FBT001  drawn by name
        binding = choose(self.begun(), pick)
        cancelled = self.scheduler.system.tasks[binding.task].cancelling is not None
        if elsewhere and binding.resource is not None and not cancelled:
            self.barred[binding.task, binding.resource] += 1
            self.pins.pop(binding.task, None)
        self._expect_pause(binding, elsewhere=elsewhere)
        self.forget(binding)
        cause: Cause | None = "program" if program else None
        self.dispatch(
            e.TaskFailed(binding.task, binding.epoch, "failed", elsewhere, cause=cause)
        )

    def _expect_pause(self, binding: Binding, *, elsewhere: bool) -> None:
        """Take note that a task that fails by itself has to pause."""
        record = self.scheduler.system.tasks[binding.task]
        by_itself = binding.resource is None or not elsewhere
        if by_itself and record.state is not State.HELD:
            self.paused[binding.task] = self.now + (SECOND << record.retried)

    @precondition(lambda self: self.running())
    @rule(pick=PICK)
    def abort(self, pick: int) -> None:
        """Give up; mostly, but not only, as asked."""
        binding = choose(self.aborted() or self.running(), pick)
        self.forget(binding)
        self.dispatch(e.TaskAborted(binding.task, binding.epoch))

    @precondition(lambda self: self.begun())
    @rule(pick=PICK, hung=st.booleans())
    def lose_worker(self, pick: int, hung: bool) -> None:  # noqa: FBT001  drawn by name
        binding = choose(self.begun(), pick)
        behind = self.losses_behind(binding) if binding.resource is not None else []
        self.dispatch(*behind, self.loss(binding, hung=hung))

    @precondition(lambda self: self.running())
    @rule(pick=PICK, cause=st.sampled_from(["crash", "hang", "killed", "stuck"]))
    def crash_worker(self, pick: int, cause: Cause) -> None:
        binding = choose(self.running(), pick)
        self.dispatch(*self.losses_behind(binding), self.crash(binding, cause))

    @rule()
    def try_what_was_avoided(self) -> None:
        """Let the time of the next trial come."""
        due = self.scheduler.next_trial()
        if due is not None:
            self.now = max(self.now, due)
            self.dispatch(e.TrialDue())

    @rule(owner=st.one_of(st.none(), OWNERS), names=st.sets(NAMES))
    def forget_failures(self, owner: int | None, names: set[str]) -> None:
        self.dispatch(e.FailuresForgotten(owner, resources=frozenset(names)))

    @precondition(lambda self: self.on_cpu())
    @rule(pick=PICK)
    def hold_on_to_a_slot(self, pick: int) -> None:
        """Let a worker hang that nothing can end."""
        binding = choose(self.on_cpu(), pick)
        behind = self.losses_behind(binding)
        lost = self.loss(binding, hung=True)
        self.blocked += 1
        self.dispatch(*behind, lost, e.SlotsBlocked("cpu", self.blocked, "stuck"))

    @precondition(lambda self: self.blocked)
    @rule()
    def give_a_slot_back(self) -> None:
        self.blocked -= 1
        self.dispatch(e.SlotsBlocked("cpu", self.blocked))

    @precondition(lambda self: self.begun())
    @rule(pick=PICK)
    def write_snapshot(self, pick: int) -> None:
        self.snapshot(choose(self.begun(), pick))

    @precondition(lambda self: self.waiting())
    @rule(pick=PICK)
    def park(self, pick: int) -> None:
        """Let a task wait on disk."""
        binding = choose(self.waiting(), pick)
        self.snapshot(binding)
        self.forget(binding)
        self.dispatch(e.TaskParked(binding.task, binding.epoch))

    @precondition(lambda self: self.just_begun())
    @rule(pick=PICK)
    def park_while_told_to_go_on(self, pick: int) -> None:
        binding = choose(self.just_begun(), pick)
        self.forget(binding)
        self.dispatch(e.TaskParked(binding.task, binding.epoch))

    @precondition(lambda self: self.just_begun())
    @rule(pick=PICK)
    def find_the_newest_snapshot_bad(self, pick: int) -> None:
        """Go on from an older one, or from the start."""
        binding = choose(self.just_begun(), pick)
        start = self.start_of(binding.task)
        left = pick % (len(binding.strips) - start + 1)
        self.kept[binding.task] = start + left
        binding.strips = list(range(self.kept[binding.task]))
        resumed = e.TaskResumed(binding.task, binding.epoch, binding.progress)
        self.dispatch(resumed)

    @precondition(lambda self: self.past)
    @rule(pick=PICK, kind=st.integers(0, 11))
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
            e.StripsGiven(task, epoch),
            e.OthersAwaited(task, epoch, tuple(self.submitted)),
        ]
        # any call goes on with what the last one left, and with what a policy put off to an
        # instant that comes with it: its timer may be later
        while self.timer is not None and self.timer <= self.now + SOONEST_WAKE + 1:
            self.fire_timer()
        while (
            self.scheduler.next_beginning() or self.now + SECOND
        ) <= self.now + 1_000:
            self.let_a_pause_end()
        before = self.recorded[task]
        self.dispatch(late[kind])
        assert self.recorded[task].state == before.state

    # ------------------------------------------------------------ what resources do

    @rule(name=NAMES)
    def lose_resource(self, name: str) -> None:
        self.unusable.add(name)
        self.dispatch(e.ResourceLost(name, "fell off the bus"))

    @rule(name=NAMES)
    def return_resource(self, name: str) -> None:
        self.unusable.discard(name)
        self.dispatch(e.ResourceReturned(name))

    @rule(name=NAMES)
    def recover_resource(self, name: str) -> None:
        """Let a lost resource work again: a drained one stays so."""
        if not self.scheduler.system.states[name].draining:
            self.unusable.discard(name)
        self.dispatch(e.ResourceRecovered(name))

    @rule(name=NAMES)
    def drain_resource(self, name: str) -> None:
        self.unusable.add(name)
        self.dispatch(e.ResourceDrained(name))

    # ------------------------------------------------------------ what launchers do

    @rule(owner=OWNERS)
    def leave_unattended(self, owner: int) -> None:
        self.unattended.add(owner)
        self.dispatch(e.OwnerUnattended(owner))

    @precondition(lambda self: self.unattended)
    @rule(pick=PICK)
    def attend_again(self, pick: int) -> None:
        owner = choose(sorted(self.unattended), pick)
        self.unattended.remove(owner)
        self.dispatch(e.OwnerAttended(owner))

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
        self.dispatch(e.TimerFired())

    @rule(name=st.sampled_from(list(POLICIES)))
    def change_policy(self, name: str) -> None:
        self.dispatch(make_policy(name, {}))
        self.dispatch(Splitting(make_policy(self.policy, {})))
