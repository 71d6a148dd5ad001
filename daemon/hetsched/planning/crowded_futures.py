"""Roll-outs of `lookahead`: jobs played to their ends in futures drawn from the belief.

A future has one level of other programs' load on each shared resource, drawn from its
probabilities. In it the tasks that run end as expected, and all others of the same jobs go,
when they are ready, where they end first. The own load is that of this instant.
"""

from __future__ import annotations

import math
import random
from bisect import insort
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from hetsched.estimates.table import application
from hetsched.planning.expected_finish import RunningTask
from hetsched.system import SECOND
from hetsched.tasks import Row

if TYPE_CHECKING:
    from hetsched.contention import Loads
    from hetsched.graphs import GraphNode, JobGraph
    from hetsched.ids import TaskId
    from hetsched.planning.expected_finish import ExpectedFinish
    from hetsched.tasks import TaskRecord

NO_JOB = -1
LOOK = 8
"""Waiting tasks that an instant of a roll-out looks at."""
ITEMS = 64
"""Tasks that are played at most: a bound of the time of a roll-out."""


@dataclass(slots=True)
class FutureItem:
    """A task that waits, for a resource or for other tasks.

    Attributes:
        alone: resource -> seconds of its rest alone, without transfers.
        job: number of its job.
        inputs: (number of an item, or the resource of a result, bytes).
        children: numbers of the items that come after it.
        unmet: items and running tasks that it comes after.

    """

    row: Row
    app: str
    alone: dict[str, float]
    job: int
    inputs: list[tuple[int | str, int]] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    unmet: int = 0


@dataclass(slots=True)
class FutureRun:
    """A task that runs; `children`: numbers of the items that come after it."""

    running: RunningTask
    resource: str
    job: int
    children: list[int] = field(default_factory=list)


class Future:
    """One draw of other programs' loads, with the times that follow from it."""

    def __init__(self, others: dict[str, float]) -> None:
        self.others = others
        self.times: dict[int, dict[str, float]] = {}
        self.lefts: list[float] = []


