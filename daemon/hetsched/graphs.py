"""The graphs of tasks: what depends on what, upward ranks, and the work left of each job.

A *job* is a set of tasks that its owner submits under one name, or else a set that is linked
by dependencies. Only tasks that name a job, inputs or dependencies are in a graph, and the
tasks that they depend on; any number of single tasks costs nothing.

The state adds and ends tasks; policies read ranks and work through `System`. A change to the
graph raises the ranks of all ancestors. This is done a few steps per event, deepest tasks
first, so that no event takes long; until it is done, ranks are lower bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from hetsched.ids import TaskId
from hetsched.tasks import Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetsched.tasks import TaskRecord

STEPS_OF_ADDITION = 32
"""Ranks that the addition of a task may recompute."""
STEPS_OF_DECISION = 64
"""Ranks that are recomputed before the policy is asked."""


@dataclass(eq=False, slots=True)
class GraphNode:
    """A task in its graph.

    Attributes:
        mean: mean of its expected times on the resources that can run it, in seconds.
        least: the least of them.
        inputs: tasks whose results it reads, and their bytes.
        depth: tasks in the longest chain before it.
        rank: upward rank, in seconds (Topcuoglu et al., 2002): its mean time and that of
            the longest chain of tasks and transfers behind it.
        unfinished: children that have not ended.
        place: resource that its result is on; None: it has not completed.
        ended: whether it has ended, in whatever state.

    """

    task: TaskId
    row: Row
    job: JobGraph
    mean: float
    least: float
    inputs: dict[TaskId, int] = field(default_factory=dict)
    parents: list[GraphNode] = field(default_factory=list)
    children: list[GraphNode] = field(default_factory=list)
    depth: int = 0
    rank: float = 0.0
    unfinished: int = 0
    place: str | None = None
    ended: bool = False


@dataclass(eq=False, slots=True, weakref_slot=True)
class JobGraph:
    """The tasks of one job that have not ended, or that unfinished ones depend on.

    Attributes:
        key: owner and name; the name of a job without one is the id of its first task.
        work_left: sum of the least expected times of the unfinished tasks, in seconds.
        live: number of unfinished tasks.
        version: number of tasks added so far; changes with each.

    """

    key: tuple[int, str | int]
    nodes: dict[TaskId, GraphNode] = field(default_factory=dict)
    work_left: float = 0.0
    live: int = 0
    version: int = 0


class JobGraphs:
    """The graphs of all jobs.

    Args:
        seconds_of: row -> mean and least of its expected times, in seconds.
        seconds_per_byte: mean time of a transfer between two resources.

    Expected times are those at the submission of a task.
    """

    def __init__(
        self,
        seconds_of: Callable[[Row], tuple[float, float]],
        seconds_per_byte: float = 0.0,
    ) -> None:
        self.jobs: dict[tuple[int, str | int], JobGraph] = {}
        self.nodes: dict[TaskId, GraphNode] = {}
        self._seconds_of = seconds_of
        self._seconds_per_byte = seconds_per_byte
        self.raised: list[tuple[int, TaskId]] = []
        """A heap of (-depth, task) whose rank has changed; read only."""
        self._pending: set[TaskId] = set()

    def add(self, task: TaskRecord, before: list[TaskRecord]) -> None:
        """Add a task that follows others; those that are not in a graph yet join its job."""
        submitted = task.submitted
        if not (submitted.job or before or submitted.inputs):
            return
        parents = [self.nodes.get(other.id) for other in before]
        known = next((parent for parent in parents if parent is not None), None)
        job = self._job_of(task, known, before)
        node = self._enter(task, job)
        node.inputs = {each.task: each.bytes for each in submitted.inputs}
        for other in before:
            parent = self.nodes.get(other.id) or self._enter(other, job)
            parent.children.append(node)
            parent.unfinished += 1
            node.parents.append(parent)
            node.depth = max(node.depth, parent.depth + 1)
        self._link_ended(node)
        self._raise(node)
        self.settle(STEPS_OF_ADDITION)

    def end(self, task: TaskRecord, place: str | None) -> None:
        """Record that a task ended; `place`: resource of its result, None without one."""
        node = self.nodes.get(task.id)
        if node is None or node.ended:
            return
        job = node.job
        node.ended, node.place = True, place
        job.live -= 1
        job.work_left = max(job.work_left - node.least, 0.0) if job.live else 0.0
        for parent in node.parents:
            parent.unfinished -= 1
            self._forget_if_over(parent)
        self._forget_if_over(node)
        if not job.live:
            self.jobs.pop(job.key, None)

    @property
    def unsettled(self) -> bool:
        """Whether ranks are still to be raised."""
        return bool(self.raised)

    def settle(self, steps: int) -> None:
        """Follow up to `steps` dependencies of changed ranks, the deepest tasks first."""
        while self.raised and steps > 0:
            _, task = heappop(self.raised)
            self._pending.discard(task)
            node = self.nodes.get(task)
            if node is not None:
                steps -= 1 + len(node.parents)
                self._raise_parents(node)

    def inputs_of(self, task: TaskId) -> list[tuple[str, int]]:
        """List the resources that the inputs of a task are on, and their bytes."""
        node = self.nodes.get(task)
        if node is None or not node.inputs:
            return []
        return [
            (parent.place, node.inputs[parent.task])
            for parent in node.parents
            if parent.place is not None and node.inputs.get(parent.task)
        ]

    # ------------------------------------------------------------ parts

    def _job_of(
        self, task: TaskRecord, known: GraphNode | None, before: list[TaskRecord]
    ) -> JobGraph:
        submitted = task.submitted
        if not submitted.job and known is not None:
            return known.job
        first = before[0] if before else task
        key = (submitted.owner, submitted.job or int(first.id))
        job = self.jobs.get(key)
        if job is None:
            job = self.jobs[key] = JobGraph(key)
        return job

    def _enter(self, task: TaskRecord, job: JobGraph) -> GraphNode:
        mean, least = self._seconds_of(task.row)
        node = GraphNode(task.id, task.row, job, mean, least, rank=mean)
        self.nodes[task.id] = job.nodes[task.id] = node
        job.work_left += least
        job.live += 1
        job.version += 1
        return node

    def _link_ended(self, node: GraphNode) -> None:
        """Link a task to inputs whose tasks have ended and are still known."""
        linked = {parent.task for parent in node.parents}
        for task in node.inputs:
            parent = self.nodes.get(task)
            if parent is not None and task not in linked:
                parent.children.append(node)
                parent.unfinished += 1
                node.parents.append(parent)
                node.depth = max(node.depth, parent.depth + 1)

    def _raise_parents(self, node: GraphNode) -> None:
        """Raise the ranks of a task's parents to what its own rank demands."""
        for parent in node.parents:
            copied = node.inputs.get(parent.task, 0) * self._seconds_per_byte
            rank = parent.mean + copied + node.rank
            if rank > parent.rank:
                parent.rank = rank
                self._raise(parent)

    def _raise(self, node: GraphNode) -> None:
        if node.task not in self._pending:
            self._pending.add(node.task)
            heappush(self.raised, (-node.depth, node.task))

    def _forget_if_over(self, node: GraphNode) -> None:
        """Remove an ended task that no unfinished one depends on."""
        if node.ended and not node.unfinished:
            self.nodes.pop(node.task, None)
            node.job.nodes.pop(node.task, None)
            node.parents = []
            node.children = []
