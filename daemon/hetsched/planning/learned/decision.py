"""The input of the network for a decision: features of tasks, processors, pairs and of all.

Times are divided by a unit, so that a network trained with tasks of seconds also sees tasks
of milliseconds or hours: ten times the mean of the quickest times of the tasks that it sees,
divided by `USUAL_S`. `docs/formats.md` lists the features; a change of them is a new
version in `weights`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hetsched.planning.expected_finish import waiting_without_place
from hetsched.planning.learned.prospects import (
    KINDS,
    UNKNOWN_LOAD,
    NodeArrays,
    NodeInstant,
    ProspectCache,
    Prospects,
    probabilities_of,
)
from hetsched.planning.learned.weights import PAIR, PROCESSOR, TASK
from hetsched.system import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetsched.crowding import Crowding
    from hetsched.graphs import GraphNode
    from hetsched.ids import TaskId
    from hetsched.planning.expected_finish import ExpectedFinish
    from hetsched.planning.owners_in_turn import OwnersInTurn
    from hetsched.tasks import TaskRecord

    Floats: TypeAlias = NDArray[np.float64]
    Indices: TypeAlias = NDArray[np.intp]

READY = 8
"""Waiting tasks that a decision chooses among."""
MOST_TASKS = 64
"""Tasks that the network sees: those, tasks that run, and two rounds of their children."""
MOST_CHILDREN = 16
"""Children of one task that it sees."""
ROUNDS = 2
USUAL_S = 4.5
"""Mean of the quickest times of the tasks in the family of the paper, in seconds."""
BOUND = 10.0
"""Features are cut at this: nothing that was never seen may dominate a score."""
SHOWN = 5
"""Features of a processor that describe the loads of other programs."""


@dataclass(slots=True)
class DecisionInput:
    """The input of the network.

    Attributes:
        tasks, processors, world: features.
        parents, children: numbers of tasks that depend on each other.
        pairs: features of waiting tasks on free processors; `of_task`, `of_processor`:
            their numbers.
        may_wait: whether it may choose to start nothing now.
        rule: what `contention-aware` chooses: a pair, or the number of pairs: it waits.

    """

    tasks: Floats
    parents: Indices
    children: Indices
    processors: Floats
    pairs: Floats
    of_task: Indices
    of_processor: Indices
    world: Floats
    may_wait: bool
    rule: int


@dataclass(slots=True)
class DecisionOffer:
    """A decision that can be taken now.

    Attributes:
        tasks: that wait, in order; `names`: of the resources.

    """

    seen: DecisionInput
    tasks: list[TaskRecord]
    names: tuple[str, ...]

    def pair(self, choice: int) -> tuple[TaskRecord, str] | None:
        """Return the task and the resource of a choice; None: it waits."""
        if choice >= len(self.seen.pairs):
            return None
        task = self.tasks[self.seen.of_task[choice]]
        return task, self.names[self.seen.of_processor[choice]]


class DecisionMaker:
    """Makes the inputs of decisions.

    Args:
        belief: whether it sees the belief; otherwise counters as they were read last.

    """

    def __init__(self, *, belief: bool) -> None:
        self._belief = belief
        self._cache = ProspectCache()
        self._node: NodeInstant | None = None

    def offer(self, ends: ExpectedFinish, turns: OwnersInTurn) -> DecisionOffer | None:
        """Return what can be decided now; None: nothing waits that could start."""
        if not any(slots[0] <= 0.0 for slots in ends.free.values()):
            return None
        ready = _ready_in_turn(ends, turns)
        if not ready:
            return None
        instant = self._instant(ends)
        node = instant.node
        prospects = self._cache.prospects(ready, instant)
        free = np.isfinite(prospects.alone) & (prospects.wait <= 0.0)
        of_task, of_processor = np.nonzero(free)
        if not len(of_task):
            return None
        graph = VisibleTasks(ends, ready)
        seen = DecisionInput(
            _bounded(graph.features(prospects)),
            np.array(graph.parents, dtype=np.intp),
            np.array(graph.children, dtype=np.intp),
            _bounded(_processors(prospects, ends, instant, graph.unit)),
            _bounded(_pairs(prospects, graph, of_task, of_processor)),
            of_task,
            of_processor,
            _bounded(_world(prospects, graph, ends)),
            any(ends.running.values()),
            _rule(prospects, ends, of_task, of_processor),
        )
        return DecisionOffer(seen, ready, node.names)

    def _instant(self, ends: ExpectedFinish) -> NodeInstant:
        """Return what all decisions of a reaction have in common."""
        if self._node is None or self._node.ends is not ends:
            node = self._cache.node_of(ends.system)
            known = ends.crowding if self._belief else None
            probabilities = probabilities_of(known, node, ends.system.now)
            shown = np.zeros((len(node.names), SHOWN))
            if ends.crowding is not None:
                shown = _shown(node, ends.crowding, probabilities, belief=self._belief)
            self._node = NodeInstant(ends, node, probabilities, shown)
        return self._node


def _ready_in_turn(ends: ExpectedFinish, turns: OwnersInTurn) -> list[TaskRecord]:
    """List the waiting tasks to choose among.

    Where they have several owners, those that can start, of the owner whose turn it is.
    """
    if not turns.several:
        return ends.ready(READY)
    free = {name for name, slots in ends.free.items() if slots[0] <= 0.0}
    able = [
        task
        for task in waiting_without_place(ends.system)
        if not free.isdisjoint(ends.system.affinities(task.row))
    ]
    return sorted(turns.next_of(able), key=ends.order)[:READY]


def _processors(
    prospects: Prospects, ends: ExpectedFinish, instant: NodeInstant, unit: float
) -> Floats:
    node = instant.node
    found = np.zeros((len(node.names), PROCESSOR))
    found[:, : len(KINDS) + 1] = node.one_hot
    running = [len(ends.running[name]) for name in node.names]
    found[:, 4] = running / node.slots
    found[:, 5] = np.minimum(prospects.wait / (2.0 * unit), 2.0)
    if ends.crowding is not None:
        found[:, 6:9] = prospects.slowdown_of_shared(UNKNOWN_LOAD)[node.seen].T - 1.0
    found[:, PROCESSOR - SHOWN :] = instant.shown
    return found


def _shown(
    node: NodeArrays, crowding: Crowding, probabilities: Floats, *, belief: bool
) -> Floats:
    """Return what is known of other programs' loads, as features of the processors."""
    found = np.zeros((len(node.names), SHOWN))
    if belief:
        mean = (probabilities * node.levels).sum(axis=1)
        square = (probabilities * node.levels**2).sum(axis=1)
        found[:, 0:3] = mean[node.seen].T
        deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
        found[:, 3:5] = deviation[node.seen[:2]].T
    else:
        found[:, 0:3] = _readings("bandwidth", crowding, node)[node.seen].T
        found[:, 3:5] = _readings("stall", crowding, node)[node.seen[1:]].T
    return found


