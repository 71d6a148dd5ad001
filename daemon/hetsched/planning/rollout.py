"""Rollouts: the future of a node as it stands, played to its end with expected times.

List scheduling with what the simulator models too: slots, shared processors, checkpoints,
copies of states. `lookahead` makes a `NodeState` of the system, in which items and
resources are numbers and times are seconds; a `Rollout` plays it. Which decisions are
made meanwhile is a subclass's own (`rollout_rules`). It must take microseconds a task.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

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

NONE: list[int] = []
"""No items, or no resources."""

SLACK = 1e-9
SLACK_S = 1e-6
"""By how much, relative and in seconds, rounding and `TINY` may make an end sooner."""


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
        owner: whose it is.
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
    owner: int = 0


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
    mean_weight: float = 0.0
    """Weight of the mean end of all items beside the last end."""
    least: list[float] = field(default_factory=list)
    """Seconds that the rest of each item takes at least; 0 where it cannot run."""
    one_priority: bool = False
    """Whether all items have the same priority."""
    one_owner: bool = False
    """Whether all items are of the same owner."""
    sharing: bool = False
    """Whether tasks share any resource."""
    settling: list[int] = field(default_factory=list)
    """The resource on which no rule has a reason to move an item: it fits best there, and is
    done soonest; -1: there is none."""
    homes: list[int] = field(default_factory=list)
    came_from: list[int] = field(default_factory=list)
    settled: list[float] = field(default_factory=list)
    moves: list[int] = field(default_factory=list)
    """These four of all items: each rollout begins with copies."""
    spare: list[int] = field(default_factory=list)
    """Slots of each resource that no item has or is about to take."""

    def complete(self) -> None:
        """Compute what follows from the items; called before the first rollout."""
        self.homes = [item.home for item in self.items]
        self.came_from = [item.came_from for item in self.items]
        self.settled = [item.settled for item in self.items]
        self.moves = [item.moves for item in self.items]
        least = [min(item.times) for item in self.items]
        self.least = [0.0 if math.isinf(seconds) else seconds for seconds in least]
        self.one_priority = len({item.priority for item in self.items}) == 1
        self.one_owner = len({item.owner for item in self.items}) == 1
        self.sharing = True in self.shared
        self.settling = [
            item.best if item.best >= 0 and item.times[item.best] == soonest else -1
            for item, soonest in zip(self.items, least, strict=True)
        ]
        lists = zip(self.slots, self.queues, self.fronts, strict=True)
        self.spare = [slots - len(queue) - len(front) for slots, queue, front in lists]
        for started in self.running:
            self.spare[started.resource] -= 1


class Step(NamedTuple):
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

    def copy(self) -> RolloutRun:
        other = RolloutRun(self.item, self.resource)
        other.phase = self.phase
        other.left = self.left
        other.stop = self.stop
        if self.asked:
            other.asked = True
            other.destination = self.destination
            other.makes_way = self.makes_way
        return other


def _resource_of(run: RolloutRun) -> int:
    return run.resource


class Rollout:
    """A simulation of a node; without a subclass it follows the rule of `affinity`.

    Attributes:
        end: seconds until the last item is done.
        total: sum of the seconds until each is done.
        steps: what the rule decided at the first instant.
        plain: whether nothing was decided at all, but what `affinity` does: items go
            where they wait, in their order.
        preempted: whether any run was asked to leave.
    """

    def __init__(self, node: NodeState, present: Rollout | None = None) -> None:
        self.node = node
        self.items = items = node.items
        self.now = self.end = self.total = 0.0
        self.steps: list[Step] = []
        self.plain, self.preempted = True, False
        self.unfinished = len(items)
        self.waiting_items = len(items) - len(node.running)
        self.sharing = node.sharing
        self.rests = [1.0] * len(items)
        self.homes = node.homes.copy()
        # copied when an item moves
        self.came_from = node.came_from
        self.settled = node.settled
        self.moves = node.moves
        self.range = range(len(node.slots))
        self.queues = [queue.copy() for queue in node.queues]
        self.fronts = [front.copy() for front in node.fronts]
        self.runs: list[RolloutRun] = []
        """All runs, in the order in which they started."""
        self.on: list[list[RolloutRun]] = [[] for _ in self.range]
        if present is None:
            self._begin()
        else:
            self._begin_as(present)

    def _begin(self) -> None:
        """Take on what runs from the node."""
        node = self.node
        self.computing = [0] * len(node.slots)
        self.leaving = self.computing.copy()
        self.inbound = self.computing.copy()
        self.making_way = self.computing.copy()
        self.free = node.slots.copy()
        """Slots without an item."""
        self.spare = node.spare.copy()
        """Slots that no item takes or is about to take; negative: items wait."""
        for started in node.running:
            self._set(started)

    def _begin_as(self, present: Rollout) -> None:
        """Take on what runs from a rollout of the same node that was not played."""
        self.computing = present.computing.copy()
        self.leaving = present.leaving.copy()
        self.inbound = present.inbound.copy()
        self.making_way = present.making_way.copy()
        self.free = present.free.copy()
        self.spare = present.spare.copy()
        for each in present.runs:
            run = each.copy()
            self.runs.append(run)
            self.on[run.resource].append(run)

    def _set(self, started: Started) -> None:
        run = RolloutRun(started.item, started.resource)
        self.runs.append(run)
        self.on[run.resource].append(run)
        self.free[run.resource] -= 1
        if started.arriving > 0:
            run.left = started.arriving
        else:
            self._compute(run)
        if started.destination is not None:
            self._ask(run, started.destination, makes_way=started.makes_way)

    # ------------------------------------------------------------ play

    def play(
        self,
        first: Iterable[Step] = (),
        *,
        still: bool = False,
        limit: float = math.inf,
    ) -> None:
        """Play to the end.

        Args:
            first: taken at once; `still`: and nothing else then.
            limit: once the score cannot be below it any more, the rollout is broken
                off, with an infinite end.

        """
        for step in first:
            self.take(step)
        if not still:
            self.decide()
        self._dispatch()
        noted, self.steps = self.steps, []
        if not self._play_on(limit):
            self.end = math.inf
        self.steps = noted

    def _play_on(self, limit: float) -> bool:
        """Play the rest; return whether it came to an end."""
        checked = 1
        for instant in range(1, STEPS_OF_ITEM * (len(self.items) + 1) + 1):
            if not self.waiting_items and self._is_settled():
                self._finish()
                return True
            if instant == checked and limit < math.inf:
                if self.least_score(self._quiet()) >= limit:
                    return False
                checked *= 2  # the bound takes as long as many instants
            if not self._advance():
                return True
            self.decide()
            if self.waiting_items:
                self._dispatch()
        return False

    def _is_settled(self) -> bool:
        """Whether all that runs ends where it is, by every rule, if nothing waits."""
        settling = self.node.settling
        for run in self.runs:
            if run.asked or run.resource != settling[run.item]:
                return False
        return not self.sharing

    def _finish(self) -> None:
        """Let what runs come to its end, where nothing else happens meanwhile.

        The sums are those of `_advance`: by others, scores that are equal would differ.
        """
        while self.runs:
            due = self._due()
            for run in due:
                if run.phase == ARRIVING:
                    self._compute(run)
                else:
                    self.runs.remove(run)
                    self.end = self.now
                    self.total += self.now

    def score(self) -> float:
        """Return the end of all, plus a small weight times the mean end of the items."""
        count = max(len(self.items), 1)
        return self.end + self.node.mean_weight * self.total / count

    def take(self, step: Step) -> None:
        """Carry a decision out."""
        self.plain = False
        self.steps.append(step)
        if step.preempts:
            self.preempted = True
            for run in self.runs:
                if run.item == step.item:
                    self._ask(run, step.resource, makes_way=step.makes_way)
                    return
        self._withdraw(step.item)
        lists = self.fronts if step.rule == NEXT else self.queues
        lists[step.resource].append(step.item)
        self.spare[step.resource] -= 1

    def _withdraw(self, i: int) -> None:
        """Remove an item from where it waits."""
        for lists in (self.queues, self.fronts):
            for r in self.range:
                if i in lists[r]:
                    lists[r].remove(i)
                    self.spare[r] += 1
                    return

    def _advance(self) -> bool:
        """Go on to the next instant at which a slot becomes free; False: none does.

        The policy is called for nothing else: not for the first strip after a move.
        """
        freed = False
        while self.unfinished and self.runs and not freed:
            due = self._due_sharing() if self.sharing else self._due()
            if len(due) > 1:
                due.sort(key=_resource_of)
            for run in due:
                if self._turn(run):
                    freed = True
        return freed and self.unfinished > 0

    def _due(self) -> list[RolloutRun]:
        """Advance to the next event; return the runs whose phases end, none: none ever do."""
        least = min([run.left for run in self.runs])
        if least == math.inf:
            return self._stop()
        self.now += least
        due = []
        for run in self.runs:
            run.left -= least
            if run.left <= TINY:
                due.append(run)
        return due

    def _due_sharing(self) -> list[RolloutRun]:
        """Advance to the next event, as `_due`, where runs may share a resource."""
        runs = self.runs
        shared, computing = self.node.shared, self.computing
        paces = [
            computing[run.resource]
            if shared[run.resource] and run.phase == COMPUTING
            else 1
            for run in runs
        ]
        least = min([run.left * pace for run, pace in zip(runs, paces, strict=True)])
        if least == math.inf:
            return self._stop()
        self.now += least
        due = []
        for run, pace in zip(runs, paces, strict=True):
            run.left -= least / pace
            if run.left <= TINY:
                due.append(run)
        return due

    def _stop(self) -> list[RolloutRun]:
        """Stop where nothing that runs comes to an end."""
        self.end = math.inf
        self.runs = []
        return []

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
        self.end = self.now
        self.total += self.now
        self.unfinished -= 1
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
            self.waiting_items += 1
            self.spare[run.destination] -= 1
        else:
            self.unfinished -= 1

    def _forget(self, run: RolloutRun) -> None:
        r = run.resource
        self.runs.remove(run)
        self.on[r].remove(run)
        self.free[r] += 1
        self.spare[r] += 1
        if run.asked:
            self.leaving[r] -= 1
            self.making_way[r] -= run.makes_way
            self._expect(run.destination, -1)

    def _expect(self, destination: int, change: int) -> None:
        """Count an item that was asked to go to a resource, or (-1) is not to any more."""
        if destination >= 0:
            self.inbound[destination] += change
            self.spare[destination] -= change

    def _ask(self, run: RolloutRun, destination: int, *, makes_way: bool) -> None:
        """Ask a run to yield at its next checkpoint, and go to another resource."""
        r = run.resource
        if run.asked:
            self._expect(run.destination, -1)
            self._expect(destination, 1)
            run.destination = destination
            return
        run.asked = True
        run.destination = destination
        run.makes_way = makes_way
        self.leaving[r] += 1
        self.making_way[r] += makes_way
        self._expect(destination, 1)
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
        free = self.free
        for r in self.range:
            if free[r] > 0:
                front, queue = self.fronts[r], self.queues[r]
                while free[r] > 0 and (front or queue):
                    i = front.pop(0) if front else self.choose_next(r)
                    self.waiting_items -= 1
                    self._start(i, r)

    def _start(self, i: int, r: int) -> None:
        """Let an item, already out of its queue, have a free slot."""
        item = self.items[i]
        run = RolloutRun(i, r)
        home = self.homes[i]
        arriving = 0.0
        if home >= 0:
            arriving = item.copies[r]
            if home != r:
                arriving += item.moving
                self._note_move(i, home)
        self.homes[i] = r
        self.runs.append(run)
        self.on[r].append(run)
        self.free[r] -= 1
        if arriving > 0:
            run.left = arriving
        else:
            self._compute(run)

    def _note_move(self, i: int, home: int) -> None:
        """Note that an item goes on elsewhere than where its state is."""
        if self.moves is self.node.moves:
            self.came_from = self.came_from.copy()
            self.settled = self.settled.copy()
            self.moves = self.moves.copy()
        self.came_from[i] = home
        self.moves[i] -= 1
        self.settled[i] = self.now + SETTLES_S

    def least_score(self, quiet: float = 0.0) -> float:
        """Return what the score will be at least, wherever the items left go from now on.

        None is done before its rest would be alone where it is fastest.

        Args:
            quiet: seconds for which all runs go on, and nothing that waits starts.

        """
        least, rests, items = self.node.least, self.rests, self.items
        longest, total = 0.0, self.total
        now = self.now + quiet
        for run in self.runs:
            if run.destination >= 0 or not run.asked:
                i = run.item
                rest, whole = rests[i], items[i].times[run.resource]
                if run.phase == COMPUTING and whole > 0:
                    rest = (run.left - quiet) / whole + run.stop
                left = rest * least[i]
                total += now + left
                longest = max(longest, left)
        if self.waiting_items:
            for queue in self.fronts + self.queues:
                for i in queue:
                    left = rests[i] * least[i]
                    total += now + left
                    longest = max(longest, left)
        score = now + longest + self.node.mean_weight * total / max(len(items), 1)
        return score * (1.0 - SLACK) - SLACK_S

    def _quiet(self) -> float:
        """Return for how many seconds all runs go on, when free slots are taken."""
        if self.sharing or not self.runs:
            return 0.0
        least = min([run.left for run in self.runs])
        return least if least < math.inf else 0.0

    def does_as(self, rule: type[Rollout]) -> bool:
        """Whether a rollout by another rule would do the same as this one did."""
        return rule is Rollout and self.plain

    def stays(self, i: int) -> bool:
        """Whether an item may not be sent elsewhere: not at all, or not again."""
        return self.items[i].fixed or (self.moves[i] <= 0 and self.homes[i] >= 0)

    # ------------------------------------------------------------ what a rule decides

    def decide(self) -> None:
        """Take the steps of this instant; called before free slots are filled."""

    def choose_next(self, r: int) -> int:
        """Take what goes next out of the queue of a resource with a free slot."""
        return self.queues[r].pop(0)

    def in_turn(self, r: int) -> list[int]:
        """List the waiting items of which one may go next.

        Those of the highest priority, and of the owner whose item is the first of these:
        the order of queues is that of fair shares.
        """
        queue, items, node = self.queues[r], self.items, self.node
        if not node.one_priority:
            most = max(items[i].priority for i in queue)
            queue = [i for i in queue if items[i].priority == most]
        if not node.one_owner:
            owner = items[queue[0]].owner
            queue = [i for i in queue if items[i].owner == owner]
        return queue

    def waiting(self, r: int) -> list[int]:
        """List the waiting items that free slots do not take next."""
        return self.queues[r][self.taken(r) :]

    def taken(self, r: int) -> int:
        """Count the waiting items that free slots, or slots about to be, take next."""
        free = self.free[r] + self.making_way[r]
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
        lefts = [self.left(run) for run in self.on[r]]
        lefts += [items[i].times[r] * rests[i] for i in self.fronts[r]]
        lefts += [items[i].times[r] * rests[i] for i in self.queues[r]]
        work = 0.0
        for left in lefts:
            work += left
        return max(work / slots, *lefts) if lefts else 0.0

    def arriving(self, i: int, r: int, home: int) -> float:
        """Seconds of a slot before an item computes there, where it was copied out."""
        if home < 0:
            return 0.0
        item = self.items[i]
        return item.copies[r] + (item.moving if home != r else 0.0)

    def idle(self) -> list[int]:
        """List the resources with a slot that no item takes or is about to take."""
        spare = self.spare
        if max(spare) <= 0:
            return NONE
        return [r for r in self.range if spare[r] > 0]
