"""When tasks would end: free slots, slowdown by what runs, and transfers of inputs.

Estimates of one instant, made for each reaction of a policy. All times are seconds from
now. A policy that places a task enters it, so that later ones see its slot and load taken.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from hetsched.contention import Loads
from hetsched.ids import TaskId
from hetsched.planning.outlook import CHECKPOINT_S
from hetsched.planning.owners_in_turn import OwnersInTurn
from hetsched.system import SECOND, Fit
from hetsched.tasks import Row, TaskRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hetsched.system import ResourceState, System

Key = TypeVar("Key")
Value = TypeVar("Value")

ROWS = 128
"""Rows of a resource's queue that a reaction looks at: a bound of its time."""
LOOKED_AT = 64
"""Waiting tasks without a place that it looks at, of as many rows as there are. Where several
owners have some each has an equal part of these, one at least."""
OF_ROW = 4
"""Of each row at most: they may belong to different jobs."""
KEPT = 1024
"""Waiting tasks whose times are remembered."""
OVERDUE = 0.05
"""A task that takes longer than expected is expected to take this share of its time more."""


@dataclass(frozen=True, slots=True)
class Prospective:
    """A task on a resource.

    Attributes:
        wait: seconds until a slot is free; 0: one is.
        duration: seconds from its start until its end, slowed down as expected.
        loads: that it would offer.
        harm: seconds by which the tasks that run there take longer, summed.

    """

    resource: str
    wait: float
    duration: float
    loads: Loads
    harm: float = 0.0

    @property
    def finish(self) -> float:
        return self.wait + self.duration

    @property
    def cost(self) -> float:
        return self.wait + self.duration + self.harm


@dataclass(slots=True)
class RunningTask:
    """A running task.

    Attributes:
        alone: seconds that the rest of it takes alone.
        left: seconds that it takes, slowed down as expected.

    """

    task: TaskRecord
    loads: Loads
    alone: float
    left: float


Times: TypeAlias = "dict[str, tuple[float, Loads]]"
"""Resource that can run a task now -> seconds of its rest alone, and its loads."""


@dataclass(slots=True)
class KnownTimes:
    """Times of waiting tasks, remembered from one reaction to the next.

    They change with the estimates and the usable resources, which make another `Fit`, with
    what is left of the task, and with the learned loads.
    """

    version: int = 0
    times: OrderedDict[TaskId, tuple[Fit, float, Times]] = field(
        default_factory=OrderedDict
    )
    rows: OrderedDict[Row, tuple[Fit, Times]] = field(default_factory=OrderedDict)
    """Times of a whole task without inputs: those of its row."""

    def of(self, task: TaskRecord, system: System) -> Times:
        """Return the times of a waiting task."""
        fit = system.fit(task.row)
        found = self.times.get(task.id)
        if found is not None and found[0] is fit and found[1] == task.left:
            return found[2]
        made = self._made(task, system, fit)
        _keep(self.times, task.id, (fit, task.left, made))
        return made

    def clear(self, version: int) -> None:
        """Forget all: the learned loads have changed."""
        self.version = version
        self.times.clear()
        self.rows.clear()

    def _made(self, task: TaskRecord, system: System, fit: Fit) -> Times:
        if task.left < 1.0 or system.inputs_of(task):
            return _times_of(task, system, fit)
        found = self.rows.get(task.row)
        if found is None or found[0] is not fit:
            found = fit, _times_of(task, system, fit)
            _keep(self.rows, task.row, found)
        return found[1]


def _times_of(task: TaskRecord, system: System, fit: Fit) -> Times:
    times: Times = {}
    for name in fit.affinities:
        alone, loads = system.alone(task, name)
        times[name] = alone * task.left, loads
    return times


