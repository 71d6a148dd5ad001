"""The workload: a scenario in the simulator's own terms, integer nanoseconds throughout.

A `Job` is a task together with what happened to it so far. Here also the scheduler's
expectations are made, with errors where those are asked for.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from hetsched import events as e
from hetsched.estimates.table import application

# the types of fields are read at run time where this is compiled
from hetsched.ids import Nanoseconds, TaskId
from hetsched.limits import Capacity, Needs
from hetsched.system import SECOND, Resource
from hetsched.tasks import State
from hetsim.scenario import TypeModel

if TYPE_CHECKING:
    from hetsched.tasks import Row
    from hetsim.scenario import ResourceModel, Scenario, TaskModel


class Run(Protocol):
    """One segment of a task on one resource."""

    job: Job
    epoch: int

    def preempt(self, now: Nanoseconds) -> None:
        """Stop at the next checkpoint."""

    def abandon(self, now: Nanoseconds) -> None:
        """Stop at once and lose the state."""

    def first_to_give(self, now: Nanoseconds) -> int:
        """Return the first strip that is not done or begun."""
        ...

    def shorten(self, now: Nanoseconds) -> None:
        """Stop at the limit of the job, which is lower than before."""


@dataclass(eq=False, slots=True)
class Job:
    """A task and what happened to it so far.

    Attributes:
        told_at: instant at which it is submitted to the scheduler: its arrival, but not
            before all those it comes after have arrived.
        needs: cores and memory that it takes up; None: none.
        set_up: nanoseconds in its slot before its first strip, unless it continues.
        depth: length of the longest chain of tasks that it comes after.
        actual: nanoseconds of the whole task on each resource that can run it.
        expected: nanoseconds that the scheduler expects there.
        ends: shares of its time after which its strips end; empty: they are equal.
        done: strips computed.
        home: resource where its state lies; None: not started, or lost.
        run: its present segment; None: it does not run.
        segments: (resource, start, finish) of its computing.
        outcome: state in which the scheduler's task ended; `finish`: when.
        placed: whether it was ever mapped to a resource.
        inputs: jobs whose results it reads, and their bytes.
        group: name of the job, in the sense of users, that it belongs to; empty: none.
        start: strips before it that others do, of which it is a part; `limit`: strips
            after which it stops, as others do the rest.
        part_of: the task of which it is a part; its segments are that task's.
        merges: all parts are done, and their results are merged in the present segment.

    """

    id: TaskId
    name: str | int
    kind: TypeModel
    arrival: Nanoseconds
    deadline: Nanoseconds | None
    priority: int
    after: list[Job]
    actual: dict[str, Nanoseconds]
    expected: dict[str, Nanoseconds]
    strips: int
    stop_at_deadline: bool
    told_at: Nanoseconds
    needs: Needs | None = None
    set_up: Nanoseconds = 0
    depth: int = 0
    ends: list[float] = field(default_factory=list)
    done: int = 0
    home: str | None = None
    run: Run | None = None
    placed: bool = False
    migrations: int = 0
    segments: list[tuple[str, Nanoseconds, Nanoseconds]] = field(default_factory=list)
    outcome: State | None = None
    finish: Nanoseconds | None = None
    inputs: list[tuple[Job, int]] = field(default_factory=list)
    group: str = ""
    start: int = 0
    limit: int = 0
    part_of: Job | None = None
    merges: bool = False

    def __post_init__(self) -> None:
        self.limit = self.limit or self.strips

    @property
    def is_done(self) -> bool:
        """Whether it has ended; else it yields at its limit, for its parts to end."""
        if self.done < self.limit:
            return False
        return self.merges or self.part_of is not None or self.limit == self.strips

    def split(self, number: int, limit: int) -> Job:
        """Stop at `limit`; return the part, with this number, that does the rest."""
        whole = self.part_of or self
        part = replace(
            self,
            id=TaskId(number),
            after=[],
            inputs=[],
            group="",
            start=limit,
            done=limit,
            home=None,
            run=None,
            part_of=whole,
            segments=whole.segments,
            merges=False,
        )
        self.limit = limit
        self.merges = False  # not in this segment, even if earlier parts are done
        return part

    def lose(self) -> None:
        """Lose the state: it starts again."""
        self.run = self.home = None
        self.done = self.start

    @property
    def late(self) -> bool:
        """Return whether it ended after its deadline."""
        over = self.finish if self.finish is not None else self.told_at
        return self.deadline is not None and over > self.deadline

    def submission(self, kinds: frozenset[str]) -> e.TaskSubmitted:
        """Make the event that tells the scheduler of it."""
        return e.TaskSubmitted(
            self.id,
            self.kind.name,
            kinds,
            priority=self.priority,
            after=tuple(job.id for job in self.after),
            input_bytes=int(self.kind.input_bytes or 0),
            state_bytes=int(self.kind.state_bytes or 0),
            deadline=self.deadline,
            strips=self.strips,
            migration_s=self.kind.migration_s or 0.0,
            app=application(self.kind.name),
            job=self.group,
            inputs=tuple(e.TaskInput(job.id, size) for job, size in self.inputs),
            needs=self.needs,
            parallel=bool(self.kind.parallel),
            merge_s=self.kind.merge_s or 0.0,
            part_of=None if self.part_of is None else self.part_of.id,
            start=self.start / self.strips,
        )


class Expectations:
    """Expected times: the table `seconds` of the types. An `Estimates`."""

    version = 0

    def __init__(
        self, seconds: dict[str, dict[str, float]], spreads: dict[str, dict[str, float]]
    ) -> None:
        self._seconds = seconds
        self._spreads = spreads

    def seconds(self, row: Row, resource: Resource) -> float:
        """Return the expected seconds of a whole task; infinite: cannot run there."""
        return self._seconds[row.type].get(resource.name, math.inf)

    def spread(self, row: Row, resource: Resource) -> float:
        """Return the relative standard deviation; 0 where the scenario has none."""
        return self._spreads[row.type].get(resource.name, 0.0)

    def is_untried(self, row: Row, resource: Resource) -> bool:
        """Return False: a scenario states all times."""
        return False


def nanoseconds(seconds: float) -> Nanoseconds:
    """Round seconds to whole nanoseconds."""
    return round(seconds * SECOND)


def resources_of(scenario: Scenario) -> list[Resource]:
    """Describe the resources to the scheduler."""
    return [_resource(model) for model in scenario.resources]


def _resource(model: ResourceModel) -> Resource:
    return Resource(
        name=model.name,
        kind=model.kind or model.name.rstrip("0123456789"),
        slots=model.slots,
        busy_watts=model.busy_watts or 0.0,
        idle_watts=model.idle_watts or 0.0,
        link_bytes_per_s=model.link_bytes_per_s,
        reconfigure_s=model.reconfigure_s or 0.0,
        queue_limit=model.queue_limit,
        shared=model.sharing == "processor",
        memory_bytes=None if model.memory_bytes is None else int(model.memory_bytes),
    )


def capacity_of(scenario: Scenario) -> Capacity:
    """Describe to the scheduler what tasks may need together."""
    memory = scenario.memory_bytes
    return Capacity(scenario.cores, None if memory is None else int(memory))


def expected_seconds(
    scenario: Scenario, noise: float = 0.0, generator: random.Random | None = None
) -> dict[str, dict[str, float]]:
    """Tabulate what the scheduler expects: type -> resource -> seconds.

    Args:
        scenario: where the true expectations stand.
        noise: each is wrong by a factor drawn evenly from 1 - noise to 1 + noise.
        generator: draws the factors, type by type and resource by resource.

    """
    table: dict[str, dict[str, float]] = {}
    for kind in scenario.types:
        row = table[kind.name] = {}
        for name, seconds in kind.seconds.items():
            if seconds is not None:
                error = generator.uniform(-noise, noise) if generator and noise else 0.0
                row[name] = seconds * (1.0 + error)
    return table


def jobs_of(scenario: Scenario, expected: dict[str, dict[str, float]]) -> list[Job]:
    """Make the jobs, in the order of the document."""
    kinds = {kind.name: kind for kind in scenario.types}
    told = {
        name: {resource: nanoseconds(seconds) for resource, seconds in row.items()}
        for name, row in expected.items()
    }
    jobs = {
        task.id: _job(number, task, kinds[task.type], told[task.type])
        for number, task in enumerate(scenario.all_tasks(), start=1)
    }
    _link(scenario, jobs)
    return list(jobs.values())


def _job(
    number: int, task: TaskModel, kind: TypeModel, told: dict[str, Nanoseconds]
) -> Job:
    seconds = {**kind.seconds, **(task.actual_seconds or {})}
    return Job(
        id=TaskId(number),
        name=task.id,
        kind=kind,
        arrival=nanoseconds(task.arrival or 0.0),
        deadline=None if task.deadline is None else nanoseconds(task.deadline),
        priority=task.priority or 0,
        after=[],
        actual={r: nanoseconds(s) for r, s in seconds.items() if s is not None},
        expected=told,
        strips=kind.strips,
        ends=_ends_of_strips(number, kind),
        stop_at_deadline=kind.overrun == "stop_at_deadline",
        told_at=nanoseconds(task.arrival or 0.0),
        group=task.job or "",
        needs=_needs(task, kind),
        set_up=nanoseconds(task.set_up_s or 0.0),
    )


def _needs(task: TaskModel, kind: TypeModel) -> Needs | None:
    cores = kind.cores if task.cores is None else task.cores
    memory = kind.memory_bytes if task.memory_bytes is None else task.memory_bytes
    needs = Needs(cores or 0, int(memory or 0), int(kind.device_bytes or 0))
    return needs if needs != Needs() else None


def _ends_of_strips(number: int, kind: TypeModel) -> list[float]:
    """Draw how long the strips of a task take: a Gamma distribution, always the same."""
    variation = kind.strip_variation or 0.0
    if not variation or kind.strips == 1:
        return []
    generator = random.Random(f"strips {kind.name} {number}")
    shape = 1.0 / variation**2
    times = [generator.gammavariate(shape, 1.0) for _ in range(kind.strips)]
    whole = sum(times) or 1.0
    return [0.0, *[min(end / whole, 1.0) for end in accumulate(times[:-1])], 1.0]


def _link(scenario: Scenario, jobs: dict[str | int, Job]) -> None:
    """Link the jobs to their predecessors; no job arrives before those."""
    graph = {t.id: t.predecessors() for t in scenario.tasks if t.after or t.inputs}
    for name in TopologicalSorter(graph).static_order():
        job = jobs[name]
        job.after = [jobs[other] for other in graph.get(name, [])]
        job.told_at = max([job.told_at, *[other.told_at for other in job.after]])
        job.depth = max([0, *[other.depth + 1 for other in job.after]])
    for task in scenario.tasks:
        for each in task.inputs or []:
            source = jobs[each.source]
            size = source.kind.output_bytes if each.bytes is None else each.bytes
            jobs[task.id].inputs.append((source, int(size or 0)))
