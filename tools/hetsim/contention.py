"""Contention: tasks that run at once slow each other down through what they share.

Rates are constant between events. Whenever a task starts or leaves, or other programs take
another load, the tasks that are bound to the same shared resources advance at their old
rate, and go on at the new one (`hetsched.contention`).
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol

from hetsched import events as e
from hetsched.belief import COUNTERS
from hetsched.contention import (
    LAWS,
    ContentionModel,
    Load,
    SharedResource,
    Tenants,
    slowdown,
)
from hetsched.system import SECOND
from hetsim.agenda import Order
from hetsim.scenario import DrawnBackground
from hetsim.workload import nanoseconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hetsched.contention import Loads
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsim.agenda import Agenda, Ticket
    from hetsim.scenario import CounterModel, Scenario, TypeModel
    from hetsim.workers import Preparation
    from hetsim.workload import Job

REPORT_NS = 2 * SECOND
"""Least time between two reports of progress."""
ALMOST = 1e-9
"""Share of a strip that rounding may leave."""


def model_of(scenario: Scenario) -> ContentionModel | None:
    """Describe to the scheduler what is shared; None: nothing is. It assumes `max`."""
    if not scenario.shared:
        return None
    background = scenario.background
    tenants = Tenants()
    if isinstance(background, DrawnBackground):
        levels, weights = tuple(background.levels), tuple(background.weights)
        tenants = Tenants(levels, weights, background.mean_s, background.scale)
    shared = [SharedResource(x.name, x.kind, x.bytes_per_s) for x in scenario.shared]
    uses = {each.name: each.uses for each in scenario.resources}
    loads = {
        (kind.name, name): _loads_on(kind, name)
        for kind in scenario.types
        for name in {**kind.load, **kind.bound}
    }
    counters = scenario.counters
    belief = "filter" if counters is None else counters.belief
    return ContentionModel(shared, uses, loads, tenants, belief=belief)


def _loads_on(kind: TypeModel, name: str) -> Loads:
    demand, bound = kind.load.get(name, {}), kind.bound.get(name, {})
    return tuple(
        Load(shared, demand.get(shared, 0.0), bound.get(shared, 0.0))
        for shared in {**demand, **bound}
    )


class Shell(Protocol):
    """The simulation, for what happens again and again while it goes on."""

    agenda: Agenda

    def goes_on(self) -> bool:
        """Whether any task may still run; nothing is drawn afterwards."""
        ...


class ContendedNode:
    """The shared resources and the tasks that compute on them.

    Attributes:
        demand: offered load of each shared resource, of tasks and of other programs.

    """

    def __init__(self, scenario: Scenario, model: ContentionModel) -> None:
        self.model = model
        self.demand = dict.fromkeys(model.shared, 0.0)
        self._law = LAWS[scenario.contention.law]
        self._tasks = dict.fromkeys(model.shared, 0.0)
        self._others = dict.fromkeys(model.shared, 0.0)
        self._bound: dict[str, dict[ContendedRun, None]] = {
            name: {} for name in model.shared
        }

    def join(self, run: ContendedRun, now: Nanoseconds) -> None:
        """Let a task compute from now on."""
        affected = self._affected([load.shared for load in run.loads], now)
        for load in run.loads:
            self._bound[load.shared][run] = None
        self._offer(run.loads, 1.0)
        self._go_on([run, *affected], now)

    def leave(self, run: ContendedRun, now: Nanoseconds) -> None:
        """Let a task compute no longer."""
        for load in run.loads:
            self._bound[load.shared].pop(run, None)
        affected = self._affected([load.shared for load in run.loads], now)
        self._offer(run.loads, -1.0)
        self._go_on(affected, now)

    def burden(self, shared: str, load: float, now: Nanoseconds) -> None:
        """Let other programs offer another load to a shared resource."""
        affected = self._affected([shared], now)
        self._others[shared] = load
        self._sum(shared)
        self._go_on(affected, now)

    def slowdown_of(self, loads: Loads) -> float:
        """Return the factor by which a task takes longer than alone at this instant."""
        return slowdown(loads, self.demand, self._law)

    def _affected(self, names: Iterable[str], now: Nanoseconds) -> list[ContendedRun]:
        """Advance the tasks that are bound to shared resources, and list them."""
        runs = list(dict.fromkeys([run for name in names for run in self._bound[name]]))
        for run in runs:
            run.advance(now)
        return runs

    def _offer(self, loads: Loads, sign: float) -> None:
        for load in loads:
            self._tasks[load.shared] += sign * load.demand
            if not self._bound[load.shared]:
                self._tasks[load.shared] = 0.0  # rounding errors must not add up
            self._sum(load.shared)

    def _sum(self, name: str) -> None:
        self.demand[name] = self._tasks[name] + self._others[name]

    def _go_on(self, runs: list[ContendedRun], now: Nanoseconds) -> None:
        for run in runs:
            run.go_on(self.slowdown_of(run.loads), now)


class ContendedWorkers:
    """The slots of a resource whose tasks use what others use too."""

    def __init__(
        self, name: str, preparation: Preparation, agenda: Agenda, node: ContendedNode
    ) -> None:
        self.name = name
        self.agenda = agenda
        self.preparation = preparation
        self.node = node

    def start(self, job: Job, epoch: int, now: Nanoseconds) -> ContendedRun:
        transfer: dict[str, float] = {}
        if job.home is None and job.inputs:
            places = [(source.home or self.name, size) for source, size in job.inputs]
            transfer = self.node.model.transfer(places, self.name)
        begin = self.preparation.begin(job, self.name, now)
        alone = job.actual[self.name] / SECOND
        whole, loads = self.node.model.with_transfer(
            job.kind.name, self.name, alone, transfer
        )
        run = ContendedRun(self, job, epoch, begin)
        run.total, run.loads = whole * SECOND, loads
        if begin > now:
            run.ticket = self.agenda.add(begin, Order.WORKER, run)
        else:
            run.enter(now)
        return run


class ContendedRun:
    """A segment of a task that shares memory, links or cores with others.

    Attributes:
        total: nanoseconds of the whole task alone, with its transfers.
        ticket: its valid entry in the agenda.

    """

    def __init__(
        self, workers: ContendedWorkers, job: Job, epoch: int, begin: Nanoseconds
    ) -> None:
        self.job = job
        self.epoch = epoch
        self.total = 0.0
        self.loads: Loads = ()
        self.ticket: Ticket = -1
        self._workers = workers
        self._begin = begin
        self._done = 0.0
        """Nanoseconds of the segment's work alone that are done."""
        self._seen = begin
        self._factor = 1.0
        self._stop = self._told = job.done
        self._told_at = begin
        self._asked = self._computing = self._copying = False

    def enter(self, now: Nanoseconds) -> None:
        """Start to compute."""
        self._computing = True
        self._seen = self._told_at = now
        self._workers.node.join(self, now)

    def advance(self, now: Nanoseconds) -> None:
        """Count the work done at the present rate."""
        self._done += (now - self._seen) / self._factor
        self._seen = now

    def go_on(self, factor: float, now: Nanoseconds) -> None:
        """Go on at another rate; `advance` was called."""
        self._factor = factor
        self._aim(now)

    def preempt(self, now: Nanoseconds) -> None:
        self._asked = True
        if self._computing:
            self.advance(now)
            self._aim(now)

    def abandon(self, now: Nanoseconds) -> None:
        self.ticket = -1
        self._close(now)
        self.job.lose()

    def first_to_give(self, now: Nanoseconds) -> int:
        if not self._computing:
            return self.job.done
        self.advance(now)
        return self._strips_by(self._done)

    def shorten(self, now: Nanoseconds) -> None:
        if self._computing:
            self.advance(now)
            self._aim(now)

    def happen(self, now: Nanoseconds, ticket: Ticket) -> Event | None:
        """Start to compute, finish, yield or report."""
        if ticket != self.ticket:
            return None
        if not self._computing:
            return self._prepared(now)
        self._done, self._seen = self._work_of(self._stop), now
        if self._asked or self._stop == self.job.limit:
            return self._end(now)
        return self._report(now)

    def _prepared(self, now: Nanoseconds) -> Event | None:
        """Start to compute when the state is there; yield when it is copied out."""
        if self._copying:
            return self._yield()
        if self._asked:
            return self._copy_out(now)
        self.enter(now)
        return None

    def _end(self, now: Nanoseconds) -> Event | None:
        self._close(now)
        job = self.job
        job.done = self._stop
        if job.is_done:
            job.run = None
            return e.TaskFinished(job.id, self.epoch)
        return self._copy_out(now)

    def _report(self, now: Nanoseconds) -> Event:
        job = self.job
        share = (self._stop - self._told) / job.strips
        seconds = (now - self._told_at) / SECOND
        self._told, self._told_at = self._stop, now
        self._aim(now)
        progress = self._told / job.strips
        return e.StripsDone(job.id, self.epoch, progress, share, seconds)

    def _copy_out(self, now: Nanoseconds) -> Event | None:
        """Yield when the state is copied out, which takes time where there is a link."""
        took = self._workers.preparation.copying(self.job, self._workers.name)
        if not took:
            return self._yield()
        self._copying = True
        self.ticket = self._workers.agenda.add(now + took, Order.WORKER, self)
        return None

    def _yield(self) -> Event:
        job = self.job
        job.run = None
        return e.TaskYielded(job.id, self.epoch, job.done / job.strips)

    def _close(self, now: Nanoseconds) -> None:
        """Close the segment in which it computed."""
        if self._computing:
            self._computing = False
            self._workers.node.leave(self, now)
            if now > self._begin:
                segment = (self._workers.name, self._begin, now)
                self.job.segments.append(segment)

    def _aim(self, now: Nanoseconds) -> None:
        """Enter the instant at which it stops, or reports next."""
        job = self.job
        if self._asked:
            self._stop = self._strips_by(self._done)
        elif job.strips > 1:
            pause = self._told_at + REPORT_NS - now
            self._stop = self._strips_by(self._done + max(pause, 0) / self._factor)
            self._stop = max(self._stop, min(self._told + 1, job.limit))
        else:
            self._stop = job.limit
        left = max(self._work_of(self._stop) - self._done, 0.0)
        at = now + math.ceil(left * self._factor - ALMOST)
        self.ticket = self._workers.agenda.add(at, Order.WORKER, self)

    def _work_of(self, strips: int) -> float:
        """Return the work of the segment up to the end of a strip, in nanoseconds."""
        job = self.job
        if job.ends:
            return (job.ends[strips] - job.ends[job.done]) * self.total
        return (strips - job.done) * self.total / job.strips

    def _strips_by(self, work: float) -> int:
        """Count the strips done at the first checkpoint from this work on."""
        job = self.job
        share = work / self.total if self.total > 0 else 1.0
        if job.ends:
            strips = bisect_left(job.ends, job.ends[job.done] + share - ALMOST)
        else:
            strips = job.done + math.ceil(share * job.strips - ALMOST)
        return min(max(strips, job.done), job.limit)