class Futures:
    """The jobs of waiting tasks, as they would go on.

    Args:
        ends: the present instant.
        ready: waiting tasks without a place, in the order of the rule.
        count: number of futures; 1: the expected slowdown instead of a draw.
        seed: of the draws.

    """

    def __init__(
        self, ends: ExpectedFinish, ready: list[TaskRecord], count: int, seed: int
    ) -> None:
        self.ends = ends
        self.system = ends.system
        self.items: list[FutureItem] = []
        self.runs: list[FutureRun] = []
        self.numbers: dict[TaskId, int] = {}
        self.work_left: dict[int, float] = {}
        """Number of a job -> seconds; the least goes first."""
        self._jobs: dict[object, int] = {}
        self._running: dict[TaskId, FutureRun] = {}
        self.programs = {
            state.resource.name: state.program
            for state in self.system.usable_states()
            if state.resource.reconfigure_s
        }
        self._enter(ready)
        generator = random.Random(f"futures {seed} {self.system.now}")
        self.futures = [
            Future(self._draw(generator) if count > 1 else {}) for _ in range(count)
        ]
        for future in self.futures:
            future.lefts = [self._left(run, future) for run in self.runs]

    def score(self, forced: dict[int, str]) -> float:
        """Return the mean over all futures of the sum of the jobs' ends, in seconds.

        Args:
            forced: item -> resource that it goes to.

        """
        return sum(self._play(future, forced) for future in self.futures) / len(
            self.futures
        )

    # ------------------------------------------------------------ a roll-out

    def _play(self, future: Future, forced: dict[int, str]) -> float:
        """Play all jobs by the rule of `contention-aware`; return the sum of their ends."""
        play = Play(self, future, forced)
        play.go_on()
        return sum(play.finishes)

    def times_of(self, future: Future, i: int) -> dict[str, float]:
        """Return resource -> seconds of an item there in this future, without transfers."""
        found = future.times.get(i)
        if found is None:
            item = self.items[i]
            found = {
                name: alone
                * self._slowdown(future, self._loads(item.row, name), added=True)
                for name, alone in item.alone.items()
            }
            future.times[i] = found
        return found

    def copying(self, item: FutureItem, name: str, places: list[str]) -> float:
        crowding = self.ends.crowding
        if crowding is None:
            return 0.0
        seconds = 0.0
        for source, size in item.inputs:
            place = places[source] if isinstance(source, int) else source
            if place and place != name:
                seconds += size * sum(crowding.model.path(place, name).values())
        return seconds

    def free_slots(self, future: Future) -> dict[str, list[float]]:
        """Return when slots are free: tasks in queues take theirs as expected."""
        free = {name: list(slots) for name, slots in self.ends.free.items()}
        lefts: dict[str, list[float]] = {}
        for run, left in zip(self.runs, future.lefts, strict=True):
            lefts.setdefault(run.resource, []).append(left)
        for name, found in lefts.items():
            # where nothing but these tasks takes slots, the future's own times hold
            idle = sum(at <= 0.0 for at in free[name])
            if idle + len(found) == len(free[name]):
                free[name] = [0.0] * idle + sorted(found)
        return free

    # ------------------------------------------------------------ figures

    def _loads(self, row: Row, name: str) -> Loads:
        crowding = self.ends.crowding
        return () if crowding is None else crowding.model.loads_of(row.type, name)

    def _slowdown(self, future: Future, loads: Loads, *, added: bool) -> float:
        crowding = self.ends.crowding
        if crowding is None:
            return 1.0
        law, factor = crowding.model.law, 1.0
        if not future.others:
            now = self.system.now
            for load in loads:
                own = self.ends.demand[load.shared] + (load.demand if added else 0.0)
                factor += load.bound * (
                    crowding.belief.slowdown(load.shared, own, now) - 1.0
                )
            return factor
        for load in loads:
            own = self.ends.demand[load.shared] + (load.demand if added else 0.0)
            factor += load.bound * (law(own + future.others[load.shared]) - 1.0)
        return factor

    def _left(self, run: FutureRun, future: Future) -> float:
        if math.isinf(run.running.left):
            return math.inf
        loads = run.running.loads
        if not loads:
            return run.running.left
        return run.running.alone * self._slowdown(future, loads, added=False)

    def _draw(self, generator: random.Random) -> dict[str, float]:
        crowding = self.ends.crowding
        if crowding is None:
            return {}
        belief, now = crowding.belief, self.system.now
        return {
            name: generator.choices(levels, belief.probabilities(name, now))[0]
            for name, levels in belief.levels.items()
        }

    # ------------------------------------------------------------ what is played

    def _enter(self, ready: list[TaskRecord]) -> None:
        for name, running in self.ends.running.items():
            for each in running:
                job = self._number_of(each.task)
                run = FutureRun(each, name, job)
                self.runs.append(run)
                self._running[each.task.id] = run
        for task in ready[:ITEMS]:
            self._add(task.id, task.row, self._number_of(task), task.left)
            if task.progress <= 0.0:
                number = self.numbers[task.id]
                self.items[number].inputs += self.system.inputs_of(task)
        tasks = ready[:ITEMS] + [run.running.task for run in self.runs]
        for task in tasks:
            number = self._number_of(task)
            self.work_left[number] = self.system.work_left_of(task)
        for graph in dict.fromkeys([self.system.job_of(task) for task in tasks]):
            if graph is not None:
                self._add_waiting(graph)

    def _add_waiting(self, graph: JobGraph) -> None:
        """Add the tasks of a job that wait for others, parents first."""
        nodes = [node for node in graph.nodes.values() if not node.ended]
        for node in sorted(nodes[:ITEMS], key=lambda n: (n.depth, n.task)):
            self._add_later(node)

    def _number_of(self, task: TaskRecord) -> int:
        job = self.system.job_of(task)
        return self._jobs.setdefault(task.id if job is None else job, len(self._jobs))

    def _add(self, task: TaskId, row: Row, job: int, rest: float) -> bool:
        expected = self.system.fit(row).expected
        alone = {
            name: ns / SECOND * rest
            for name, ns in expected.items()
            if name in self.ends.free
        }
        if not alone or len(self.items) >= ITEMS:
            return False
        self.numbers[task] = len(self.items)
        self.items.append(FutureItem(row, application(row.type), alone, job))
        return True

    def _add_later(self, node: GraphNode) -> None:
        """Add a task that waits for others, all of which are played."""
        if node.task in self.numbers or node.task in self._running:
            return
        before = [parent for parent in node.parents if not parent.ended]
        known = self.numbers.keys() | self._running.keys()
        if not before or any(parent.task not in known for parent in before):
            return
        if not self._add(node.task, node.row, self._jobs[node.job], 1.0):
            return
        number = self.numbers[node.task]
        item = self.items[number]
        item.unmet = len(before)
        for parent in before:
            size = node.inputs.get(parent.task, 0)
            run = self._running.get(parent.task)
            if run is not None:
                run.children.append(number)
                item.inputs.append((run.resource, size))
            else:
                self.items[self.numbers[parent.task]].children.append(number)
                item.inputs.append((self.numbers[parent.task], size))
        for parent in node.parents:
            if parent.ended and parent.place is not None:
                item.inputs.append((parent.place, node.inputs.get(parent.task, 0)))


