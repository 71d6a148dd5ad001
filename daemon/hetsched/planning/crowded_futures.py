"""The futures of `lookahead`: the tasks that are played, and loads of other programs.

A future has one level of other programs' load on each shared resource, drawn from its
probabilities; `crowded_play` plays the jobs to their ends in it. Resources and shared
resources are numbers here, since a roll-out looks them up all the time.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from hetsched.contention import slowdown_at_capacity
from hetsched.estimates.table import application
from hetsched.system import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetsched.contention import Loads
    from hetsched.crowding import Crowding
    from hetsched.graphs import GraphNode, JobGraph
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.planning.expected_finish import ExpectedFinish, RunningTask
    from hetsched.tasks import Row, TaskRecord

    Pace: TypeAlias = Callable[[int, float], float]
    """Number of a shared resource, own load -> slowdown g."""

ITEMS = 64
"""Tasks that are played at most: a bound of the time of a roll-out."""
LEAST_S = 1e-9
MOST_MOVES = 6
"""A task that has moved this many times stays where it is."""

NumberedLoads: TypeAlias = "tuple[tuple[int, float, float], ...]"
"""Number of a shared resource, demand, bound share."""
TransferPath: TypeAlias = "tuple[float, list[tuple[int, float]]]"
"""Seconds per byte of a transfer, and those on each shared resource."""


@dataclass(frozen=True, slots=True)
class ItemPlace:
    """A task on a resource; `alone`: seconds of the whole task, without transfers."""

    resource: int
    alone: float
    loads: NumberedLoads


@dataclass(frozen=True, slots=True)
class ItemMoves:
    """The figures of moves of a task.

    Attributes:
        most: how often it may change resources; 0: it stays.
        made: how often it has.
        seconds: of a move, without the copying of its state; `state`: its bytes.
        strip: its checkpoints are this share of the task apart.

    """

    most: int = 0
    made: int = 0
    seconds: float = 0.0
    state: int = 0
    strip: float = 0.0


@dataclass(slots=True)
class FutureItem:
    """A task that is played.

    Attributes:
        places: where it can run.
        job: number of its job.
        rank: its upward rank; `least`: its least expected time, in seconds.
        rest: share of it that is left.
        inputs: (number of an item, or the resource of a result, bytes).
        children: numbers of the items that come after it.
        unmet: number of items that it comes after.
        running: where it runs, and the seconds left of it alone; None: it waits.

    """

    app: str
    places: list[ItemPlace]
    job: int
    rank: float
    least: float
    rest: float = 1.0
    moves: ItemMoves = ItemMoves()
    inputs: list[tuple[int | str, int]] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    unmet: int = 0
    running: tuple[ItemPlace, float] | None = None


class Future:
    """One draw of other programs' loads; `pace` has the slowdowns that follow from it."""

    def __init__(self, pace: Pace, items: int) -> None:
        self.pace = pace
        self._ranked: list[list[tuple[float, ItemPlace]]] = [[]] * items

    def ranked(self, number: int, item: FutureItem) -> list[tuple[float, ItemPlace]]:
        """Return the places of an item by its seconds there if no own task ran."""
        found = self._ranked[number]
        if not found:
            found = [(self._least(place), place) for place in item.places]
            found.sort(key=lambda each: each[0])
            self._ranked[number] = found
        return found

    def _least(self, place: ItemPlace) -> float:
        factor = 1.0
        for shared, demand, bound in place.loads:
            factor += bound * (self.pace(shared, demand) - 1.0)
        return place.alone * factor


