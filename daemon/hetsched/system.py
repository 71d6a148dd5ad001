"""The state that policies read: resources, run queues, running tasks, estimates.

Only the scheduler changes it (`hetsched.state`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from hetsched.beginnings import Beginnings
from hetsched.breaker import Breaker
from hetsched.crowding import Crowding
from hetsched.graphs import JobGraphs
from hetsched.ids import Nanoseconds, TaskId
from hetsched.queues import BlockedTasks, RunQueue
from hetsched.tasks import TaskRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hetsched.awaited import AwaitedTasks
    from hetsched.contention import ContentionModel, Loads
    from hetsched.graphs import JobGraph
    from hetsched.tasks import Row


SECOND: Nanoseconds = 1_000_000_000


LONGEST_S = 1e12
"""Bound of expected times, in seconds, so that they fit into nanoseconds."""
MOST_TYPES = 1000
"""Types of ended tasks that are counted: policies that are fair to types look at all."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One schedulable processor of the node.

    Attributes:
        slots: how many tasks it runs at once.
        busy_watts: power while computing; `idle_watts`: while not.
        link_bytes_per_s: bandwidth between host memory and the device; None: the host.
        reconfigure_s: time to load another program (FPGA).
        queue_limit: tasks that may wait in its queue, for policies that bound it.
        shared: whether tasks share its speed, so that each of n takes n times as long.
        memory_bytes: the device's own memory, in bytes; None: it is not counted.

    """

    name: str
    kind: str
    slots: int = 1
    busy_watts: float = 0.0
    idle_watts: float = 0.0
    link_bytes_per_s: float | None = None
    reconfigure_s: float = 0.0
    queue_limit: int | None = None
    shared: bool = False
    memory_bytes: int | None = None


def watts_of(resource: Resource) -> float:
    """Return the power charged to one running task: its slot's part of the busy power.

    The idle power is included: a task that keeps a resource allocated pays for it.
    """
    return resource.busy_watts / resource.slots


@dataclass(eq=False, slots=True)
class ResourceState:
    """The present state of a resource."""

    resource: Resource
    queue: RunQueue = field(default_factory=RunQueue)
    running: dict[TaskId, TaskRecord] = field(default_factory=dict)
    """One task for each used slot."""
    trailing: dict[TaskId, TaskRecord] = field(default_factory=dict)
    """Tasks that workers have behind these in trains; no policy needs to know them."""
    up: bool = True
    draining: bool = False
    slots: int = field(init=False)
    """Slots that tasks may use: those that are lent too, and not those blocked by processes
    that cannot be ended."""
    lent: int = 0
    """Running tasks whose slot is lent by one that waits for them: none of the resource's."""
    awaiting: int = 0
    """Running tasks that wait for others."""
    program: str = ""
    """Application of the task that started last: its program is loaded."""
    attained: Nanoseconds = 0
    """Service that each task of a shared resource has attained by `attained_at`: nanoseconds
    at full speed."""
    attained_at: Nanoseconds = 0

    def __post_init__(self) -> None:
        self.slots = self.resource.slots

    def update_attained(self, now: Nanoseconds) -> Nanoseconds:
        """Update and return `attained`; called before the number of running tasks changes."""
        self.attained += (now - self.attained_at) // max(len(self.running), 1)
        self.attained_at = now
        return self.attained

    @property
    def own_slots(self) -> int:
        """Slots that tasks may use, without those that are lent."""
        return self.slots - self.lent

    @property
    def usable(self) -> bool:
        return self.up and not self.draining and self.slots > self.lent


class Estimates(Protocol):
    """Expected execution times (EET)."""

    @property
    def version(self) -> int:
        """A number that changes whenever an answer may."""
        ...

    def seconds(self, row: Row, resource: Resource) -> float:
        """Return the expected seconds of a whole task of `row` alone on `resource`."""
        ...

    def spread(self, row: Row, resource: Resource) -> float:
        """Return the relative standard deviation of that expectation."""
        ...

    def is_untried(self, row: Row, resource: Resource) -> bool:
        """Whether that expectation is a guess that a policy which moves tasks is to try.

        Never without probing (`hetsched.estimates`).
        """
        ...


