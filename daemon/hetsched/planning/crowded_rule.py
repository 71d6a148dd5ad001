"""The rule of `contention-aware`: earliest expected end under the belief, bound late.

A task gets a resource when a slot is free, not before. It is placed where its expected end
and the harm to what runs are least; where that is a busy resource it waits for it. Running
tasks leave a place that became crowded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.ids import Nanoseconds
from hetsched.planning.crowded_futures import MOST_MOVES, Futures
from hetsched.planning.crowded_play import Play
from hetsched.planning.expected_finish import ExpectedFinish
from hetsched.planning.outlook import CHECKPOINT_S
from hetsched.policy import Place, Preempt, Wake
from hetsched.system import SECOND
from hetsched.tasks import TaskRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.contention import Loads
    from hetsched.planning.expected_finish import Prospective, RunningTask
    from hetsched.policy import Decision
    from hetsched.system import System

RULE_SOONEST = "it is expected to end soonest there, also counting the harm to others"
RULE_CROWDED = "where it runs is crowded: it is done sooner there"

CROWDED = 1.05
"""A task that is slowed down by less than this does not move for it."""
LEAST_WAIT_S = 0.001


@dataclass(frozen=True, slots=True)
class CrowdedRule:
    """The rule and its parameters.

    Attributes:
        look: waiting tasks that one reaction considers.
        harm_weight: weight of the seconds that other tasks take longer.
        least_gain: a move must save this share of the time left, twice that with each
            move that the task has made; 0: no task moves.
        only_crowded: whether tasks move only from where others slow them down, not from
            where they are slower alone.

    """

    look: int = 32
    harm_weight: float = 1.0
    least_gain: float = 0.1
    only_crowded: bool = False

    def decide(self, system: System) -> Iterator[Decision]:
        """Place what should start now, and move what should leave its place."""
        if not system.idle():
            return
        ends = ExpectedFinish(system)
        waits = math.inf
        if system.unplaced:
            for task, chosen in self.assignments(ends):
                if chosen.wait <= 0.0:
                    yield Place(task.id, chosen.resource, rule=RULE_SOONEST)
                else:
                    waits = min(waits, chosen.wait)
        if self.least_gain > 0.0:
            yield from self.leave_crowds(ends)
        if waits < math.inf and system.idle():
            pause = max(int(waits * SECOND), int(LEAST_WAIT_S * SECOND))
            yield Wake(system.now + pause)

    def assignments(
        self, ends: ExpectedFinish
    ) -> Iterator[tuple[TaskRecord, Prospective]]:
        """Yield waiting tasks in order, each with its best resource, which it takes."""
        waiting = ends.ready(self.look)
        for task in waiting:
            if not any(slots[0] <= 0.0 for slots in ends.free.values()):
                return
            chosen = self.best(ends.candidates(task))
            if chosen is not None:
                ends.take(chosen)
                yield task, chosen

    def best(self, candidates: list[Prospective]) -> Prospective | None:
        """Return the best of the resources that a task could go to."""
        return min(candidates, key=self.cost, default=None)

    def cost(self, candidate: Prospective) -> float:
        return candidate.finish + self.harm_weight * candidate.harm

    def leave_crowds(self, ends: ExpectedFinish) -> Iterator[Preempt]:
        """Move running tasks from crowded places to slots that nobody takes."""
        system = ends.system
        movable = [
            leaver
            for here, running in ends.running.items()
            for each in running
            if self._may_move(each, system)
            for leaver in [self._leaver(ends, each, here)]
            if leaver.may_gain()
        ]
        for name in system.idle() if movable else ():
            if ends.free[name][0] > 0.0 or system.resources[name].shared:
                continue
            offers = [
                (saved, each.task.sequence, each.task)
                for each in movable
                if each.here != name
                for saved in [each.saved(ends, name)]
                if saved > 0.0
            ]
            best = max(offers, default=None, key=lambda offer: (offer[0], -offer[1]))
            if best is not None:
                ends.take(ends.prospective(best[2], name))
                movable = [each for each in movable if each.task is not best[2]]
                ends.running[best[2].assigned_to] = [
                    each
                    for each in ends.running[best[2].assigned_to]
                    if each.task is not best[2]
                ]
                yield Preempt(best[2].id, name, RULE_CROWDED)

    def _may_move(self, each: RunningTask, system: System) -> bool:
        task = each.task
        return (
            task.id not in system.departing
            and task.preemptible
            and task.pinned is None
            and task.moves < MOST_MOVES
            and each.alone > 0.0
            and (
                each.left > CROWDED * each.alone
                or (not self.only_crowded and system.best(task.row) != task.resource)
            )
        )

    def _leaver(self, ends: ExpectedFinish, each: RunningTask, here: str) -> Leaver:
        """Compute what of a move does not depend on its destination."""
        task, system = each.task, ends.system
        until = CHECKPOINT_S
        if task.submitted.strips is not None:
            until = each.left / max(task.submitted.strips * task.left, 1.0)
        rest = each.alone / max(system.seconds(task.row, here), 1e-9)
        least = self.least_gain * float(2**task.moves) * each.left
        expected = system.fit(task.row).expected
        return Leaver(task, here, each.left - until - least, min(rest, 1.0), expected)


@dataclass(slots=True)
class Leaver:
    """A running task that may leave its place.

    Attributes:
        here: where it runs.
        margin: seconds that it still takes here after its next checkpoint, less those
            that a move must save.
        rest: share of the task that is left.
        expected: resource -> nanoseconds that the whole task takes there alone.

    """

    task: TaskRecord
    here: str
    margin: float
    rest: float
    expected: Mapping[str, Nanoseconds]

    def may_gain(self) -> bool:
        """Whether it would be quick enough alone, on the best of all resources."""
        if self.rest == 0.0 or not self.expected:
            return False
        return self._alone(min(self.expected.values())) < self.margin

    def saved(self, ends: ExpectedFinish, there: str) -> float:
        """Return the seconds saved beyond what a move must save; 0: it cannot be one."""
        whole = self.expected.get(there)
        if whole is None:
            return 0.0
        quickest = self._alone(whole)
        if quickest >= self.margin:  # nothing is quicker than alone
            return 0.0
        crowding = ends.system.crowding
        loads: Loads = ()
        if crowding is not None:
            loads = crowding.model.loads_of(self.task.row.type, there)
        slowed = quickest * ends.slowdown(loads, loads)
        return self.margin - slowed - ends.moving(self.task, self.here, there)

    def _alone(self, whole: Nanoseconds) -> float:
        return self.rest * whole / SECOND


BETTER = 0.02
"""Share by which a roll-out must be better than that of the rule."""
MOST_PLAYED = 1024
"""Tasks in all roll-outs of a reaction: a bound of its time."""


@dataclass(frozen=True, slots=True)
class LookaheadRule(CrowdedRule):
    """The rule, with the resources for the first tasks chosen by roll-outs.

    Attributes:
        futures: draws of other programs' loads; `seed`: of the draws.
        tasks: waiting tasks, and `places` resources for each, that are compared.

    """

    futures: int = 4
    tasks: int = 3
    places: int = 5
    seed: int = 0

    def assignments(
        self, ends: ExpectedFinish
    ) -> Iterator[tuple[TaskRecord, Prospective]]:
        """Yield waiting tasks in order, each with its best resource, which it takes."""
        waiting = ends.ready(self.look)
        futures: Futures | None = None
        forced: dict[int, int] = {}
        for task in waiting:
            if not any(slots[0] <= 0.0 for slots in ends.free.values()):
                return
            found = sorted(ends.candidates(task), key=self.cost)
            if not found:
                continue
            chosen = found[0]
            if len(found) > 1 and len(ends.chosen) < self.tasks:
                if futures is None:
                    futures = Futures(ends, waiting, self.futures, self.seed)
                chosen = self._compared(futures, task, found, forced)
            ends.take(chosen)
            yield task, chosen

    def _compared(
        self,
        futures: Futures,
        task: TaskRecord,
        found: list[Prospective],
        forced: dict[int, int],
    ) -> Prospective:
        """Return the best of several resources; `forced`: earlier choices, and this one."""
        number = futures.numbers.get(task.id)
        affordable = futures.affordable(min(self.places, len(found)), MOST_PLAYED)
        if number is None or affordable < 2:  # noqa: PLR2004  a choice
            return found[0]
        found = found[:affordable]
        places = [futures.machine.number_of[each.resource] for each in found]
        scores = [self._score(futures, forced | {number: place}) for place in places]
        chosen = min(range(len(found)), key=scores.__getitem__)
        if scores[chosen] >= scores[0] * (1.0 - BETTER):
            chosen = 0
        forced[number] = places[chosen]
        return found[chosen]

    def _score(self, futures: Futures, forced: dict[int, int]) -> float:
        """Return the sum over all futures of the jobs' ends, in seconds."""
        return sum(
            Play(futures, future, forced, self.least_gain).play()
            for future in futures.futures
        )