class DrawnChange:
    """Draws the load of other programs on a shared resource, and enters the next change."""

    def __init__(
        self,
        shared: str,
        background: DrawnBackground,
        node: ContendedNode,
        shell: Shell,
        seed: int,
    ) -> None:
        self._shared = shared
        self._background = background
        self._node = node
        self._shell = shell
        self._generator = random.Random(f"background {seed} {shared}")
        kind = node.model.shared[shared].kind
        factor = background.scale.get(kind, 1.0)
        self._levels = [factor * level for level in background.levels]

    def happen(self, now: Nanoseconds, ticket: Ticket) -> Event | None:
        if self._shell.goes_on():
            draw = self._generator
            load = draw.choices(self._levels, self._background.weights)[0]
            self._node.burden(self._shared, load, now)
            pause = draw.expovariate(1.0 / self._background.mean_s)
            at = now + max(nanoseconds(pause), 1)
            self._shell.agenda.add(at, Order.RESOURCE, self)
        return None


class GivenChange:
    """Other programs offer another load to a shared resource, as the scenario says."""

    def __init__(self, shared: str, load: float, node: ContendedNode) -> None:
        self._shared = shared
        self._load = load
        self._node = node

    def happen(self, now: Nanoseconds, ticket: Ticket) -> Event | None:
        self._node.burden(self._shared, self._load, now)
        return None