def _readings(counter: str, crowding: Crowding, node: NodeArrays) -> Floats:
    """Return the last readings of a counter, 0 where there was none."""
    found = np.zeros(node.last + 1)
    for name, number in node.shared.items():
        said = crowding.evidence.get((name, counter))
        found[number] = 0.0 if said is None else said.value
    return found


def _pairs(prospects: Prospects, graph: VisibleTasks, t: Indices, r: Indices) -> Floats:
    """Return the features of tasks `t` on processors `r`."""
    unit, node = graph.unit, prospects.node
    duration, cost = prospects.duration, prospects.cost
    finish = prospects.wait + duration
    pairs = t * len(node.names) + r
    here = duration.take(pairs)
    quickest = duration.min(axis=1)[t]
    found = np.zeros((len(t), PAIR))
    found[:, 0] = here / unit
    found[:, 1] = np.log(np.maximum(here / np.maximum(quickest, 1e-9), 1e-9))
    found[:, 2] = (finish.take(pairs) - finish.min(axis=1)[t]) / unit
    found[:, 3] = 2.0 * prospects.harm.take(pairs) / unit
    found[:, 4] = prospects.alone.take(pairs) / unit
    found[:, 5] = prospects.stretch.take(pairs) - 1.0
    found[:, 6] = t / 4.0
    found[:, 7] = (graph.work / (10.0 * unit))[t]
    found[:, 8] = (graph.rank / (5.0 * unit))[t]
    found[:, 9] = prospects.reload.take(pairs)
    found[:, 10] = cost.take(pairs) <= (cost.min(axis=1) + 1e-9)[t]
    found[:, 11] = t == 0
    found[:, 12] = np.count_nonzero(prospects.wait <= 0.0) / len(node.names)
    found[:, 13] = node.one_hot[r, 0]
    return found


def _world(prospects: Prospects, graph: VisibleTasks, ends: ExpectedFinish) -> Floats:
    running = sum(len(found) for found in ends.running.values())
    slots = float(prospects.node.slots.sum())
    work = sum(dict(zip(graph.jobs, graph.work, strict=True)).values())
    return np.array(
        [
            len(graph.ready) / READY,
            running / slots,
            np.count_nonzero(prospects.wait <= 0.0) / len(prospects.wait),
            math.log1p(len(set(graph.jobs))),
            work / slots / graph.unit,
            1.0,
        ]
    )


def _bounded(features: Floats) -> Floats:
    """Cut features at the bound, in place; 0 where there is no number."""
    np.minimum(features, BOUND, out=features)
    np.maximum(features, -BOUND, out=features)
    features[np.isnan(features)] = 0.0
    return features


