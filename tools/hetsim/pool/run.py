"""A pool in modelled time: jobs arrive, are placed, pull their data, compute; nodes are lost.

New jobs are placed beside what the ledger of the broker holds, and the jobs of a lost node
elsewhere, as in the live pool. With `replan` what has not begun moves when a later plan ends
sooner by as much, and as rarely, as the live broker demands (`hetpool.broker.replanning`).
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from bisect import insort
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from hetpool.broker.ledger import Ledger
from hetpool.broker.racks import RackPlanner
from hetpool.broker.replanning import LEAST_GAIN, LEAST_PAUSE_S, SLACK_S, longest
from hetpool.messages import Join
from hetpool.placing import Commitments
from hetsim.pool.network import PoolNetwork
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hetpool.jobs import PlanEntry, PoolJob, PoolPlan
    from hetsched.planning.batch.planners import Planner
    from hetsim.pool.model import HostLoss, PoolModel
    from hetsim.pool.network import TransferWay

Place: TypeAlias = tuple[str, str]
"""Node and slot."""

LOOK_S = 1.0
"""Seconds between two looks of the broker at what is due."""


@dataclass(frozen=True, slots=True)
class PoolRunSettings:
    """How a pool is run. Times are seconds.

    Attributes:
        planner: its name; `made`: itself.
        transfers: see `TransferWay`.
        share: of the links' rates that plans use.
        window: for which jobs are gathered into a batch.
        replace: from the loss of a node until its jobs are placed elsewhere.
        replan: move what has not begun, after a batch, a loss, a return, a deviation.
        deviation: share by which a job may end early or late before that is done.
        rack: nodes that are planned together; 0: all.
        error: share by which times differ from what is expected, uniform.
        seed: of the errors.

    """

    planner: str
    made: Planner
    transfers: TransferWay = "ordered"
    share: float = 1.0
    window: float = 0.0
    replace: float = 5.0
    replan: bool = True
    deviation: float = 0.2
    rack: int = 0
    error: float = 0.0
    seed: int = 0


@dataclass(slots=True, eq=False)
class PooledJob:
    """A job and what became of it. Times are seconds.

    Attributes:
        entry: its place in the newest plan; None: it has none.
        here: whether its data is on its node.
        start: when it began to compute, in its last attempt; `finish`: its end.
        begun: attempts.

    """

    job: PoolJob
    entry: PlanEntry | None = None
    here: bool = False
    start: float = math.inf
    finish: float = math.inf
    expected: float = math.inf
    begun: int = 0

    @property
    def place(self) -> Place | None:
        return (self.entry.node, self.entry.resource) if self.entry else None

    def rank(self) -> float:
        """Return its position among the jobs of its slot."""
        return self.entry.order if self.entry else math.inf

    @property
    def computing(self) -> bool:
        return self.start < math.inf and self.finish == math.inf


@dataclass(slots=True)
class PlanCost:
    """Processor seconds of each plan, and the number of its jobs."""

    seconds: list[float] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)


class PoolRun:
    """One run of a model. `run` does it; the attributes hold what happened."""

    def __init__(self, model: PoolModel, settings: PoolRunSettings) -> None:
        self.model = model
        self.settings = settings
        self.jobs = [PooledJob(job) for job in model.jobs]
        self._planner = RackPlanner(
            settings.planner, settings.made, settings.rack, settings.share
        )
        self.now = 0.0
        self.cost = PlanCost()
        self.first_makespan = 0.0
        self.replaced = 0
        self.moved = 0
        self.lost_seconds = 0.0
        self.events = 0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count()
        self._network = PoolNetwork(
            model.nodes.values(),
            settings.transfers,
            self._at,
            self._data_here,
            self._data_lost,
        )
        self._ledger = Ledger(nodes=dict(model.nodes))
        self._waiting: list[PooledJob] = []
        self._queues: dict[Place, list[PooledJob]] = {
            place: [] for place in model.accelerators
        }
        self._running: dict[Place, PooledJob | None] = dict.fromkeys(model.accelerators)
        self._planning = False
        self._looking = False
        self._next_look = 0.0
        self._actual = self._actual_seconds()

    def run(self) -> None:
        """Run until nothing is left to happen."""
        for number, arrival in enumerate(self.model.arrivals):
            self._at(arrival, lambda job=self.jobs[number]: self._arrive(job))  # type: ignore[misc]
        for loss in self.model.losses:
            self._at(loss.at, lambda loss=loss: self._lose(loss))  # type: ignore[misc]
        for place, number in self.model.accelerators.items():
            free = self.model.free_at[number]
            if free > 0:
                self._at(free, lambda place=place: self._start_next(place))  # type: ignore[misc]
        with threadpool_limits(1):
            while self._agenda:
                self.now, _, happen = heapq.heappop(self._agenda)
                self.events += 1
                happen()

    # -------------------------------------------------------------- what happens

    def _at(self, when: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (when, next(self._sequence), happen))

    def _arrive(self, job: PooledJob) -> None:
        self._waiting.append(job)
        self._plan_soon(self.settings.window)

    def _plan_soon(self, delay: float = 0.0) -> None:
        if not self._planning:
            self._planning = True
            self._at(self.now + delay, self._plan)

    def _data_here(self, number: str, _now: float) -> None:
        job = self.jobs[int(number)]
        job.here = True
        if job.place is not None:
            self._start_next(job.place)

    def _data_lost(self, number: str, _now: float) -> None:
        """Let a job wait until a node returns that has its data."""
        job = self.jobs[int(number)]
        self._take_away(job)
        self._waiting.append(job)

    def _finish(self, job: PooledJob, place: Place, attempt: int) -> None:
        if not job.computing or job.begun != attempt:
            return
        job.finish = self.now
        self._running[place] = None
        self._ledger.set_ended(job.job.id, ended=True)
        self._note_deviation(job)
        self._start_next(place)

    def _lose(self, loss: HostLoss) -> None:
        self._ledger.lose(loss.node, self.now)
        self._network.lose(loss.node, self.now)
        orphans = [
            job
            for job in self.jobs
            if job.entry and job.entry.node == loss.node and job.finish == math.inf
        ]
        for job in orphans:
            if job.computing and job.place is not None:
                self.lost_seconds += self.now - job.start
                self._enter(job, job.place)
            job.start, job.here = math.inf, False
        for place in self._running:
            if place[0] == loss.node:
                self._running[place] = None
        if loss.back < math.inf:
            self._at(loss.back, lambda: self._return(loss.node))
        if orphans:
            self._at(
                self.now + self.settings.replace, lambda: self._replace(loss, orphans)
            )

    def _replace(self, loss: HostLoss, orphans: Sequence[PooledJob]) -> None:
        """Place the jobs of a lost node elsewhere, unless it is back."""
        if self._ledger.lost_at.get(loss.node) != loss.at:
            return
        for job in orphans:
            self._take_away(job)
            self._waiting.append(job)
        self.replaced += len(orphans)
        self._plan_soon()

    def _return(self, node: str) -> None:
        """Let a node begin again: what was placed there pulls its data again."""
        self._ledger.join(Join(self.model.nodes[node]))
        self._network.regain(node)
        for place, queue in self._queues.items():
            if place[0] == node:
                for job in list(queue):
                    self._send(job)
        self._plan_soon()
        self._look_soon()

    # ---------------------------------------------------------------- computing

    def _start_next(self, place: Place) -> None:
        """Let an idle slot begin the first of its jobs whose data is there."""
        free = self.model.free_at[self.model.accelerators[place]]
        lost = place[0] in self._ledger.lost_at
        if self._running[place] or lost or self.now < free:
            return
        queue = self._queues[place]
        job = next((job for job in queue if job.here), None)
        if job is None:
            return
        queue.remove(job)
        self._running[place] = job
        number = self.model.accelerators[place]
        index = int(job.job.id)
        job.begun += 1
        job.start = self.now
        job.expected = float(self.model.seconds[index, number])
        end = self.now + float(self._actual[index, number])
        attempt = job.begun
        self._at(end, lambda: self._finish(job, place, attempt))

    def _actual_seconds(self) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        error = self.settings.error
        if not error:
            return self.model.seconds
        random = np.random.default_rng(self.settings.seed)
        factors = random.uniform(1 - error, 1 + error, self.model.seconds.shape)
        return np.asarray(self.model.seconds * factors)

    # ----------------------------------------------------------------- planning

    def _plan(self) -> None:
        self._planning = False
        batch = self._waiting
        if not batch:
            return
        self._waiting = []
        entries = self._planned([job.job for job in batch])
        for job in batch:
            entry = entries.get(job.job.id)
            if entry is None:
                self._waiting.append(job)
            else:
                self._put(job, entry)
        self._look_soon()

    def _note_deviation(self, job: PooledJob) -> None:
        """Let what has not begun be planned again if a job was far off its plan."""
        placed = self._ledger.placed[job.job.id]
        planned = placed.entry.finish
        off = abs(self.now - placed.planned_at - planned)
        if off > self.settings.deviation * planned + SLACK_S:
            self._look_soon()

    def _look_soon(self) -> None:
        """Plan again what has not begun, at the next occasion."""
        if self.settings.replan and not self._looking:
            self._looking = True
            self._at(max(self.now + LOOK_S, self._next_look), self._look)

    def _look(self) -> None:
        """Move what has not begun if that ends all of it sooner."""
        self._looking = False
        movable = [
            job
            for place, queue in self._queues.items()
            if place[0] not in self._ledger.lost_at
            for job in queue
        ]
        if not movable:
            return
        self._next_look = self.now + LEAST_PAUSE_S
        jobs = [job.job for job in movable]
        plan = self._made_plan(jobs)
        if plan.makespan >= (1 - LEAST_GAIN) * longest(self._ledger, self.now, jobs):
            return
        entries = {entry.job: entry for entry in plan.entries}
        for job in movable:
            entry = entries.get(job.job.id)
            if entry and job.entry and entry.node != job.entry.node:
                self._take_away(job)
                self._put(job, entry)
                self.moved += 1

    def _planned(self, jobs: list[PoolJob]) -> dict[str, PlanEntry]:
        plan = self._made_plan(jobs)
        if plan.entries and len(self.cost.jobs) == 1:
            self.first_makespan = plan.makespan
        return {entry.job: entry for entry in plan.entries}

    def _made_plan(self, jobs: list[PoolJob]) -> PoolPlan:
        nodes = [node for node in self._ledger.nodes.values() if node.present]
        began = time.process_time()
        held = self._commitments([job.id for job in jobs])
        plan, _ = self._planner.plan(jobs, nodes, held, self._ledger.order)
        if plan.entries:
            self.cost.seconds.append(time.process_time() - began)
            self.cost.jobs.append(len(jobs))
        return plan

    def _commitments(self, without: Sequence[str]) -> Commitments:
        """Add to what the ledger holds the time until slots are free for this batch."""
        held = self._ledger.commitments(self.now, without)
        busy = {place: list(seconds) for place, seconds in held.busy.items()}
        for place, number in self.model.accelerators.items():
            free = self.model.free_at[number] - self.now
            if free > 0:
                busy.setdefault(place, []).append(free)
        return Commitments(busy, held.promised)

    def _put(self, job: PooledJob, entry: PlanEntry) -> None:
        """Give a job its place, and let the node pull its data."""
        entry = replace(entry, errand=entry.job)
        job.entry = entry
        self._ledger.place([job.job], [entry], self.now)
        self._enter(job, (entry.node, entry.resource))
        self._send(job)

    def _enter(self, job: PooledJob, place: Place) -> None:
        insort(self._queues[place], job, key=PooledJob.rank)

    def _send(self, job: PooledJob) -> None:
        assert job.entry is not None  # noqa: S101  it was placed
        if job.job.inputs:
            self._network.begin(job.entry, job.job.inputs[0], self.now)
        else:
            job.here = True
            self._start_next((job.entry.node, job.entry.resource))

    def _take_away(self, job: PooledJob) -> None:
        """Take a job that does not compute from its place."""
        if job.entry is None:
            return
        queue = self._queues[job.entry.node, job.entry.resource]
        if job in queue:
            queue.remove(job)
        self._network.drop(job.job.id, job.entry.node)
        self._ledger.forget(job.job.id)
        job.entry, job.here, job.start = None, False, math.inf

    def transfer(self, job: PooledJob) -> tuple[float, float] | None:
        """Return when the data of a job was sent, seconds; None: it has none."""
        carried = self._network.carried.get(job.job.id)
        return (carried.start, carried.finish) if carried else None

    @property
    def chunks(self) -> int:
        return self._network.chunks


def simulate_pool(model: PoolModel, settings: PoolRunSettings) -> PoolRun:
    """Run a pool.

    Raises:
        InputError: the settings make no sense.

    """
    for name in ("window", "replace", "deviation", "rack"):
        if getattr(settings, name) < 0:
            raise InputError(f"{name}: expected 0 or more")
    if not 0 <= settings.error < 1:
        raise InputError(f"error: expected a share below 1, got {settings.error:g}")
    if not 0 < settings.share <= 1:
        raise InputError(f"share: expected 0 to 1, got {settings.share:g}")
    run = PoolRun(model, settings)
    run.run()
    return run