Objective: TypeAlias = Literal["performance", "energy", "edp"]
"""Measure of affinity: time, energy, or their product (loesch-2016, III-D)."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How well each resource that can run a row now fits it.

    Attributes:
        affinities: resource name -> affinity, in [0, 1].
        best: the one with the highest; None: no resource can run the row now.
        expected: resource name -> EET in whole nanoseconds, so that sums compare exactly.
        least_s: the least of these, in seconds; a second where no resource can run it.

    """

    affinities: dict[str, float]
    best: str | None
    expected: dict[str, Nanoseconds]
    least_s: float


class System:
    """Everything that a decision may depend on; read-only for policies."""

    objective: Objective = "performance"
    """Measure of affinity that the policy chose; set by the scheduler."""
    now: Nanoseconds = 0

    def __init__(  # noqa: PLR0915  one statement for each part
        self,
        resources: Sequence[Resource],
        estimates: Estimates,
        breaker: Breaker | None = None,
        contention: ContentionModel | None = None,
    ) -> None:
        self.resources = {resource.name: resource for resource in resources}
        self.states = {r.name: ResourceState(r) for r in resources}
        self.estimates = estimates
        self.tasks: dict[TaskId, TaskRecord] = {}
        self.unplaced = RunQueue()
        """Tasks that wait for a resource and are not placed by the policy yet."""
        self.displaced: list[RunQueue] = []
        """Tasks that were removed from run queues, and that the policy cannot see yet."""
        self.ending: set[TaskId] = set()
        """Tasks that ended and some of whose dependents are not handled yet."""
        self.arrays: dict[tuple[int, str], RunQueue] = {}
        """(owner, array) -> tasks that wait for other members of their array."""
        self.deferred: dict[int, RunQueue] = {}
        """Owner -> tasks beyond the owner's quota, or without a worker; hidden from policies."""
        self.blocked = BlockedTasks()
        """Tasks that wait for cores or memory (`hetsched.needs`); hidden from policies."""
        self.beginnings = Beginnings()
        """Tasks that may not begin yet."""
        self.unattended: set[int] = set()
        """Owners without a launcher that starts workers for their tasks."""
        self.departing: dict[TaskId, TaskRecord] = {}
        """Running tasks that were asked to yield or to end."""
        self.awaited: dict[TaskId, AwaitedTasks] = {}
        """Running task that waits for others -> those others (`hetsched.lending`)."""
        self.breaker = Breaker() if breaker is None else breaker
        """Applications that avoid a resource for now because they failed there."""
        self.tally = Tally()
        """Numbers of tasks of each type that arrived and that completed in time."""
        self.crowding = None if contention is None else Crowding(contention)
        """Contention for what resources share; None: it is not modelled."""
        self.graphs = JobGraphs(
            self._seconds_of, contention.seconds_per_byte() if contention else 0.0
        )
        """The jobs whose tasks depend on each other."""
        self.remembered: dict[str, Any] = {}
        """Functions of this state that planning keeps from one decision to the next."""
        self._fits: dict[Row, Fit] = {}
        self._version, self._usable = -1, list(self.states.values())

    # ------------------------------------------------------------ resources

    def usable(self) -> Iterator[str]:
        """Iterate over the names of the resources that accept tasks."""
        for state in self._usable:
            yield state.resource.name

    def usable_states(self) -> list[ResourceState]:
        """Return the states of the resources that accept tasks."""
        return self._usable

    def idle(self) -> list[str]:
        """Return the names of the resources with a slot that no task uses or will use."""
        found = [
            state.resource.name
            for state in self._usable
            if len(state.running) < state.slots
            and len(state.running) + len(state.queue) < state.slots
        ]
        if found and self.departing:
            return [name for name in found if self.spare(name) > self.inbound(name)]
        return found

    def queue(self, resource: str) -> RunQueue:
        return self.states[resource].queue

    def running(self, resource: str) -> list[TaskRecord]:
        return list(self.states[resource].running.values())

    def serves_others(self, resource: str, owner: int) -> bool:
        """Return whether tasks of other users than `owner` run on a resource."""
        running = self.states[resource].running.values()
        return any(task.submitted.owner != owner for task in running)

    def spare(self, resource: str) -> int:
        """Return the slots left by running and queued tasks; negative: tasks wait."""
        state = self.states[resource]
        if not state.usable:
            return 0
        return state.slots - len(state.running) - len(state.queue)

    def waiting(self, resource: str) -> Iterator[TaskRecord]:
        """Iterate over the first waiting task of each row, without those for free slots.

        A slot also counts as free when its task was asked to make way.
        """
        state = self.states[resource]
        if not state.usable:
            return state.queue.heads()
        free = state.slots - len(state.running)
        return state.queue.heads(free + self.making_way(resource))

    def making_way(self, resource: str) -> int:
        """Count the running tasks that were asked to yield for one that waits there."""
        if not self.departing:
            return 0
        return sum(
            t.makes_way and t.resource == resource for t in self.departing.values()
        )

    def opening(self, resource: str) -> int:
        """Count the slots that are free or whose task was asked to leave."""
        state = self.states[resource]
        free = state.slots - len(state.running)
        return free + self.leaving(resource)

    def leaving(self, resource: str) -> int:
        """Count the running tasks that were asked to yield or to end."""
        if not self.departing:
            return 0
        return sum(task.resource == resource for task in self.departing.values())

    def inbound(self, resource: str) -> int:
        """Count the running tasks that will move to `resource` at their next checkpoint."""
        if not self.departing:
            return 0
        return sum(task.destination == resource for task in self.departing.values())

    def has_backlog(self) -> bool:
        """Whether tasks wait for slots that others have."""
        return any(state.queue.entries for state in self.states.values())

    def ends_within(self, seconds: float) -> bool:
        """Whether no task waits, and a running one is expected to take less than `seconds`.

        A task that is overdue by as much is not expected to end soon.
        """
        states = self.states.values()
        if self.unplaced or self.blocked or any(state.queue for state in states):
            return False
        limit = self.now - 2 * int(seconds * SECOND)
        return any(
            task.since >= limit
            and self.estimates.seconds(task.row, state.resource) < seconds
            for state in states
            for task in state.running.values()
        )

    def array_queue(self, task: TaskRecord) -> RunQueue | None:
        """Return the queue in which a task waits for others of its array; None: it does not."""
        if not self.arrays:
            return None
        queue = self.arrays.get((task.submitted.owner, task.submitted.array))
        return queue if queue is not None and task in queue else None

    # ------------------------------------------------------------ jobs

    def job_of(self, task: TaskRecord) -> JobGraph | None:
        """Return the job of a task; None: it belongs to none, and no task depends on it."""
        node = self.graphs.nodes.get(task.id)
        return None if node is None else node.job

    def rank(self, task: TaskRecord) -> float:
        """Return the upward rank of a task, in seconds.

        The mean of its expected times, and the longest chain of mean times and transfers
        of tasks that depend on it (Topcuoglu et al., 2002, equation 8).
        """
        node = self.graphs.nodes.get(task.id)
        return self._seconds_of(task.row)[0] if node is None else node.rank

    def work_left(self, job: JobGraph) -> float:
        """Return the sum of the least expected times of a job's unfinished tasks, seconds."""
        return job.work_left

    def work_left_of(self, task: TaskRecord) -> float:
        """Return the work left of a task's job; its own least time where it has none."""
        node = self.graphs.nodes.get(task.id)
        return self.fit(task.row).least_s if node is None else node.job.work_left

    def inputs_of(self, task: TaskRecord) -> list[tuple[str, int]]:
        """List the resources on which the inputs of a task lie, and their bytes."""
        return self.graphs.inputs_of(task.id)

    def _seconds_of(self, row: Row) -> tuple[float, float]:
        """Return the mean and the least of the expected times of a row, in seconds."""
        fit = self.fit(row)
        if not fit.expected:
            return fit.least_s, fit.least_s
        return sum(fit.expected.values()) / len(fit.expected) / SECOND, fit.least_s

    # ------------------------------------------------------------ contention

    def stretch(self, row: Row, resource: str) -> float:
        """Return the factor by which a task that starts now is expected to take longer.

        Slower than alone, because of the tasks that run and of what is believed about
        other programs; 1 where contention is not modelled.
        """
        if self.crowding is None:
            return 1.0
        loads = self.crowding.model.loads_of(row.type, resource)
        return self.crowding.slowdown_if_started(loads, self.now)

    def expected(self, row: Row, resource: str) -> float:
        """Return the seconds that a whole task is expected to take if it starts now.

        Infinite where it cannot run; without the time of transfers.
        """
        seconds = self.seconds(row, resource)
        return seconds if seconds == math.inf else seconds * self.stretch(row, resource)

    def alone(self, task: TaskRecord, resource: str) -> tuple[float, Loads]:
        """Return the seconds of a whole task alone with its transfers, and its loads.

        Its inputs are copied from where they lie, unless it has progressed already.
        """
        seconds = self.seconds(task.row, resource)
        if seconds == math.inf:
            return seconds, ()
        inputs = [] if task.progress > 0.0 else self.inputs_of(task)
        if self.crowding is not None:
            model = self.crowding.model
            transfer = model.transfer(inputs, resource) if inputs else {}
            return model.with_transfer(task.row.type, resource, seconds, transfer)
        for source, size in inputs:
            if source != resource:
                seconds += size * (self._pace(source) + self._pace(resource))
        return seconds, ()

    def load(self, task: TaskRecord) -> None:
        """Enter the load of a task that starts to run. Called by the state only."""
        if self.crowding is not None and task.resource is not None:
            alone, loads = self.alone(task, task.resource)
            there = self.resources[task.resource]
            spread = self.estimates.spread(task.row, there)
            self.crowding.enter(task.id, alone, loads, self.now, spread)

    def unload(self, task: TaskRecord) -> None:
        """Remove the load of a task that runs no longer. Called by the state only."""
        if self.crowding is not None:
            self.crowding.leave(task.id, self.now)

    def _pace(self, resource: str) -> float:
        """Return the seconds per byte of a resource's link; 0 without one."""
        rate = self.resources[resource].link_bytes_per_s
        return 1.0 / rate if rate else 0.0

    # ------------------------------------------------------------ estimates

    def feasible(self, row: Row) -> list[str]:
        """Return the names of the resources that can run tasks of `row` now."""
        return list(self.affinities(row))

    def fit(self, row: Row) -> Fit:
        """Return how resources fit `row` now; cached until an estimate changes."""
        if self._version != self.estimates.version:
            self._fits.clear()
            self._version = self.estimates.version
        found = self._fits.get(row)
        if found is None:
            found = self._fits[row] = self._measure(row)
        return found

    def affinities(self, row: Row) -> dict[str, float]:
        """Return the affinity of `row` to each resource that can run it (loesch-2016, III-C)."""
        return self.fit(row).affinities

    def affinity(self, row: Row, resource: str) -> float:
        """Return A(p, R) = c(p, R_best) / c(p, R), in [0, 1]; 0 where `row` cannot run.

        c is the execution time, or the energy or energy-delay product by `objective`.
        """
        return self.fit(row).affinities.get(resource, 0.0)

    def best(self, row: Row) -> str | None:
        """Return the resource with the highest affinity; the first by name among equals."""
        return self.fit(row).best

    def seconds(self, row: Row, resource: str) -> float:
        """Return the EET of a whole task on `resource`; infinite where it cannot run."""
        if resource not in self.affinities(row):
            return math.inf
        return self.estimates.seconds(row, self.resources[resource])

    def progress(self, task: TaskRecord) -> float:
        """Return the share of a task done by now: as reported, extrapolated by its EET."""
        if task.resource is None or task.id not in self.states[task.resource].running:
            return task.progress
        expected = self.estimates.seconds(task.row, self.resources[task.resource])
        elapsed = (self.now - task.progress_at) / SECOND
        return min(task.limit, task.progress + elapsed / max(expected, 1e-9))

    def left(self, task: TaskRecord) -> float:
        """Return the share of the whole work that a task itself has left by now."""
        return max(task.limit - self.progress(task), 0.0)

    def remaining(self, task: TaskRecord, resource: str) -> float:
        """Return the seconds that a task's rest takes on `resource`; inf: it cannot run."""
        seconds = self.seconds(task.row, resource)
        if seconds == math.inf:
            return seconds  # infinity times 0 would be NaN
        return seconds * self.left(task)

    def remaining_spread(self, task: TaskRecord, resource: str) -> float:
        """Return the standard deviation of `remaining`, in seconds; inf: it cannot run."""
        seconds = self.remaining(task, resource)
        if seconds == math.inf:
            return math.inf
        return seconds * self.estimates.spread(task.row, self.resources[resource])

    def is_untried(self, row: Row, resource: str) -> bool:
        """Whether `row` has never been measured on `resource`, and is to be tried there."""
        return self.estimates.is_untried(row, self.resources[resource])

    def resources_changed(self) -> None:
        """Recompute which resources are usable. Called when the state of one changed."""
        self._usable = [state for state in self.states.values() if state.usable]
        self._fits.clear()

    def clear_fits(self) -> None:
        """Clear the cache of fits. Called when rows are removed."""
        self._fits.clear()

    def set_objective(self, objective: Objective) -> None:
        """Set what affinity is measured by. Called when the policy changes."""
        self.objective = objective
        self._fits.clear()

    def energy(self, row: Row, resource: str) -> float:
        """Return the joules that a whole task of `row` is expected to draw on `resource`."""
        return self.seconds(row, resource) * watts_of(self.resources[resource])

    def possible(self, row: Row) -> bool:
        """Whether any resource can run `row`, now or when it is usable again."""
        return any(self._expected(row, name) < math.inf for name in self.resources)

    def able(self, row: Row) -> frozenset[str]:
        """Return the resources that can run `row`, now or when they are usable again."""
        return frozenset(
            name for name in self.resources if self._expected(row, name) < math.inf
        )

    def _measure(self, row: Row) -> Fit:
        expected = {name: self._expected(row, name) for name in self.usable()}
        costs = {name: self._cost(seconds, name) for name, seconds in expected.items()}
        least = min(costs.values(), default=math.inf)
        affinities = {
            name: (least / cost if cost > 0 else 1.0)
            for name, cost in costs.items()
            if cost < math.inf
        }
        best = min(affinities, key=lambda r: (-affinities[r], r), default=None)
        whole = {
            name: round(min(expected[name], LONGEST_S) * SECOND) for name in affinities
        }
        least_s = min(whole.values(), default=SECOND) / SECOND
        return Fit(affinities, best, whole, least_s)

    def _cost(self, seconds: float, name: str) -> float:
        """Return the cost of an execution time under the objective."""
        if self.objective == "performance" or seconds == math.inf:
            return seconds
        # Without power figures all resources are assumed to draw the same.
        joules = seconds * (watts_of(self.resources[name]) or 1.0)
        return joules if self.objective == "energy" else joules * seconds

    def _expected(self, row: Row, name: str) -> float:
        resource = self.resources[name]
        allowed = not row.resources or name in row.resources
        if not allowed or resource.kind not in row.kinds:
            return math.inf
        return self.estimates.seconds(row, resource)