def _rule(prospects: Prospects, ends: ExpectedFinish, t: Indices, r: Indices) -> int:
    """Return which pair `contention-aware` would start next; the number of pairs: none."""
    duration = prospects.duration
    harm = prospects.harm
    slots = {name: list(ends.free[name]) for name in prospects.node.names}
    names = prospects.node.names
    wait = prospects.wait.copy()
    for task in range(len(duration)):
        cost = wait + duration[task] + harm[task]
        place = int(np.argmin(cost))
        if not math.isfinite(cost[place]):
            continue
        if wait[place] <= 0.0:
            return int(np.nonzero((t == task) & (r == place))[0][0])
        queue = slots[names[place]]
        queue.append(queue.pop(0) + float(duration[task, place]))
        queue.sort()
        wait[place] = queue[0]
    return len(t)


class VisibleTasks:
    """The tasks that a decision sees: waiting ones first, running ones, then children.

    Attributes:
        ready: tasks that wait; `jobs`, `work`, `rank` are theirs.
        unit: see the module, in seconds.
        parents, children: numbers of tasks, for each dependency.

    """

    def __init__(self, ends: ExpectedFinish, ready: list[TaskRecord]) -> None:
        self._ends = ends
        self._system = system = ends.system
        self.ready = ready
        self._running = [each for found in ends.running.values() for each in found]
        self._running = self._running[: MOST_TASKS // 2]
        self._records = [*ready, *(each.task for each in self._running)]
        self._numbers: dict[TaskId, int] = {
            task.id: number for number, task in enumerate(self._records)
        }
        self._nodes = [system.graphs.nodes.get(task) for task in self._numbers]
        self._outputs = [0.0] * len(self._nodes)
        self.parents: list[int] = []
        self.children: list[int] = []
        self._follow()
        least = [self._least(number) for number in range(len(self._nodes))]
        self._quickest = np.array(least)
        self.unit = max(10.0 / USUAL_S * float(self._quickest.mean()), 1e-6)
        self.jobs: list[object] = [
            system.job_of(task) or task.id for task in self.ready
        ]
        self.work = np.array([system.work_left_of(task) for task in ready])
        self.rank = np.array([system.rank(task) for task in ready])

    def features(self, prospects: Prospects) -> Floats:
        system, unit, count = self._system, self.unit, len(self._nodes)
        waiting, running = len(self.ready), len(self._running)
        found = np.zeros((count, TASK))
        found[:, 0] = self._quickest / unit
        found[:waiting, 2] = 1.0
        found[waiting : waiting + running, 3] = 1.0
        found[:, 4] = self._quickest / unit
        lefts = np.array([each.left for each in self._running])
        found[waiting : waiting + running, 4] = np.minimum(lefts / unit, BOUND)
        found[:, (1, 5, 6, 7)] = [self._figures(number) for number in range(count)]
        found[:, 5] /= 5.0 * unit
        found[:, 6] /= len(prospects.node.names)
        found[:, 7] /= 10.0 * unit
        ages = [(system.now - task.arrival) / SECOND for task in self._records]
        found[: len(ages), 8] = np.array(ages) / (5.0 * unit)
        found[:, 9] = np.array(self._outputs) * prospects.node.pace / unit
        return found

    def _figures(self, number: int) -> tuple[float, float, int, float]:
        """Return of a task: mean over least time, rank, resources, the job's work left."""
        node = self._nodes[number]
        if node is None:
            quickest = float(self._quickest[number])
            able = len(self._system.fit(self._records[number].row).expected)
            return 0.0, quickest, able, quickest
        ratio = math.log(max(node.mean / max(node.least, 1e-9), 1.0))
        able = len(self._system.fit(node.row).expected)
        return ratio, node.rank, able, node.job.work_left

    def _follow(self) -> None:
        """Add the children of the tasks so far, in rounds."""
        begin = 0
        for _ in range(ROUNDS):
            end = len(self._nodes)
            for number in range(begin, end):
                self._add_children(number)
            begin = end

    def _add_children(self, number: int) -> None:
        node = self._nodes[number]
        if node is None:
            return
        for child in islice(node.children, MOST_CHILDREN):
            if child.ended:
                continue
            known = self._numbers.get(child.task)
            if known is None:
                if len(self._nodes) >= MOST_TASKS:
                    return
                known = self._numbers[child.task] = len(self._nodes)
                self._nodes.append(child)
                self._outputs.append(0.0)
            size = float(child.inputs.get(node.task, 0))
            self._outputs[number] = max(self._outputs[number], size)
            self.parents.append(number)
            self.children.append(known)

    def _least(self, number: int) -> float:
        node: GraphNode | None = self._nodes[number]
        if node is not None:
            return node.least
        return self._system.fit(self._records[number].row).least_s