class FutureMachine:
    """The usable resources and what they share, by number.

    Attributes:
        names: of the resources.
        demand: load of the tasks that run on each shared resource.
        slots: of each resource.
        reconfigure: seconds to load another program; `programs`: what is loaded.
        links: seconds per byte of a task's state to or from each resource.
        shuns: whether no running task moves there.

    """

    def __init__(self, ends: ExpectedFinish) -> None:
        system = ends.system
        self.crowding = ends.crowding
        self._model = None if ends.crowding is None else ends.crowding.model
        self.names = list(ends.free)
        self.number_of = {name: number for number, name in enumerate(self.names)}
        self.shared = list(self._model.shared) if self._model else []
        self._shared = {name: number for number, name in enumerate(self.shared)}
        self.demand = [ends.demand[name] for name in self.shared]
        self.slots = [len(ends.free[name]) for name in self.names]
        resources = [system.resources[name] for name in self.names]
        self.reconfigure = [resource.reconfigure_s for resource in resources]
        self.programs = {
            number: system.states[name].program
            for number, name in enumerate(self.names)
            if self.reconfigure[number]
        }
        rates = [resource.link_bytes_per_s for resource in resources]
        self.links = [1.0 / rate if rate else 0.0 for rate in rates]
        self.shuns = [resource.shared for resource in resources]
        self._paths: dict[tuple[int | str, int], TransferPath] = {}

    def path(self, source: int | str, target: int) -> TransferPath:
        """Return seconds per byte between two resources: of all, on each shared resource."""
        found = self._paths.get((source, target))
        if found is None:
            name = self.names[source] if isinstance(source, int) else source
            model = self._model
            paces = model.path(name, self.names[target]) if model else {}
            each = [(self._shared[shared], pace) for shared, pace in paces.items()]
            found = sum(paces.values()), each
            self._paths[source, target] = found
        return found

    def loads_of(self, row: Row, name: str) -> NumberedLoads:
        """Return the loads of a task of a row on a resource."""
        if self._model is None:
            return ()
        return self.numbered(self._model.loads_of(row.type, name))

    def numbered(self, loads: Loads) -> NumberedLoads:
        """Return loads with numbers instead of names."""
        return tuple((self._shared[x.shared], x.demand, x.bound) for x in loads)


