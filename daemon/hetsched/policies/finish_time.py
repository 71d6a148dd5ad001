"""`finish-time`: tasks go where they are expected to be finished soonest.

As in loesch-2016, a task waits for the resource that fits it best. Beyond the paper's
principles, every step weighs its saving against its cost: remaining time on both sides,
the work that waits there, the time of a move and until the next checkpoint. Where there
are not too many tasks, the future is simulated by these rules, by the paper's and with
other first steps, and the steps that end soonest are taken (`planning/lookahead.py`). A resource
for which nothing is left to do gets a part of a running task whose strips are independent
(`planning/parts.py`). Where contention is modelled, a running task leaves a place that became
crowded (`planning/crowded_rule.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hetsched import events as e
from hetsched.planning.crowded_rule import CrowdedRule
from hetsched.planning.expected_finish import ExpectedFinish
from hetsched.planning.lookahead import (
    Aim,
    affordable,
    all_at_best,
    any_moved,
    decide,
    settles_at,
)
from hetsched.planning.outlook import Outlook
from hetsched.planning.parts import share_work
from hetsched.planning.principles import (
    RULE_A,
    RULE_B,
    RULE_C,
    RULE_D,
    enqueue_at_best,
)
from hetsched.planning.stealing import (
    offers_in_turn,
    running_tasks,
    steal,
    waiting_tasks,
)
from hetsched.policy import Place, Preempt, Split, Wake
from hetsched.queues import ExpectedUse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.planning.stealing import Offer
    from hetsched.policy import Decision
    from hetsched.system import ResourceState, System
    from hetsched.tasks import TaskRecord

NEXT = -0.5
"""Rank of the task that a free slot takes next: before those that wait, after those that
were sent back to go on at once."""


RULE_NEXT = "short tasks go first, in order of arrival; of the others the longest"
RULE_BACK = "back to where it fits best: its helper has more to do itself"
RULE_HELP = "an idle resource helps the one that has most to do"
RULE_SOONER = "it is done sooner there, also counting the move"

RULES = {
    "next": RULE_NEXT,
    "back": RULE_BACK,
    "help": RULE_HELP,
    "sooner": RULE_SOONER,
    "B": RULE_B,
    "C": RULE_C,
    "D": RULE_D,
}
"""The text for users of each step of a rollout."""


@dataclass(frozen=True, slots=True)
class FinishTime:
    """Default: moves work, started or not, wherever it is expected to be done sooner.

    Attributes:
        caution: a move must save this many standard deviations of its expected saving:
            a quarter of that at first, and half of it more with each move that the task
            has made. By rules: this multiple of its cost.
        amortize: by rules, a moved task stays for this multiple of the cost of its move.
        least_gain: a move must save this share of the time at least; twice that with
            each move that the task has made.
        short_share: tasks below this share of all the work that a resource has go first,
            in order of arrival; of the others the longest goes first, so that no long
            task is left alone at the end.
        mean_weight: weight of the mean end of all tasks, relative to the end of the last.
        look_ahead: tasks times rollouts that a decision may simulate. With more tasks
            than a quarter of that it decides by rules; 0: always.
        crowded_gain: a task that others slow down moves to an idle resource if that saves
            this share of its time, twice that with each move that it has made; 0: never.
            Only where contention is modelled.

    """

    caution: float = 2.0
    amortize: float = 10.0
    least_gain: float = 0.02
    short_share: float = 0.01
    mean_weight: float = 0.02
    look_ahead: int = 600
    crowded_gain: float = 0.2

    arrival_rule: ClassVar[str] = RULE_A

    @property
    def uses_belief(self) -> bool:
        """Whether it asks for the belief about other programs' load."""
        return self.crowded_gain > 0.0

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        """Place what arrived, then let no resource idle while it could help."""
        if not system.tasks:
            return
        if system.unplaced.entries:
            yield from enqueue_at_best(system)
        # Progress alone changes nothing where every resource is busy.
        progress = isinstance(event, e.StripsDone | e.TaskReady | e.TaskStarted)
        if (progress and not system.idle()) or not _is_open(system):
            return
        at_best = all_at_best(system)
        if not at_best or any_moved(system):
            budget = affordable(system, self.look_ahead)
            if not budget:
                yield from self._go_by_rules(system)
            elif not progress or self._tempts(system):
                yield from self._look_ahead(system, 0 if at_best else budget)
        if _any_parallel(system):
            yield from self._share(system)
        yield from self._leave_crowds(system)

    def _leave_crowds(self, system: System) -> Iterator[Preempt]:
        """Move running tasks that others slow down to idle resources."""
        if system.crowding is None or not self.uses_belief or not system.idle():
            return
        rule = CrowdedRule(least_gain=self.crowded_gain, only_crowded=True)
        yield from rule.leave_crowds(ExpectedFinish(system))

    def _share(self, system: System) -> Iterator[Split | Wake]:
        """Give idle resources parts of running tasks; of one that starts now, right after."""
        helpers = _helpers(system)
        if helpers and any(t.submitted.parallel for t in running_tasks(system)):
            outlook = Outlook(system, self.caution, self.amortize)
            yield from share_work(system, outlook, helpers, self.least_gain)
        if helpers and any(t.submitted.parallel for t in _starting(system)):
            yield Wake(system.now + 1)

    def _tempts(self, system: System) -> bool:
        """Whether a running task seems to be done sooner elsewhere, as it gets on now."""
        outlook = Outlook(system, self.caution, self.amortize)
        return next(self._finish_sooner(system, outlook), None) is not None

    def _look_ahead(self, system: System, budget: int) -> Iterator[Decision]:
        """Simulate the future by several rules, and take the first steps of the best.

        Without a budget nothing is better than what goes on.
        """
        aim = Aim(self.mean_weight, self.caution, self.least_gain, budget)
        for task, name, step in decide(system, aim) if budget else ():
            why = RULES[step.rule]
            if step.preempts:
                yield Preempt(task.id, name, why, makes_way=step.makes_way)
            else:
                rank = NEXT if step.rule == "next" else 0.0
                yield Place(task.id, name, rank, why)
        at = settles_at(system)
        if at is not None:
            yield Wake(at)

    def _go_by_rules(self, system: System) -> Iterator[Decision]:
        """Decide by rules alone: there is too much, or too little, to simulate."""
        outlook = Outlook(system, self.caution, self.amortize)
        yield from self._choose_next(system, outlook)
        if not running_tasks(system):
            yield from self._take_waiting(system, outlook)
            return
        yield from self._make_way(system, outlook)
        if system.idle():
            yield from self._take_waiting(system, outlook)
            yield from self._finish_sooner(system, outlook)
            yield from self._take_running(system, outlook)
        yield from self._look_again(system, outlook)

    def _choose_next(self, system: System, outlook: Outlook) -> Iterator[Place]:
        """Let a free slot take the waiting task that should go first."""
        for state in system.usable_states():
            free = state.slots - len(state.running)
            if 0 < free < len(state.queue):
                chosen = self._first(outlook, state)
                if chosen is not None:
                    yield Place(chosen.id, state.resource.name, NEXT, RULE_NEXT)

    def _first(self, outlook: Outlook, state: ResourceState) -> TaskRecord | None:
        """Choose among the waiting tasks whose turn it is; None: as they stand.

        Those of the highest priority, and of the user whose task is the first of these.
        """
        head = state.queue.head()
        if head is None or head.rank < 0:
            return None
        name = state.resource.name
        short = self.short_share * outlook.dry(name)
        whose = head.priority, head.submitted.owner
        candidates = [
            task
            for task in state.queue.heads()
            if (task.priority, task.submitted.owner) == whose
        ]
        times = {task: outlook.left(task, name) for task in candidates}
        quick = [task for task in candidates if times[task] < short]
        if quick:
            return min(quick, key=lambda task: task.sequence)
        return max(candidates, key=lambda task: (times[task], -task.sequence))

    def _make_way(self, system: System, outlook: Outlook) -> Iterator[Preempt]:
        """Send a task back to where it fits best when its helper has more to do itself."""
        for task, best in _misfits(system):
            name = task.assigned_to
            if len(system.queue(name)) <= max(system.opening(name), 0):
                continue
            cost = outlook.moving(task, best) + outlook.leaving(task)
            least = self.caution * cost + outlook.trying(task, best)
            if outlook.left(task, name) <= least:
                continue
            if not outlook.settled(task):
                continue
            if outlook.dry(name) > outlook.dry(best) + outlook.left(task, best):
                yield Preempt(task.id, best, RULE_BACK, makes_way=True)

    def _take_waiting(self, system: System, outlook: Outlook) -> Iterator[Place]:
        """Let idle resources help the one that has most to do, with what fits them best."""
        use = ExpectedUse()

        def offers(idle: list[str]) -> list[Offer]:
            dry = outlook.dry_donors()

            def of_owner(waiting: list[tuple[str, TaskRecord]]) -> list[Offer]:
                return [
                    ((-dry[donor], -(there / here), task.sequence), task, name)
                    for donor, task in waiting
                    for name in idle
                    if name != donor and name in system.affinities(task.row)
                    for there in [outlook.left(task, donor)]
                    for here in [max(outlook.left(task, name), 1e-9)]
                    if outlook.saved_by_taking(task, donor, name, dry[donor]) > 0
                ]

            return offers_in_turn(waiting_tasks(system), use, of_owner)

        for task, name in steal(lambda: _helpers(system), offers):
            use.charge(task)
            yield Place(task.id, name, rule=RULE_HELP)

    def _finish_sooner(self, system: System, outlook: Outlook) -> Iterator[Preempt]:
        """Move a running task to an idle resource where it is done sooner."""

        def offers(idle: list[str]) -> list[Offer]:
            return [
                ((-saved, task.sequence), task, name)
                for task in running_tasks(system)
                if _may_gain(task, system) and _may_be_sent(task, system)
                for name in idle
                if name in system.affinities(task.row)
                if name not in (task.resource, task.destination)
                for saved in [outlook.saved_by_moving(task, name)]
                if saved > self.least_gain * outlook.until_done(task)
                if saved > outlook.trying(task, name)
            ]

        for task, name in steal(lambda: _helpers(system), offers):
            yield Preempt(task.id, name, RULE_SOONER)

    def _take_running(self, system: System, outlook: Outlook) -> Iterator[Preempt]:
        """Let an idle resource take a running task whose resource has others waiting."""

        def offers(idle: list[str]) -> list[Offer]:
            dry = outlook.dry_donors()
            return [
                ((-saved, task.sequence), task, name)
                for donor in _overloaded(system)
                for task in system.running(donor)
                if task.id not in system.departing and outlook.settled(task)
                for name in idle
                if name != donor and name in system.affinities(task.row)
                for saved in [outlook.saved_by_taking(task, donor, name, dry[donor])]
                if saved > self.least_gain * outlook.left(task, donor)
                if saved > outlook.trying(task, name)
            ]

        for task, name in steal(lambda: _helpers(system), offers):
            yield Preempt(task.id, name, RULE_HELP, makes_way=True)

    def _look_again(self, system: System, outlook: Outlook) -> Iterator[Wake]:
        """Wake when the next task that was moved has settled."""
        moved = [task for task in running_tasks(system) if task.came_from is not None]
        settles = [outlook.settles_at(task) for task in moved]
        at = min((at for at in settles if at > system.now), default=None)
        if at is not None:
            yield Wake(at)


