"""The look-ahead of `finish-time`: simulates the node's future by several rules, and compares.

Rollouts by the paper's rules and by our own, each from the present state, return when all
work would be done; the rule that is done first decides this instant. As they are repeated
at each decision, the schedule is never worse than that of the best of these rules would
have been, if the expected times are right (rollout improvement, Bertsekas).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.planning.outlook import CHECKPOINT_S, Outlook
from hetsched.planning.rollout import (
    NEXT,
    SETTLES_S,
    Item,
    NodeState,
    Rollout,
    Started,
    Step,
)
from hetsched.planning.rollout_rules import ByEnds, Migrating, WorkConserving
from hetsched.system import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hetsched.ids import Nanoseconds
    from hetsched.system import ResourceState, System
    from hetsched.tasks import Row, TaskRecord

MOST_MOVES = 6
"""A task that has moved this many times, other than to try a resource, stays where it is."""
LEAST_BETTER = 0.001
"""By which share another step must be better than that of the best rule."""
COST_SPREAD = 0.25
"""Relative standard deviation of the cost of a move."""

LEAST_STRIPS = 1e-6

RULES: tuple[type[Rollout], ...] = (ByEnds, Migrating, Rollout, WorkConserving)


PLAYED_A_SECOND = 80
"""Tasks times rollouts played for each second until all is done: about a thousandth of it."""


def affordable(system: System, most: int) -> int:
    """Return how many tasks times rollouts a decision may play; 0: go by rules.

    Nothing where there are too many tasks to play each rule once, where the work is
    done too soon to be worth it, or where it is not known how long it takes.
    """
    count = 0
    for state in system.states.values():
        count += len(state.running) + len(state.queue.entries)
        if state.running and not state.usable:
            return 0
    if not 0 < count * len(RULES) <= most:
        return 0
    work, slots = 0.0, 0
    for state in system.usable_states():
        name, queue = state.resource.name, state.queue
        slots += state.slots
        for task in state.running.values():
            work += system.remaining(task, name)
        for row in queue.rows() if queue.entries else ():
            work += queue.count_of(row) * system.seconds(row, name)
    if work == math.inf:
        return 0
    budget = min(most, int(work / slots * PLAYED_A_SECOND))
    return budget if budget >= count * len(RULES) else 0


def settles_at(system: System) -> Nanoseconds | None:
    """Return when the next task that moved may move back."""
    return min(
        (
            at
            for state in system.usable_states()
            for task in state.running.values()
            if task.came_from is not None
            for at in [task.since + int(SETTLES_S * SECOND)]
            if at > system.now
        ),
        default=None,
    )


def all_at_best(system: System) -> bool:
    """Whether every task runs, or starts now, where it is done soonest, whatever others do.

    No rule and no other step would then end sooner.
    """
    for state in system.states.values():
        waiting, running = len(state.queue.entries), state.running
        if not waiting and not running:
            continue
        slots = 1 if state.resource.shared else state.slots
        if waiting > 1 or waiting + len(running) > slots or not state.usable:
            return False
        name = state.resource.name
        for task in running.values():
            if not _stays(task, system) or system.fit(task.row).best != name:
                return False
        for task in state.queue.entries:
            starts = task.last_resource is None
            if not starts or system.fit(task.row).best != name:
                return False
    return True


def _stays(task: TaskRecord, system: System) -> bool:
    """Whether a running task has come to its resource, and was not asked to leave."""
    arrives = task.progress_then > 0.0 and task.progress_at == task.since
    return not arrives and task.id not in system.departing


def any_moved(system: System) -> bool:
    """Whether any running task came from another resource, and may move back."""
    for state in system.states.values():
        for task in state.running.values():
            if task.came_from is not None:
                return True
    return False


class View:
    """The system as a `NodeState`, and which task and resource each number stands for."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.states = system.usable_states()
        self.names = [state.resource.name for state in self.states]
        self.links = [state.resource.link_bytes_per_s for state in self.states]
        self.numbers = {name: r for r, name in enumerate(self.names)}
        self.tasks: list[TaskRecord] = []
        self._no_copies = [0.0] * len(self.states)
        self._rows: dict[Row, tuple[list[float], list[float], int]] = {}
        self.node = NodeState(
            slots=[state.slots for state in self.states],
            shared=[state.resource.shared for state in self.states],
            items=[],
            running=[],
            queues=[[] for _ in self.states],
            fronts=[[] for _ in self.states],
        )
        for r, state in enumerate(self.states):
            for task in state.running.values():
                self._add_running(task, r, state)
            if state.queue:
                for task in state.queue.first(len(state.queue)):
                    lists = self.node.fronts if task.rank < 0 else self.node.queues
                    lists[r].append(self._add(task, task.left))

    def _add(self, task: TaskRecord, rest: float) -> int:
        item = self._item(task, rest)
        item.home = self.numbers.get(task.last_resource or "", -1)
        item.came_from = self.numbers.get(task.came_from or "", -1)
        item.settled = (task.since - self.system.now) / SECOND + SETTLES_S
        item.moves = MOST_MOVES - task.lasting_moves
        item.fixed = task.pinned is not None or item.moves <= 0
        self.node.items.append(item)
        self.tasks.append(task)
        return len(self.tasks) - 1

    def _item(self, task: TaskRecord, rest: float) -> Item:
        """Describe the rest of a task as if it had not started."""
        submitted = task.submitted
        whole, affinities, best = self._row(task.row)
        times = [seconds * rest if seconds < math.inf else seconds for seconds in whole]
        if submitted.strips is not None:
            strips = [max(submitted.strips * rest, LEAST_STRIPS)] * len(times)
        else:
            strips = [
                max(time / CHECKPOINT_S, LEAST_STRIPS) if time < math.inf else 1.0
                for time in times
            ]
        copies = self._no_copies
        if submitted.state_bytes:
            size = submitted.state_bytes
            copies = [size / link if link else 0.0 for link in self.links]
        return Item(
            times,
            affinities,
            best,
            strips,
            copies,
            submitted.migration_s,
            priority=submitted.priority,
            owner=submitted.owner,
        )

    def _row(self, row: Row) -> tuple[list[float], list[float], int]:
        """Return seconds of whole tasks, affinities and best resource, by number.

        They are kept, as many tasks have the same row.
        """
        known = self._rows.get(row)
        if known is None:
            fit = self.system.fit(row)
            expected = [fit.expected.get(name) for name in self.names]
            known = self._rows[row] = (
                [math.inf if ns is None else ns / SECOND for ns in expected],
                [fit.affinities.get(name, 0.0) for name in self.names],
                self.numbers.get(fit.best or "", -1),
            )
        return known

    def _add_running(self, task: TaskRecord, r: int, state: ResourceState) -> None:
        system = self.system
        expected = max(system.estimates.seconds(task.row, state.resource), 1e-9)
        elapsed = (system.now - task.progress_at) / SECOND
        if state.resource.shared:
            given = (system.now - state.attained_at) // len(state.running)
            elapsed = (state.attained + given - task.attained) / SECOND
        arriving = 0.0
        if task.progress_at == task.since and task.progress_then > 0.0:
            arriving = self._arriving(task, r, state)
            arriving, elapsed = (
                max(arriving - elapsed, 0.0),
                max(elapsed - arriving, 0.0),
            )
        rest = max(0.0, task.left - elapsed / expected)
        number = self._add(task, rest)
        item = self.node.items[number]
        if math.isinf(item.times[r]):  # an avoidance that began after the task
            item.times[r] = expected * rest
        destination = None
        if task.id in system.departing:
            destination = self.numbers.get(task.destination or "", -1)
            if destination >= 0 and math.isinf(item.times[destination]):
                destination = -1  # avoided by now: the policy will choose again
        self.node.running.append(
            Started(number, r, arriving, destination, task.makes_way)
        )

    def _arriving(self, task: TaskRecord, r: int, state: ResourceState) -> float:
        """Seconds from the start here to the first strip."""
        link = state.resource.link_bytes_per_s
        copying = task.submitted.state_bytes / link if link is not None else 0.0
        return copying + (task.submitted.migration_s if task.came_from else 0.0)