class Futures:
    """The jobs of waiting tasks, as they would go on.

    Args:
        ends: the present instant, before any waiting task has been entered.
        ready: waiting tasks without a place, in the order of the rule.
        count: number of futures; 1: the expected slowdown instead of a draw.
        seed: of the draws.

    """

    def __init__(
        self, ends: ExpectedFinish, ready: list[TaskRecord], count: int, seed: int
    ) -> None:
        self._ends = ends
        self._system = ends.system
        self.machine = FutureMachine(ends)
        self.items: list[FutureItem] = []
        self.numbers: dict[TaskId, int] = {}
        self.work_left: list[float] = []
        """Seconds of each job; the least goes first."""
        self._jobs: dict[object, int] = {}
        self._moves: dict[int, ItemMoves] = {}
        self._places: dict[Row, list[ItemPlace]] = {}
        self._played = 0
        self._enter(ready)
        self.blocked = self._blocked()
        """When slots are free of the resources where other tasks than these take some."""
        paces = _paces(self.machine, self._system.now, count, seed)
        self.futures = [Future(pace, len(self.items)) for pace in paces]

    def affordable(self, wanted: int, most: int) -> int:
        """Count the choices to compare, if `most` tasks are played in all; they are spent."""
        each = max(len(self.items) * len(self.futures), 1)
        found = min(wanted, (most - self._played) // each)
        self._played += found * each
        return found

    def _blocked(self) -> dict[int, list[float]]:
        played = [0] * len(self.machine.names)
        for item in self.items:
            if item.running is not None:
                played[item.running[0].resource] += 1
        return {
            number: free
            for number, free in enumerate(self._ends.free.values())
            if sum(at <= 0.0 for at in free) + played[number] != len(free)
        }

    # ------------------------------------------------------------ what is played

    def _enter(self, ready: list[TaskRecord]) -> None:
        known = list(ready)
        for name, running in self._ends.running.items():
            for each in running:
                if each.left < math.inf:
                    self._add_running(each, name)
                    known.append(each.task)
        for task in ready:
            item = self._add_known(task, task.left)
            if item is not None and task.progress <= 0.0:
                item.inputs += self._system.inputs_of(task)
        for graph in dict.fromkeys([self._system.job_of(task) for task in known]):
            if graph is not None and graph in self._jobs:
                self._add_waiting(graph)

    def _add_running(self, each: RunningTask, name: str) -> None:
        task = each.task
        seconds = self._system.seconds(task.row, name)
        rest = min(each.alone / max(seconds, LEAST_S), 1.0)
        item = self._add_known(task, rest)
        if item is not None:
            loads = self.machine.numbered(each.loads)
            place = ItemPlace(self.machine.number_of[name], seconds, loads)
            item.running = place, each.alone

    def _add_known(self, task: TaskRecord, rest: float) -> FutureItem | None:
        """Add a task that waits for a resource, or runs."""
        key = self._system.job_of(task) or task.id
        job = self._jobs.setdefault(key, len(self._jobs))
        if job == len(self.work_left):
            self.work_left.append(self._system.work_left_of(task))
        item = self._add(task.id, task.row, job, self._system.rank(task))
        if item is not None:
            item.rest = rest
            item.moves = _moves_of(task, may=task.id not in self._system.departing)
            self._moves.setdefault(job, item.moves)
        return item

    def _add_waiting(self, graph: JobGraph) -> None:
        """Add the tasks of a job that wait for others, parents first."""
        nodes = [node for node in graph.nodes.values() if not node.ended]
        for node in sorted(nodes[:ITEMS], key=lambda n: (n.depth, n.task)):
            self._add_later(node)

    def _add_later(self, node: GraphNode) -> None:
        """Add a task that waits for others, all of which are played."""
        before = [parent for parent in node.parents if not parent.ended]
        known = all(parent.task in self.numbers for parent in before)
        if node.task in self.numbers or not before or not known:
            return
        job = self._jobs[node.job]
        item = self._add(node.task, node.row, job, node.rank)
        if item is None:
            return
        first = self._moves[job]  # a move is not known of it, but of another of its job
        item.moves = ItemMoves(MOST_MOVES, 0, first.seconds, first.state, first.strip)
        item.unmet = len(before)
        for parent in before:
            other = self.numbers[parent.task]
            self.items[other].children.append(self.numbers[node.task])
            item.inputs.append((other, node.inputs.get(parent.task, 0)))
        for parent in node.parents:
            if parent.ended and parent.place is not None:
                item.inputs.append((parent.place, node.inputs.get(parent.task, 0)))

    def _add(self, task: TaskId, row: Row, job: int, rank: float) -> FutureItem | None:
        places = self._places_of(row)
        if not places or len(self.items) >= ITEMS:
            return None
        self.numbers[task] = len(self.items)
        least = self._system.fit(row).least_s
        item = FutureItem(application(row.type), places, job, rank, least)
        self.items.append(item)
        return item

    def _places_of(self, row: Row) -> list[ItemPlace]:
        found = self._places.get(row)
        if found is None:
            machine = self.machine
            found = self._places[row] = [
                ItemPlace(
                    machine.number_of[name], ns / SECOND, machine.loads_of(row, name)
                )
                for name, ns in self._system.fit(row).expected.items()
                if name in machine.number_of
            ]
        return found


def _moves_of(task: TaskRecord, *, may: bool) -> ItemMoves:
    submitted = task.submitted
    return ItemMoves(
        MOST_MOVES if may and task.preemptible and task.pinned is None else 0,
        task.moves,
        submitted.migration_s,
        submitted.state_bytes,
        1.0 / submitted.strips if submitted.strips else 0.0,
    )


def _paces(
    machine: FutureMachine, now: Nanoseconds, count: int, seed: int
) -> list[Pace]:
    """Return the slowdowns of each future."""
    crowding = machine.crowding
    if crowding is None:
        return [lambda _, __: 1.0]
    if count == 1:
        return [_expected_pace(crowding, machine.shared, now)]
    generator = random.Random(f"futures {seed} {now}")
    belief, law = crowding.belief, crowding.model.law
    found = []
    for _ in range(count):
        drawn = [
            generator.choices(belief.levels[name], belief.probabilities(name, now))[0]
            for name in machine.shared
        ]
        found.append(_drawn_pace(drawn, law))
    return found


def _expected_pace(crowding: Crowding, names: list[str], now: Nanoseconds) -> Pace:
    belief = crowding.belief
    return lambda shared, own: belief.slowdown(names[shared], own, now)


def _drawn_pace(others: list[float], law: Callable[[float], float]) -> Pace:
    if law is slowdown_at_capacity:  # written out: it is the usual one
        return lambda shared, own: max(1.0, own + others[shared])
    return lambda shared, own: law(own + others[shared])