class Play:
    """One roll-out.

    Attributes:
        finishes: end of each job.

    """

    def __init__(
        self, futures: Futures, future: Future, forced: dict[int, str]
    ) -> None:
        self.futures = futures
        self.future = future
        self.forced = forced
        self.items = futures.items
        self.now = 0.0
        self.finishes = [0.0] * len(futures.work_left)
        self.free = futures.free_slots(future)
        self.places = [""] * len(self.items)
        self.programs = dict(futures.programs)
        self._unmet = [item.unmet for item in self.items]
        self._ready: list[tuple[float, int]] = []
        self._ends: list[tuple[float, int, list[int]]] = []
        """A heap of (instant, job, items that come after)."""
        for i, item in enumerate(self.items):
            if not item.unmet:
                insort(self._ready, (futures.work_left[item.job], i))
        for run, left in zip(futures.runs, future.lefts, strict=True):
            if left < math.inf:
                heappush(self._ends, (left, run.job, run.children))
        for times in self.free.values():
            for at in times:
                if 0.0 < at < math.inf:  # of tasks that are not played: only the slot
                    heappush(self._ends, (at, NO_JOB, []))

    def go_on(self) -> None:
        """Play until nothing runs any more."""
        self._start_ready()
        while self._ends:
            at, job, children = heappop(self._ends)
            self.now = at
            if job != NO_JOB:
                self.finishes[job] = max(self.finishes[job], at)
            for child in children:
                self._unmet[child] -= 1
                if not self._unmet[child]:
                    work = self.futures.work_left[self.items[child].job]
                    insort(self._ready, (work, child))
            if self._ready and not (self._ends and self._ends[0][0] <= at):
                self._start_ready()

    def _start_ready(self) -> None:
        """Start what ends first where a slot is free; others reserve theirs."""
        idle = sum(times[0] <= self.now for times in self.free.values())
        if not idle:
            return
        slots = {name: list(times) for name, times in self.free.items()}
        left: list[tuple[float, int]] = []
        for looked, entry in enumerate(self._ready):
            if not idle or looked >= LOOK:
                left += self._ready[looked:]
                break
            finish, name = self._soonest(entry[1], slots)
            if not name:
                continue  # nowhere, in this future
            there = slots[name]
            start = there.pop(0)
            insort(there, finish)
            if start <= self.now:
                idle -= there[0] > self.now
                self._start(entry[1], name, finish)
            else:
                left.append(entry)
        self._ready = left

    def _start(self, i: int, name: str, finish: float) -> None:
        self.free[name].pop(0)
        insort(self.free[name], finish)
        self.places[i] = name
        item = self.items[i]
        if name in self.programs:
            self.programs[name] = item.app
        heappush(self._ends, (finish, item.job, item.children))

    def _soonest(self, i: int, slots: dict[str, list[float]]) -> tuple[float, str]:
        """Return the end of an item and its resource, the one where it ends first."""
        item, futures, now = self.items[i], self.futures, self.now
        times = futures.times_of(self.future, i)
        forced = self.forced.get(i)
        best, where = math.inf, ""
        for name in times if forced is None else (forced,):
            finish = max(now, slots[name][0]) + times[name]
            if finish >= best:
                continue
            if item.inputs:
                finish += futures.copying(item, name, self.places)
            if self.programs and self.programs.get(name, item.app) != item.app:
                finish += futures.system.resources[name].reconfigure_s
            if finish < best:
                best, where = finish, name
        return best, where