class CounterSampler:
    """Reads the counters of all shared resources, with noise and gaps."""

    def __init__(
        self, counters: CounterModel, node: ContendedNode, shell: Shell, seed: int
    ) -> None:
        self._counters = counters
        self._node = node
        self._shell = shell
        self._generator = random.Random(f"counters {seed}")

    def happen(self, now: Nanoseconds, ticket: Ticket) -> Event | None:
        """Read the counters, and enter the next reading."""
        if not self._shell.goes_on():
            return None
        at = now + nanoseconds(self._counters.every_s)
        self._shell.agenda.add(at, Order.RESOURCE, self)
        readings = [
            self._sample(shared, counter, COUNTERS[counter](load), noise)
            for shared, load in self._node.demand.items()
            for counter, noise in self._counters.noise.items()
            if self._generator.random() >= self._counters.missing
        ]
        return e.CountersRead(tuple(readings)) if readings else None

    def _sample(
        self, shared: str, counter: str, value: float, noise: float
    ) -> e.CounterReading:
        # mean and deviation of samples are drawn directly: they are independent, the mean
        # is normal, and (n - 1) S^2 / noise^2 has a chi-squared distribution
        count, draw = self._counters.samples, self._generator
        mean = draw.gauss(value, noise / math.sqrt(count))
        squares = draw.gammavariate((count - 1) / 2.0, 2.0)
        deviation = noise * math.sqrt(squares / (count - 1))
        return e.CounterReading(shared, counter, mean, deviation, count)


def enter_background(
    scenario: Scenario, node: ContendedNode, shell: Shell, seed: int
) -> None:
    """Enter the changes of other programs' load, and the readings of counters.

    Args:
        scenario: with what is shared.
        node: whose load changes.
        shell: in whose agenda they are entered.
        seed: of loads and noise.

    """
    agenda, background = shell.agenda, scenario.background
    if isinstance(background, DrawnBackground):
        for each in scenario.shared:
            change = DrawnChange(each.name, background, node, shell, seed)
            agenda.add(0, Order.RESOURCE, change)
    else:
        for given in background:
            for at, load in given.steps:
                change_then = GivenChange(given.shared, load, node)
                agenda.add(nanoseconds(at), Order.RESOURCE, change_then)
    if scenario.counters is not None:
        sampler = CounterSampler(scenario.counters, node, shell, seed)
        agenda.add(0, Order.RESOURCE, sampler)
