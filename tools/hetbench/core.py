"""Microseconds of CPU time that the scheduler's core takes for an event.

Every figure is the median over batches of events; each case has its own scheduler with
four resources. CPU time, since other programs must not count.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from msgspec import structs

from hetsched import events as e
from hetsched.actions import Run
from hetsched.estimates.table import EstimateTable
from hetsched.ids import TaskId
from hetsched.limits import Capacity, Limits, Needs
from hetsched.policies import make_policy
from hetsched.scheduler import Scheduler
from hetsched.system import Resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hetsched.actions import Action

RESOURCES = [
    Resource("cpu", "cpu", slots=2),
    Resource("gpu0", "gpu", link_bytes_per_s=12e9),
    Resource("gpu1", "gpu", link_bytes_per_s=12e9),
    Resource("fpga0", "fpga", link_bytes_per_s=6e9),
]
KINDS = ("cpu", "gpu", "fpga")
BATCH = 500


class Node:
    """A scheduler, and workers that finish what runs in the order it was started."""

    def __init__(
        self, policy: str, estimates: EstimateTable, limits: Limits | None = None
    ) -> None:
        self.scheduler = Scheduler(
            RESOURCES, estimates, make_policy(policy, {}), limits=limits
        )
        self.running: dict[str, list[Run]] = {r.name: [] for r in RESOURCES}
        self.now = 0
        self.spent_ns: list[int] = []

    def handle(self, event: e.Event) -> None:
        """Let the scheduler handle an event; only that is timed."""
        self.now += 1_000
        begin = time.thread_time_ns()
        actions = self.scheduler.handle(event, self.now)
        self.spent_ns.append(time.thread_time_ns() - begin)
        self._obey(actions)

    def _obey(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Run):
                self.running[action.resource].append(action)

    def finish_on(self, resource: str) -> None:
        run = self.running[resource].pop(0)
        self.handle(e.TaskFinished(run.task, run.epoch))


def no_ops(first: int, count: int) -> Iterator[e.TaskSubmitted]:
    for number in range(first, first + count):
        yield e.TaskSubmitted(TaskId(number), "no-op/any", frozenset({"cpu"}))


def mixed(first: int, count: int, rows: int) -> Iterator[e.TaskSubmitted]:
    """Tasks of `rows` types that every resource can run, each at its own pace."""
    kinds = frozenset(KINDS)
    for number in range(first, first + count):
        yield e.TaskSubmitted(TaskId(number), f"mixed/{number % rows}", kinds)


def mixed_estimates(rows: int) -> EstimateTable:
    estimates = EstimateTable()
    for row in range(rows):
        for place, resource in enumerate(RESOURCES):
            seconds = 1.0 + (row + place) % len(RESOURCES)
            estimates.learn(f"mixed/{row}", resource.name, seconds, 1.0)
    return estimates


def no_op_estimates() -> EstimateTable:
    estimates = EstimateTable()
    estimates.learn("no-op/any", "cpu", 1e-4, 1.0)
    return estimates


def timed(node: Node, events: Iterable[e.Event]) -> float:
    """Handle a batch; return microseconds for each event."""
    node.spent_ns.clear()
    for event in events:
        node.handle(event)
    return statistics.fmean(node.spent_ns) / 1_000


def burst(policy: str, batches: int) -> dict[str, float]:
    """Submit many no-op tasks, then finish them one after the other."""
    node = Node(policy, no_op_estimates())
    submit = [timed(node, no_ops(1 + batch * BATCH, BATCH)) for batch in range(batches)]
    finish = [finish_batch(node, ["cpu"] * BATCH) for _ in range(batches)]
    return {"submit": statistics.median(submit), "finish": statistics.median(finish)}


def stream(policy: str, batches: int) -> dict[str, float]:
    """Keep 64 no-op tasks outstanding: submit one, finish one."""
    node = Node(policy, no_op_estimates())
    timed(node, no_ops(1, 64))
    submit, finish = [], []
    for batch in range(batches):
        fresh = list(no_ops(65 + batch * BATCH, BATCH))
        submit.append(0.0)
        finish.append(0.0)
        for event in fresh:
            submit[-1] += timed(node, [event]) / BATCH
            finish[-1] += finish_batch(node, ["cpu"]) / BATCH
    return {"submit": statistics.median(submit), "finish": statistics.median(finish)}


def finish_batch(node: Node, resources: list[str]) -> float:
    node.spent_ns.clear()
    for resource in resources:
        node.finish_on(resource)
    return statistics.fmean(node.spent_ns) / 1_000


def waiting(policy: str, tasks: int, rows: int) -> dict[str, float]:
    """With many tasks waiting: finish and submit, in turn on every resource."""
    node = Node(policy, mixed_estimates(rows))
    timed(node, mixed(1, tasks, rows))
    finish, submit, single = [], [], []
    for batch in range(20):
        names = [name for name in node.running if node.running[name]]
        finish.append(finish_batch(node, names * 10))
        single += node.spent_ns
        submit.append(timed(node, mixed(tasks + 1 + batch * 50, 50, rows)))
        single += node.spent_ns
    return {
        "submit": statistics.median(submit),
        "finish": statistics.median(finish),
        "any, 99th percentile": statistics.quantiles(single, n=100)[-1] / 1_000,
    }


def stealing(policy: str, tasks: int, rows: int) -> dict[str, float]:
    """All tasks fit the first GPU best: every other resource takes them from there."""
    estimates = EstimateTable()
    for row in range(rows):
        for resource in RESOURCES:
            seconds = 1.0 if resource.name == "gpu0" else 2.0 + row / rows
            estimates.learn(f"mixed/{row}", resource.name, seconds, 1.0)
    node = Node(policy, estimates)
    timed(node, mixed(1, tasks, rows))
    others = [name for name in node.running if name != "gpu0" and node.running[name]]
    finish = [finish_batch(node, others * 10) for _ in range(20)]
    return {"finish": statistics.median(finish)}


def with_needs(policy: str, tasks: int) -> dict[str, float]:
    """With many tasks that wait for cores and memory: finish one, submit one."""
    capacity = Capacity(cores=8, memory_bytes=64)
    node = Node(policy, mixed_estimates(50), Limits(capacity=capacity))
    events = [
        structs.replace(event, needs=Needs(1 + number % 8, number % 5))
        for number, event in enumerate(mixed(1, tasks + 1000, 50))
    ]
    timed(node, events[:tasks])
    node.spent_ns.clear()
    for event in events[tasks:]:
        busy = [name for name in node.running if node.running[name]]
        node.finish_on(busy[event.task % len(busy)])
        node.handle(event)
    quantiles = statistics.quantiles(node.spent_ns, n=100)
    return {
        "any, median": quantiles[49] / 1_000,
        "any, 99th percentile": quantiles[-1] / 1_000,
    }


def run(policy: str = "migration", tasks: int = 100_000) -> list[dict[str, Any]]:
    """Measure every case, under one policy; `tasks`: how many wait in the long ones."""
    cases = {
        "no-op burst": burst(policy, 20),
        "no-op stream, 64 outstanding": stream(policy, 20),
        f"{tasks} waiting, 2 rows": waiting(policy, tasks, 2),
        f"{tasks} waiting, 50 rows": waiting(policy, tasks, 50),
        f"{tasks} waiting, 50 rows, stealing": stealing(policy, tasks, 50),
        "1000 waiting, 50 rows, with needs": with_needs(policy, 1000),
    }
    return [
        {
            "case": case,
            "event": event,
            "policy": policy,
            "resources": len(RESOURCES),
            "microseconds_cpu": round(value, 2),
        }
        for case, found in cases.items()
        for event, value in found.items()
    ]