class Tally:
    """Counts tasks by type.

    A type that no task has any more is forgotten when `MOST_TYPES` others have become such
    since: names of types are users', and there may be a new one with each task.
    """

    def __init__(self) -> None:
        self.arrived: dict[str, int] = {}
        self.on_time: dict[str, int] = {}
        """Completed by their deadline, or without one."""
        self._live: dict[str, int] = {}
        self._past: dict[str, None] = {}
        """Types without tasks, those for longest first."""

    def arrive(self, task_type: str) -> None:
        self.arrived[task_type] = self.arrived.get(task_type, 0) + 1
        self._live[task_type] = self._live.get(task_type, 0) + 1
        self._past.pop(task_type, None)

    def end(self, task_type: str, *, on_time: bool) -> None:
        """Count the end of a task that has arrived."""
        if on_time:
            self.on_time[task_type] = self.on_time.get(task_type, 0) + 1
        self._live[task_type] -= 1
        if self._live[task_type]:
            return
        del self._live[task_type]
        self._past[task_type] = None
        if len(self._past) > MOST_TYPES:
            oldest = next(iter(self._past))
            del self._past[oldest], self.arrived[oldest]
            self.on_time.pop(oldest, None)

    def rates(self) -> dict[str, float]:
        """Return the share of arrived tasks that completed in time, by type."""
        return {
            task_type: self.on_time.get(task_type, 0) / arrived
            for task_type, arrived in self.arrived.items()
        }