def _is_open(system: System) -> bool:
    """Whether anything can be decided: a slot is free, or a task could make way."""
    for state in system.usable_states():
        if len(state.running) < state.slots:
            return True
        if state.queue.entries and state.running:
            name = state.resource.name
            if any(system.best(t.row) != name for t in state.running.values()):
                return True
    return False


def _any_parallel(system: System) -> bool:
    """Whether any task that runs, or starts now, has independent strips."""
    waits = False
    for state in system.states.values():
        for task in state.running.values():
            if task.submitted.parallel:
                return True
        waits = waits or bool(state.queue.entries)
    return waits and any(t.submitted.parallel for t in _starting(system))


def _starting(system: System) -> list[TaskRecord]:
    """List the waiting tasks that free slots take now."""
    return [
        task
        for state in system.usable_states()
        if state.queue and len(state.running) < state.slots
        for task in state.queue.first(state.slots - len(state.running))
    ]


def _helpers(system: System) -> list[str]:
    """Names of the resources that could take work; one that is shared: only if empty.

    A second task does not make a shared resource do more.
    """
    return [
        name
        for name in system.idle()
        if not system.resources[name].shared or _empty(system, name)
    ]


def _empty(system: System, name: str) -> bool:
    state = system.states[name]
    return not state.running and not state.queue and not system.inbound(name)


def _overloaded(system: System) -> list[str]:
    """Names of the resources where tasks wait that no free slot takes."""
    return [
        name
        for name, state in system.states.items()
        if state.queue and len(state.queue) > system.opening(name)
    ]


def _may_gain(task: TaskRecord, system: System) -> bool:
    """Whether a running task could be faster elsewhere.

    Not where it fits best, unless it has to share or was sent away already.
    """
    here = task.assigned_to
    alone = not system.resources[here].shared and task.destination is None
    return not alone or system.best(task.row) != here


def _may_be_sent(task: TaskRecord, system: System) -> bool:
    """Whether the policy may choose, or change, the destination of a running task."""
    if task.id not in system.departing:
        return True
    return task.destination is not None and task.pinned is None


def _misfits(system: System) -> Iterator[tuple[TaskRecord, str]]:
    """List running tasks that fit another resource best, with that resource."""
    for task in running_tasks(system):
        best = system.best(task.row)
        if best not in (None, task.resource) and task.id not in system.departing:
            yield task, best
