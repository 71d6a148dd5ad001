"""Rollouts: the future of a node as it stands, played to its end with expected times.

List scheduling with what the simulator models too: slots, shared processors, checkpoints,
copies of states. `lookahead` makes a `NodeState` of the system, in which items and
resources are numbers and times are seconds; a `Rollout` plays it. Which decisions are
made meanwhile is a subclass's own (`rollout_rules`). It must take microseconds a task.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


TINY = 1e-9
SETTLES_S = 1.0
"""As in loesch-2016: a task just moved does not move back within this."""

ARRIVING, COMPUTING, LEAVING = range(3)
STEPS_OF_ITEM = 40
"""A rollout with more instants than this for each item is broken off: its rule thrashes."""
NEXT = "next"
"""Rule of a step that lets an item go next where it waits."""


@dataclass(slots=True)
class Item:
    """A task.

    Attributes:
        times: seconds that the rest of it takes alone on each resource; infinite: cannot.
        affinities: as in loesch-2016; `best`: the resource with the highest.
        strips: strips in the rest of it, on each resource.
        copies: seconds to copy its state to or from each resource.
        moving: seconds that a move takes in addition.
        home: resource that has its state; -1: it has not started.
        came_from: where it was before; -1: nowhere. `settled`: when it may go back there.
        moves: how often it may still go elsewhere. `fixed`: it may not.
    """

    times: list[float]
    affinities: list[float]
    best: int
    strips: list[float]
    copies: list[float]
    moving: float = 0.0
    home: int = -1
    came_from: int = -1
    settled: float = 0.0
    priority: int = 0
    moves: int = 0
    fixed: bool = False


@dataclass(slots=True)
class Started:
    """A running task, as the node stands.

    Attributes:
        arriving: seconds until it computes.
        destination: where it was asked to go; -1: nowhere, None: it was not asked.
    """

    item: int
    resource: int
    arriving: float = 0.0
    destination: int | None = None
    makes_way: bool = False


@dataclass(slots=True)
class NodeState:
    """A node as it stands: what runs, and what waits in which order."""

    slots: list[int]
    shared: list[bool]
    items: list[Item]
    running: list[Started]
    queues: list[list[int]]
    fronts: list[list[int]] = field(default_factory=list)
    """Those that go before the queue: they yielded, and were sent there."""


@dataclass(frozen=True, slots=True)
class Step:
    """A decision: `item` goes to `resource`; from a slot if it runs, else from a queue."""

    item: int
    resource: int
    preempts: bool = False
    makes_way: bool = False
    rule: str = ""


class RolloutRun:
    """One segment of an item: from its start in a slot until it leaves the slot."""

    __slots__ = (
        "asked",
        "destination",
        "item",
        "left",
        "makes_way",
        "phase",
        "resource",
        "stop",
    )

    def __init__(self, item: int, resource: int) -> None:
        self.item = item
        self.resource = resource
        self.phase = ARRIVING
        self.left = 0.0
        self.stop = 0.0
        self.asked = False
        self.destination = -1
        self.makes_way = False


class Rollout:
    """A simulation of a node; without a subclass it follows the rule of `affinity`.

    Attributes:
        end: seconds until the last item is done.
        total: sum of the seconds until each is done.
        steps: what the rule decided at the first instant.
    """

    def __init__(self, node: NodeState) -> None:
        self.node = node
        self.items = node.items
        self.now = 0.0
        self.end = 0.0
        self.total = 0.0
        self.steps: list[Step] = []
        self.rests = [1.0] * len(node.items)
        self.homes = [item.home for item in node.items]
        self.came_from = [item.came_from for item in node.items]
        self.settled = [item.settled for item in node.items]
        self.moves = [item.moves for item in node.items]
        count = len(node.slots)
        self.range = range(count)
        self.queues = [list(queue) for queue in node.queues]
        self.fronts = [list(front) for front in node.fronts]
        self.on: list[list[RolloutRun]] = [[] for _ in self.range]
        self.computing = [0] * count
        self.leaving = [0] * count
        self.inbound = [0] * count
        self.making_way = [0] * count
        for started in node.running:
            self._set(started)

    def _set(self, started: Started) -> None:
        run = RolloutRun(started.item, started.resource)
        self.on[started.resource].append(run)
        if started.arriving > 0:
            run.left = started.arriving
        else:
            self._compute(run)
        if started.destination is not None:
            self._ask(run, started.destination, makes_way=started.makes_way)

    # ------------------------------------------------------------ play

    def play(self, first: Iterable[Step] = (), *, still: bool = False) -> None:
        """Play to the end; `first`: taken at once, `still`: and nothing else then."""
        for step in first:
            self.take(step)
        if not still:
            self.decide()
        self._dispatch()
        noted, self.steps = self.steps, []
        for _ in range(STEPS_OF_ITEM * (len(self.items) + 1)):
            if not self._advance():
                break
            self.decide()
            self._dispatch()
        else:
            self.end = math.inf
        self.steps = noted

    def take(self, step: Step) -> None:
        """Carry a decision out."""
        self.steps.append(step)
        if step.preempts:
            run = next(run for on in self.on for run in on if run.item == step.item)
            self._ask(run, step.resource, makes_way=step.makes_way)
            return
        for queue in self.queues + self.fronts:
            if step.item in queue:
                queue.remove(step.item)
        if step.rule == NEXT:
            self.fronts[step.resource].append(step.item)
        else:
            self.queues[step.resource].append(step.item)

    def _advance(self) -> bool:
        """Go on to the next instant at which a slot becomes free; False: none does.

        The policy is called for nothing else: not for the first strip after a move.
        """
        while any(self.on):
            if self._go_on():
                return True
        return False

    def _go_on(self) -> bool:
        """Advance to the next event; return whether it made a slot free."""
        shared, computing = self.node.shared, self.computing
        runs = [
            (run, computing[r] if shared[r] and run.phase == COMPUTING else 1)
            for r in self.range
            for run in self.on[r]
        ]
        least = min([run.left * pace for run, pace in runs])
        if math.isinf(least):  # nothing that runs comes to an end
            self.end = math.inf
            self.on = [[] for _ in self.range]
            return False
        self.now += least
        due = []
        for run, pace in runs:
            run.left -= least / pace
            if run.left <= TINY:
                due.append(run)
        freed = [self._turn(run) for run in due]
        return any(freed)

    def _turn(self, run: RolloutRun) -> bool:
        """End the phase of a run; return whether it leaves its slot."""
        r, i = run.resource, run.item
        if run.phase == ARRIVING:
            if run.asked:
                return self._leave(run)
            self._compute(run)
            return False
        if run.phase == LEAVING:
            self._yield(run)
            return True
        self.computing[r] -= 1
        self.rests[i] = run.stop
        if run.stop > TINY:
            return self._leave(run)
        self._forget(run)
        self.end = max(self.end, self.now)
        self.total += self.now
        return True

    def _compute(self, run: RolloutRun) -> None:
        run.phase = COMPUTING
        run.stop = 0.0
        run.left = self.items[run.item].times[run.resource] * self.rests[run.item]
        self.computing[run.resource] += 1

    def _leave(self, run: RolloutRun) -> bool:
        """Begin to copy the state out; return whether that takes no time."""
        copy = self.items[run.item].copies[run.resource]
        if copy > 0:
            run.phase = LEAVING
            run.left = copy
            return False
        self._yield(run)
        return True

    def _yield(self, run: RolloutRun) -> None:
        self._forget(run)
        if run.destination >= 0:
            self.fronts[run.destination].insert(0, run.item)

    def _forget(self, run: RolloutRun) -> None:
        r = run.resource
        self.on[r].remove(run)
        if run.asked:
            self.leaving[r] -= 1
            self.making_way[r] -= run.makes_way
            if run.destination >= 0:
                self.inbound[run.destination] -= 1

    def _ask(self, run: RolloutRun, destination: int, *, makes_way: bool) -> None:
        """Ask a run to yield at its next checkpoint, and go to another resource."""
        r = run.resource
        if run.asked:
            if run.destination >= 0:
                self.inbound[run.destination] -= 1
            if destination >= 0:
                self.inbound[destination] += 1
            run.destination = destination
            return
        run.asked = True
        run.destination = destination
        run.makes_way = makes_way
        self.leaving[r] += 1
        self.making_way[r] += makes_way
        if destination >= 0:
            self.inbound[destination] += 1
        if run.phase != COMPUTING:
            return
        item = self.items[run.item]
        whole = item.times[r]
        if whole <= 0:
            return
        rest = run.left / whole
        strips = item.strips[r]
        run.stop = max(0.0, math.floor(rest * strips + 1e-6) / strips)
        run.left = max(0.0, (rest - run.stop) * whole)

    def _dispatch(self) -> None:
        """Let free slots take what goes first."""
        slots = self.node.slots
        for r in self.range:
            on, front, queue = self.on[r], self.fronts[r], self.queues[r]
            while len(on) < slots[r] and (front or queue):
                i = front.pop(0) if front else self.choose_next(r)
                self._start(i, r)

    def _start(self, i: int, r: int) -> None:
        item = self.items[i]
        run = RolloutRun(i, r)
        home = self.homes[i]
        arriving = 0.0
        if home >= 0:
            arriving = item.copies[r]
            if home != r:
                arriving += item.moving
                self.came_from[i] = home
                self.moves[i] -= 1
                self.settled[i] = self.now + SETTLES_S
        self.homes[i] = r
        self.on[r].append(run)
        if arriving > 0:
            run.left = arriving
        else:
            self._compute(run)

    def stays(self, i: int) -> bool:
        """Whether an item may not be sent elsewhere: not at all, or not again."""
        return self.items[i].fixed or (self.moves[i] <= 0 and self.homes[i] >= 0)

    # ------------------------------------------------------------ what a rule decides

    def decide(self) -> None:
        """Take the steps of this instant; called before free slots are filled."""

    def choose_next(self, r: int) -> int:
        """Take what goes next out of the queue of a resource with a free slot."""
        return self.queues[r].pop(0)

    def waiting(self, r: int) -> list[int]:
        """List the waiting items that free slots do not take next."""
        return self.queues[r][self.taken(r) :]

    def taken(self, r: int) -> int:
        """Count the waiting items that free slots, or slots about to be, take next."""
        free = self.node.slots[r] - len(self.on[r]) + self.making_way[r]
        return max(free - len(self.fronts[r]), 0)

    # ------------------------------------------------------------ what is expected

    def left(self, run: RolloutRun) -> float:
        """Seconds that a run still computes alone, to the end of its item."""
        whole = self.items[run.item].times[run.resource]
        if run.phase == COMPUTING:
            return run.left + run.stop * whole
        return self.rests[run.item] * whole

    def rest(self, run: RolloutRun) -> float:
        """Share of an item that is still to be done."""
        whole = self.items[run.item].times[run.resource]
        if run.phase == COMPUTING and whole > 0:
            return run.left / whole + run.stop
        return self.rests[run.item]

    def dry(self, r: int) -> float:
        """Seconds until a resource has done what runs and waits there.

        No task is shorter for having more slots beside it.
        """
        items, rests = self.items, self.rests
        slots = 1 if self.node.shared[r] else self.node.slots[r]
        work = longest = 0.0
        for run in self.on[r]:
            left = self.left(run)
            work += left
            longest = max(longest, left)
        for queue in (self.fronts[r], self.queues[r]):
            for i in queue:
                left = items[i].times[r] * rests[i]
                work += left
                longest = max(longest, left)
        return max(work / slots, longest)

    def arriving(self, i: int, r: int, home: int) -> float:
        """Seconds of a slot before an item computes there, where it was copied out."""
        if home < 0:
            return 0.0
        item = self.items[i]
        return item.copies[r] + (item.moving if home != r else 0.0)

    def idle(self) -> list[int]:
        """List the resources with a slot that no item takes or is about to take."""
        slots = self.node.slots
        return [
            r
            for r in self.range
            if slots[r]
            - len(self.on[r])
            - len(self.queues[r])
            - len(self.fronts[r])
            - self.inbound[r]
            > 0
        ]
