"""The contention of the node as it stands: loads of running tasks, belief about the others.

The state enters and removes the tasks that run; the reactor takes in counters and progress.
Policies read it through `System`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.belief import COUNTERS, belief_of
from hetsched.contention import Loads, slowdown
from hetsched.ids import Nanoseconds

if TYPE_CHECKING:
    from hetsched.contention import ContentionModel
    from hetsched.events import CounterReading
    from hetsched.ids import TaskId

NOISE = 0.15
"""Relative deviation of a task's time from its expectation that progress is judged with.
The error of an expectation is the same for all reports of a task, hence more than the 10 %
that a single one would have."""
LEAST_REPORT = 0.05
"""Reports on less than this share of a task are put together with the next ones: they say
too little."""
LEAST_REPORT_S = 5.0
"""Computing time that says enough of a long task, in seconds."""


@dataclass(slots=True)
class RunningLoad:
    """A running task.

    Attributes:
        alone: seconds expected of the whole task, alone, with its transfers.
        since: instant of its start or of its last report.
        noise: relative standard deviation of the time from what is expected.
        share: share of the task in reports that are not taken in yet; `seconds`: their
            computing time.

    """

    alone: float
    loads: Loads
    since: Nanoseconds
    noise: float = NOISE
    share: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """The last statement of a source about a shared resource.

    Attributes:
        value: mean of a counter; for `progress` the time of strips over that expected.
        count: number of statements since the start.
        at: instant of the last time.

    """

    value: float
    count: int
    at: Nanoseconds


PROGRESS = "progress"
"""The source that is there without counters: the own tasks' strips."""


class Crowding:
    """Loads that running tasks offer, and the belief about those of other programs.

    Args:
        model: of the node.

    """

    def __init__(self, model: ContentionModel) -> None:
        self.model = model
        self.belief = belief_of(model)
        self.demand: dict[str, float] = dict.fromkeys(model.shared, 0.0)
        """Load that the running tasks offer to each shared resource."""
        self.running: dict[TaskId, RunningLoad] = {}
        self.evidence: dict[tuple[str, str], Evidence] = {}
        """Shared resource and source -> its last statement."""
        self._changed: dict[str, Nanoseconds] = dict.fromkeys(model.shared, 0)

    def enter(
        self,
        task: TaskId,
        alone: float,
        loads: Loads,
        now: Nanoseconds,
        spread: float = 0.0,
    ) -> None:
        """Add a task that starts to run; `spread`: of the expectation of its time."""
        self.leave(task, now)
        noise = math.hypot(NOISE, spread)
        self.running[task] = RunningLoad(alone, loads, now, noise)
        self._add(loads, 1.0, now)

    def leave(self, task: TaskId, now: Nanoseconds) -> None:
        """Remove a task that runs no longer."""
        gone = self.running.pop(task, None)
        if gone is not None:
            self._add(gone.loads, -1.0, now)

    def read(self, readings: tuple[CounterReading, ...], now: Nanoseconds) -> None:
        """Take in counters."""
        for reading in readings:
            own = self.demand.get(reading.shared, 0.0)
            self.belief.read(reading, own, now)
            self._note(reading.shared, reading.counter, reading.mean, now)

    def report(
        self, task: TaskId, share: float, seconds: float, now: Nanoseconds
    ) -> None:
        """Take in the time of strips, unless the known loads changed meanwhile.

        Args:
            task: the running task.
            share: share of the task that the strips make up.
            seconds: their computing time.
            now: the present instant.

        """
        running = self.running.get(task)
        if running is None:
            return
        since, running.since = running.since, now
        changed = max((self._changed[x.shared] for x in running.loads), default=0)
        if changed > since:
            running.share = running.seconds = 0.0
            return
        running.share += share
        running.seconds += seconds
        if running.share < LEAST_REPORT and running.seconds < LEAST_REPORT_S:
            return
        share, seconds = running.share, running.seconds
        running.share = running.seconds = 0.0
        if share <= 0.0 or not 0.0 < running.alone < math.inf:
            return
        factor = seconds / (share * running.alone)
        loads = running.loads
        self.belief.take_in_progress(loads, self.demand, factor, running.noise, now)
        for load in loads:
            if load.bound > 0.0:
                self._note(load.shared, PROGRESS, factor, now)

    def slowdown_by_counters(self, task: TaskId, now: Nanoseconds) -> float:
        """Return the slowdown of a running task that is known without its own progress.

        By the own tasks, and by other programs where a counter has shown them; 1 if it
        does not run.
        """
        running = self.running.get(task)
        if running is None:
            return 1.0
        return slowdown(
            running.loads,
            {
                load.shared: self._by_counters(load.shared, now)
                for load in running.loads
            },
            float,
        )

    def _by_counters(self, shared: str, now: Nanoseconds) -> float:
        own = self.demand[shared]
        sources = {source for name, source in self.evidence if name == shared}
        if sources & COUNTERS.keys():
            return self.belief.slowdown(shared, own, now)
        return self.model.law(own)

    def slowdown_of(
        self, loads: Loads, demand: dict[str, float], now: Nanoseconds
    ) -> float:
        """Return the expected slowdown of a task.

        Args:
            loads: of the task.
            demand: load of the tasks that run, its own included.
            now: the present instant.

        """
        factor = 1.0
        for load in loads:
            own = demand.get(load.shared, 0.0)
            factor += load.bound * (self.belief.slowdown(load.shared, own, now) - 1.0)
        return factor

    def slowdown_if_started(self, loads: Loads, now: Nanoseconds) -> float:
        """Return the expected slowdown of a task that starts beside those that run."""
        demand = {x.shared: self.demand[x.shared] + x.demand for x in loads}
        return self.slowdown_of(loads, demand, now)

    def _note(self, shared: str, source: str, value: float, now: Nanoseconds) -> None:
        if shared in self.demand:
            known = self.evidence.get((shared, source))
            count = 1 if known is None else known.count + 1
            self.evidence[shared, source] = Evidence(value, count, now)

    def _add(self, loads: Loads, sign: float, now: Nanoseconds) -> None:
        for load in loads:
            self._changed[load.shared] = now
            self.demand[load.shared] += sign * load.demand
            if not self.running:
                self.demand[load.shared] = 0.0  # rounding errors must not add up