def _keep(known: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    """Keep one more; the oldest goes, alone: to drop all at once takes milliseconds."""
    if len(known) >= KEPT:
        known.popitem(last=False)
    known[key] = value


def _known_times(system: System) -> KnownTimes:
    known: KnownTimes = system.remembered.setdefault("times", KnownTimes())
    version = 0 if system.crowding is None else system.crowding.model.version
    if known.version != version:
        known.clear(version)
    return known


class ExpectedFinish:
    """Expected ends of tasks in a system's present state.

    Args:
        system: what is scheduled.
        crowded: whether slowdown is taken into account, where it is modelled.

    """

    def __init__(self, system: System, *, crowded: bool = True) -> None:
        self.system = system
        self._times = _known_times(system)
        self.crowding = system.crowding if crowded else None
        self.demand = dict(self.crowding.demand) if self.crowding else {}
        self.running: dict[str, list[RunningTask]] = {}
        self.free: dict[str, list[float]] = {}
        """Resource -> seconds until each of its slots is free, ascending."""
        self.chosen: list[Prospective] = []
        """Tasks that were entered, in order."""
        self.sensitive: dict[str, float] = {}
        """Shared resource -> seconds alone of running tasks that are bound to it."""
        for state in system.usable_states():
            self.free[state.resource.name] = self._free_slots(state)
        self._expect_arrivals()

    def candidates(self, task: TaskRecord) -> list[Prospective]:
        """Return how a waiting task would fare on each resource that can run it now."""
        times = self._times.of(task, self.system)
        return [
            self._prospective(task, name, *known)
            for name, known in times.items()
            if name in self.free
        ]

    def prospective(self, task: TaskRecord, name: str) -> Prospective:
        """Return how a waiting task would fare on a usable resource."""
        alone, loads = self.system.alone(task, name)
        return self._prospective(task, name, alone * task.left, loads)

    def alone_on(self, task: TaskRecord) -> Times:
        """Return when a waiting task would end, and its loads; slowdown is left out."""
        free, resources = self.free, self.system.resources
        moves = task.progress > 0.0
        found: Times = {}
        for name, (alone, loads) in self._times.of(task, self.system).items():
            if name in free:
                end = free[name][0] + alone
                if moves or resources[name].reconfigure_s:
                    end += self.preparing(task, name)
                found[name] = end, loads
        return found

    def _prospective(
        self, task: TaskRecord, name: str, alone: float, loads: Loads
    ) -> Prospective:
        duration = alone * self.slowdown(loads, loads)
        duration += self.preparing(task, name)
        wait = self.free[name][0]
        return Prospective(name, wait, duration, loads, self._harm(loads, duration))

    def slowdown(self, loads: Loads, added: Loads) -> float:
        """Return the slowdown of a task if `added` comes to the load of what runs."""
        if self.crowding is None or not loads:
            return 1.0
        demand = self.demand
        if added:
            demand = {x.shared: demand[x.shared] for x in loads}
            for each in added:
                if each.shared in demand:
                    demand[each.shared] += each.demand
        return self.crowding.slowdown_of(loads, demand, self.system.now)

    def take(self, chosen: Prospective) -> None:
        """Enter a task: it takes the slot that is free first."""
        self.chosen.append(chosen)
        slots = self.free[chosen.resource]
        start = slots.pop(0)
        insort(slots, start + chosen.duration)
        if start <= 0.0 and self.crowding is not None:
            for load in chosen.loads:
                self.demand[load.shared] += load.demand

    def ready(self, most: int) -> list[TaskRecord]:
        """List waiting tasks without a place, at most `most`: least work left first.

        In order of priority, of the work left of their jobs, of upward rank and of arrival;
        those of several owners as these take turns.
        """
        found = waiting_without_place(self.system)
        found.sort(key=self.order)
        return OwnersInTurn(self.system).first(found, most)

    def order(self, task: TaskRecord) -> tuple[float, float, float, int]:
        """Return the key that orders the waiting tasks of an owner."""
        work = self.system.work_left_of(task)
        return -task.priority, work, -self.system.rank(task), task.sequence

    def _free_slots(self, state: ResourceState) -> list[float]:
        name = state.resource.name
        running = [self._running(task, name) for task in state.running.values()]
        self.running[name] = running
        if not running and not state.queue:
            return [0.0] * state.slots
        for each in running:
            for load in each.loads:
                bound = load.bound * each.alone
                self.sensitive[load.shared] = (
                    self.sensitive.get(load.shared, 0.0) + bound
                )
        slots = sorted(each.left for each in running)
        slots = [0.0] * (state.slots - len(slots)) + slots
        queued = 0
        for row in islice(state.queue.rows(), ROWS):
            count = state.queue.count_of(row)
            seconds = self.system.seconds(row, name)
            if seconds == math.inf:
                continue
            # one by one for few tasks; many take their share of all slots
            for _ in range(min(count, len(slots))):
                insort(slots, slots.pop(0) + seconds)
            more = max(count - len(slots), 0) * seconds / len(slots)
            slots = [at + more for at in slots]
            queued += count
        return slots

    def _running(self, task: TaskRecord, name: str) -> RunningTask:
        if task.id in self.system.departing:
            return RunningTask(task, (), 0.0, CHECKPOINT_S)
        if task.suspended:  # by its owner, nobody knows until when
            return RunningTask(task, (), 0.0, math.inf)
        known = None
        if self.crowding is not None:
            known = self.crowding.running.get(task.id)
        if known is not None and known.alone < math.inf:
            whole, loads = known.alone, known.loads
        else:
            seconds = self.system.estimates.seconds(
                task.row, self.system.resources[name]
            )
            whole, loads = seconds, ()
        factor = self.slowdown(loads, ())
        elapsed = (self.system.now - task.progress_at) / SECOND
        alone = whole * task.left - elapsed / factor
        alone = max(alone, OVERDUE * whole, CHECKPOINT_S)
        return RunningTask(task, loads, alone, alone * factor)

    def _expect_arrivals(self) -> None:
        """Let tasks that will move take the slots of their destinations."""
        for task in self.system.departing.values():
            name = task.destination
            if name in self.free and name != task.resource:
                seconds = self.system.remaining(task, name)
                if seconds < math.inf:
                    slots = self.free[name]
                    insort(slots, slots.pop(0) + CHECKPOINT_S + seconds)

    def _harm(self, loads: Loads, duration: float) -> float:
        """Return by how many seconds running tasks take longer beside a new one."""
        if self.crowding is None or duration <= 0.0:
            return 0.0
        belief, now = self.crowding.belief, self.system.now
        harm = 0.0
        for load in loads:
            sensitive = self.sensitive.get(load.shared, 0.0)
            if sensitive > 0.0 and load.demand > 0.0:
                own = self.demand[load.shared]
                more = belief.slowdown(load.shared, own + load.demand, now)
                more -= belief.slowdown(load.shared, own, now)
                # nobody is slowed down for longer than the new task runs
                harm += more * min(sensitive, duration * load.bound + duration)
        return harm

    def preparing(self, task: TaskRecord, name: str) -> float:
        """Return the seconds before it computes: its program is loaded, its state copied."""
        resource = self.system.resources[name]
        seconds = 0.0
        if resource.reconfigure_s:
            loaded = self.system.states[name].program
            seconds = 0.0 if loaded == task.submitted.app else resource.reconfigure_s
        here = task.last_resource
        if here is not None and here != name and task.progress > 0.0:
            seconds += self.moving(task, here, name)
        return seconds

    def moving(self, task: TaskRecord, here: str, there: str) -> float:
        """Return the seconds to move the state of a task."""
        seconds = task.submitted.migration_s
        for side in (here, there):
            link = self.system.resources[side].link_bytes_per_s
            seconds += task.submitted.state_bytes / link if link else 0.0
        return seconds


def waiting_without_place(system: System) -> list[TaskRecord]:
    """List the waiting tasks that a reaction looks at, by owner in order of their rows."""
    owners = system.unplaced.rows_of_owners()
    most = max(LOOKED_AT // max(len(owners), 1), 1)
    return [task for rows in owners for task in _waiting_of(rows, system, most)]


def _waiting_of(rows: Iterable[Row], system: System, most: int) -> list[TaskRecord]:
    """List waiting tasks of an owner's rows, at most `most`."""
    unplaced = system.unplaced
    able = [row for row in islice(rows, LOOKED_AT) if system.affinities(row)][:most]
    each = min(OF_ROW, most // max(len(able), 1))
    return [
        task
        for row in able
        for task in unplaced.first_of(row, min(each, unplaced.count_of(row)))
    ]


def ready_since(task: TaskRecord) -> int:
    """Return the instant since which a waiting task waits for a resource only."""
    return task.story[-1][0] if task.story else task.arrival