@dataclass(frozen=True, slots=True)
class Aim:
    """The preferences of a decision.

    Attributes:
        mean_weight: what the mean end of all tasks counts beside the end of the last.
        caution: see `sure_gain`; `least_gain`: as well.
        budget: tasks times rollouts that one decision may play.

    """

    mean_weight: float
    caution: float
    least_gain: float
    budget: int


def decide(system: System, aim: Aim) -> list[tuple[TaskRecord, str, Step]]:
    """Return the steps to take now, with the task and the resource of each."""
    view = View(system)
    view.node.mean_weight = aim.mean_weight
    view.node.complete()
    look = LookAhead(view, aim)
    look.improve()
    while doubtful := look.doubtful():
        for number in doubtful:
            view.node.items[number].fixed = True
        look.begin_again()
    return [
        (view.tasks[step.item], view.names[step.resource], step)
        for step in look.best.steps
    ]


class LookAhead:
    """Compares the steps that could be taken now, in a view of the system."""

    def __init__(self, view: View, aim: Aim) -> None:
        self.view = view
        self.aim = aim
        self.left = aim.budget
        self.count = max(len(view.node.items), 1)
        self.present = Rollout(view.node)
        """The node as it stands: not played."""
        self.begin_again()

    def begin_again(self) -> None:
        """Play every rule, as what may be moved has changed.

        Rules that cannot be better are not played, and count as if they were.
        """
        self.own = self.best = self.play(RULES[0])
        least, bound = self.best.score(), self.present.least_score()
        played = [self.best]
        for rule in RULES[1:]:
            if bound >= least or any(each.does_as(rule) for each in played):
                self.left -= self.count
                continue
            played.append(self.play(rule, limit=least))
            if played[-1].score() < least:
                least, self.best = played[-1].score(), played[-1]

    def play(
        self,
        rule: type[Rollout],
        first: Iterable[Step] = (),
        *,
        still: bool = False,
        limit: float = math.inf,
    ) -> Rollout:
        self.left -= self.count
        rollout = rule(self.view.node, self.present)
        rollout.play(first, still=still, limit=limit)
        return rollout

    def improve(self) -> None:
        """Try single steps other than those of the best rule, while the budget lasts.

        Steps that cannot be better are not played, and count as if they were.
        """
        rules = dict.fromkeys([type(self.best), type(self.own)])
        least = self.best.score() * (1.0 - LEAST_BETTER)
        bound = self.present.least_score()
        for rule in rules:
            for step in self.steps():
                # what is left is for making sure of moves
                if self.left < self.aim.budget // 4 + self.count:
                    return
                if bound >= least or self.is_known(rule, step):
                    self.left -= self.count
                    continue
                first = [step] if step else []
                tried = self.play(rule, first, still=step is None, limit=least)
                if tried.score() < least:
                    least, self.best = tried.score(), tried

    def is_known(self, rule: type[Rollout], step: Step | None) -> bool:
        """Whether a rollout that begins with a step, or with none, would be one played before.

        Our own rule goes on the same way after its first step as if that had been given.
        """
        if step is None and type(self.best) is rule and not self.best.steps:
            return True
        if rule is not type(self.own) or (step is not None and step.rule == NEXT):
            return False
        return step == next((s for s in self.own.steps if s.rule != NEXT), None)

    def doubtful(self) -> list[int]:
        """Find the started task whose move is least likely to be worth it.

        One at a time: of several that would leave a shared resource, one may stay. All
        that move, where the budget was spent twice.
        """
        moving = [step for step in self.best.steps if self._moves(step)]
        if self.left < -self.aim.budget:
            return [step.item for step in moving]
        doubts = [
            (self._gain(step) - self._sure_gain(step), step.item) for step in moving
        ]
        return [item for worth, item in sorted(doubts)[:1] if worth <= 0]

    def _moves(self, step: Step) -> bool:
        """Whether a step brings a started task to another resource.

        One that goes next has been brought there before: it waits there. Without what is
        fixed, `decide` comes to an end: each of its turns fixes one task more.
        """
        item = self.view.node.items[step.item]
        moves = step.rule != NEXT and item.home not in (-1, step.resource)
        return moves and not item.fixed

    def _gain(self, step: Step) -> float:
        """Seconds by which all is done sooner, or all tasks together are, by a move."""
        others = [s for s in self.best.steps if s is not step and s.rule != NEXT]
        item = self.view.node.items[step.item]
        item.fixed = True
        without = self.play(type(self.best), others)
        item.fixed = False
        best = self.best
        return max(without.end - best.end, without.total - best.total)

    def _sure_gain(self, step: Step) -> float:
        """Return the least saving with which a move is worth it, in seconds.

        A share of the work left that doubles with each move that the task has made, and
        a multiple of the standard deviation of the times in question, more with each move.
        If a resource is only tried, a multiple of the time lost if it is slow takes the
        place of the latter. Moves by which others were tried do not count.
        """
        view, aim = self.view, self.aim
        task = view.tasks[step.item]
        item = view.node.items[step.item]
        here, there = item.home, step.resource
        moves = task.lasting_moves
        least = aim.least_gain * 2**moves * item.times[here]
        trying = self._trying(step)
        if trying:
            return float(least + trying)
        cost = item.copies[here] + item.moving + item.copies[there]
        deviation = math.hypot(
            self._sooner(task, view.names[here]),
            view.system.remaining_spread(task, view.names[there]),
            COST_SPREAD * cost,
        )
        sureness = aim.caution * (0.25 + 0.5 * moves)
        return float(least + sureness * deviation)

    def _trying(self, step: Step) -> float:
        """Return `Outlook.trying` of a step; infinite, too, if another step goes there."""
        view, aim = self.view, self.aim
        name = view.names[step.resource]
        outlook = Outlook(view.system, aim.caution, 1.0)
        trying = outlook.trying(view.tasks[step.item], name)
        others = [s for s in self.best.steps if s is not step and s.rule != NEXT]
        if trying and step.resource in [other.resource for other in others]:
            return math.inf
        return trying

    def _sooner(self, task: TaskRecord, name: str) -> float:
        """Return by how many seconds a task may end sooner on `name` than expected.

        A standard deviation, and never all of the time left: an estimate that may be
        wrong by a factor of 20 keeps no task on the resource that looks slower.
        """
        left = self.view.system.remaining(task, name)
        deviation = self.view.system.remaining_spread(task, name)
        return -left * math.expm1(-deviation / left) if left else 0.0

    def steps(self) -> Iterator[Step | None]:
        """List single steps that could be taken now; None: nothing."""
        now = self.present
        idle = now.idle()
        if idle:
            yield None
        yield from self._helps(idle)
        for r in now.range:
            queue = now.queues[r]
            if 0 < now.node.slots[r] - len(now.on[r]) < len(queue):
                for i in self._unlike(now.in_turn(r)):
                    yield Step(i, r, rule=NEXT)
        yield from self._moves_to(idle)

    def _helps(self, idle: list[int]) -> Iterator[Step]:
        """List what waits elsewhere and could go to idle resources."""
        node = self.view.node
        for r in idle:
            for donor, queue in enumerate(node.queues):
                if donor != r:
                    for i in self._unlike([*node.fronts[donor], *queue]):
                        if node.items[i].times[r] < math.inf:
                            yield Step(i, r, rule="help")

    def _moves_to(self, idle: list[int]) -> Iterator[Step]:
        """List what runs elsewhere and could go to idle resources."""
        for r in idle:
            for started in self.view.node.running:
                item = self.view.node.items[started.item]
                leaves = started.destination is not None
                there = started.destination if leaves else started.resource
                # a task that is about to be held or aborted goes nowhere
                if not item.fixed and there not in (r, -1) and item.times[r] < math.inf:
                    yield Step(started.item, r, preempts=True, rule="sooner")

    def _unlike(self, queue: list[int]) -> list[int]:
        """List the first of each row and progress."""
        found: dict[object, int] = {}
        for i in queue:
            task = self.view.tasks[i]
            found.setdefault((task.row, task.progress), i)
        return list(found.values())
