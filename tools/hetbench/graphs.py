"""Graphs of tasks: submitting one of 10,000, decisions meanwhile, and chains of calls.

Submitting and chains go through the real daemon, with the clock on the wall; decisions are
those of the scheduler alone, in time of the thread, the least of several runs for each; the
longest of all runs is beside it. The load of the machine before each run is in its row.
"""

from __future__ import annotations

import gc
import operator
import os
import random
import statistics
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hetbench.noop import Noop
from hetbench.resources import CPU_ONLY
from hetsched import events as e
from hetsched.actions import Run
from hetsched.estimates.table import EstimateTable
from hetsched.ids import TaskId
from hetsched.limits import Limits
from hetsched.policies import make_policy
from hetsched.scheduler import Scheduler
from hetsched.system import Resource
from libtask.apps import Options, describe, name_of
from libtask.daemon.private import private_daemon
from libtask.messages import ResultInput

if TYPE_CHECKING:
    from libtask.client.client import Client
    from libtask.messages import TaskSpec

TASKS = 10_000
WIDTH = 100
"""Tasks in a row of the graph; each takes the results of two of the row before."""
CHAIN = 1000
ROUNDS = 3
PATIENCE_S = 300.0
SEED = 7
NOOP_S = 1e-4
"""Expected seconds of a task that does nothing."""
AT_ONCE = 250
"""As in the daemon."""
OF_GRAPHS = ("contention-aware", "heft", "graphene", "sparrow", "paragon")
"""Policies that are compared on a node with accelerators."""
NODE = [
    Resource("cpu", "cpu", slots=2),
    Resource("gpu0", "gpu"),
    Resource("fpga0", "fpga"),
]
KERNELS = 15
"""Types of tasks there, each with its own times."""


def run() -> list[dict[str, Any]]:
    """Measure; return a row for each figure."""
    rows = [_decisions("finish-time", [Resource("cpu", "cpu", slots=2)], 1)]
    rows += [_decisions(policy, NODE, KERNELS) for policy in OF_GRAPHS]
    with private_daemon(CPU_ONLY) as client:
        client.submit_specs([_spec()] * 10)[-1].result(PATIENCE_S)
        rows.append(_submitting(client))
        rows.append(_chain(client))
    return rows


def _spec() -> TaskSpec:
    return describe(Noop(), name_of(Noop), Options(job="graph"))


def parents(draw: random.Random, number: int) -> list[int]:
    """Draw the two tasks of the row before; none for the first row."""
    row = number // WIDTH
    if row == 0:
        return []
    return sorted({draw.randrange(WIDTH) + (row - 1) * WIDTH for _ in range(2)})


def _load() -> float:
    return round(os.getloadavg()[0], 2)


# ---------------------------------------------------------------- submitting


def _submitting(client: Client) -> dict[str, Any]:
    draw, spec, load = random.Random(SEED), _spec(), _load()
    specs = [
        replace(
            spec,
            inputs=[ResultInput(each - number) for each in parents(draw, number)],
        )
        for number in range(TASKS)
    ]
    began = time.perf_counter()
    handles = client.submit_specs(specs)
    submitted = time.perf_counter() - began
    for handle in handles:
        handle.result(PATIENCE_S)
    ended = time.perf_counter() - began
    return {
        "figure": f"a graph of {TASKS} tasks submitted and run",
        "submit_s": round(submitted, 3),
        "all_s": round(ended, 2),
        "tasks_per_s": round(TASKS / ended),
        "load": load,
    }


# ---------------------------------------------------------------- decisions


class TimedScheduler:
    """A scheduler whose calls are timed by kind."""

    def __init__(self, policy: str, resources: list[Resource], types: int) -> None:
        estimates = EstimateTable()
        for number in range(types):
            for place, resource in enumerate(resources):
                seconds = NOOP_S * (1 + (number + place) % types)
                estimates.learn(f"noop/{number}", resource.name, seconds, 1.0)
        self.scheduler = Scheduler(
            resources,
            estimates,
            make_policy(policy, {}),
            limits=Limits(at_once=AT_ONCE),
        )
        self.spent: dict[str, list[int]] = {"submit": [], "finish": [], "rest": []}
        self.running: list[Run] = []
        self._now = 0

    def handle(self, event: e.Event, kind: str) -> None:
        self._now += 1_000
        began = time.thread_time_ns()
        actions = self.scheduler.handle(event, self._now)
        self.spent[kind].append(time.thread_time_ns() - began)
        self.running.extend(each for each in actions if isinstance(each, Run))

    def finish_all(self) -> None:
        while self.scheduler.system.tasks:
            if self.running:
                first = self.running.pop(0)
                self.handle(e.TaskFinished(first.task, first.epoch), "finish")
            else:
                self.handle(e.TimerFired(), "rest")


def _decisions(policy: str, resources: list[Resource], types: int) -> dict[str, Any]:
    load = _load()
    runs = [_spent(policy, resources, types) for _ in range(ROUNDS)]
    row: dict[str, Any] = {
        "figure": f"decisions for a graph of {TASKS} tasks",
        "policy": policy,
        "resources": len(resources),
    }
    for kind in ("submit", "finish"):
        # the same decisions in each run: other programs only add to their times
        times = sorted(map(min, *(spent[kind] for spent in runs)))
        row[f"{kind}_us"] = round(statistics.median(times) / 1e3, 1)
        row[f"{kind}_p99_us"] = round(times[len(times) * 99 // 100] / 1e3, 1)
        row[f"{kind}_longest_us"] = round(times[-1] / 1e3, 1)
        slowest = max(max(spent[kind]) for spent in runs)
        row[f"{kind}_longest_disturbed_us"] = round(slowest / 1e3, 1)
    return row | {"load": load}


def _spent(policy: str, resources: list[Resource], types: int) -> dict[str, list[int]]:
    """Return the nanoseconds of each decision, by kind."""
    draw = random.Random(SEED)
    node = TimedScheduler(policy, resources, types)
    kinds = frozenset(resource.kind for resource in resources)
    gc.collect()
    gc.disable()  # the daemon collects between its turns
    try:
        for number in range(TASKS):
            before = tuple(TaskId(1 + each) for each in parents(draw, number))
            inputs = tuple(e.TaskInput(each, 8) for each in before)
            kernel = f"noop/{number * 7 % types}"
            event = e.TaskSubmitted(TaskId(1 + number), kernel, kinds)
            event = replace(event, after=before, inputs=inputs, job="graph")
            node.handle(event, "submit")
        node.finish_all()
    finally:
        gc.enable()
    return node.spent


# ---------------------------------------------------------------- chains


def _chain(client: Client) -> dict[str, Any]:
    load = _load()
    chained, apart = [], []
    for _ in range(ROUNDS):
        chained.append(_seconds(client, linked=True))
        apart.append(_seconds(client, linked=False))
    chain_s, apart_s = statistics.median(chained), statistics.median(apart)
    return {
        "figure": f"{CHAIN} calls by an executor, chained and independent",
        "chain_per_s": round(CHAIN / chain_s),
        "independent_per_s": round(CHAIN / apart_s),
        "share": round(apart_s / chain_s, 2),
        "load": load,
    }


def _seconds(client: Client, *, linked: bool) -> float:
    began = time.perf_counter()
    with client.executor() as opened:
        executor: Any = opened  # futures as arguments have no types
        futures = [executor.submit(abs, 0)]
        for _ in range(CHAIN - 1):
            before = futures[-1] if linked else 0
            futures.append(executor.submit(operator.add, before, 1))
        for future in futures:
            future.result(PATIENCE_S)
    return time.perf_counter() - began
