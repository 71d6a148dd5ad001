"""Placing in large pools: processor time and memory of plans, whole and by racks.

Each case runs in a process of its own, whose highest memory is its own. A stream is what a
broker does in a pool at work: each second's jobs are placed beside what its ledger holds.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

from threadpoolctl import threadpool_limits

from hetpool.broker.ledger import Ledger
from hetpool.broker.racks import RackPlanner
from hetpool.jobs import InputFile, NodeSlot, PoolJob, PoolNode
from hetsched.planning.batch.planners import make_planner

KINDS = {"cpu": 1.0, "gpu": 1.4, "fpga": 0.75}
SECONDS = 10.0
MIB = 1 << 20
RACK = 100
SINGLE = [
    ("ncjm", 100, 1000, 0),
    ("ncjm", 1000, 3000, 0),
    ("ncjm", 1000, 3000, RACK),
    ("sjf", 1000, 3000, 0),
    ("sjf", 1000, 3000, RACK),
    ("mttf-lp", 1000, 3000, RACK),
    ("ncjm", 1000, 10_000, RACK),
]
STREAMS = [(300, 75, 0), (300, 75, RACK), (1000, 250, RACK)]
"""Nodes, jobs a second (five sixths of what the slots can do), nodes of a rack."""
STREAM_S = 25


def a_pool(nodes: int) -> list[PoolNode]:
    slots = tuple(NodeSlot(f"{kind}0", kind) for kind in KINDS)
    pool = [PoolNode(f"n{n}", f"n{n}", slots, ingress=125e6) for n in range(nodes)]
    return [*pool, PoolNode("gateway", "gateway", egress=1250e6)]


def some_jobs(count: int, draw: random.Random, first: int = 0) -> list[PoolJob]:
    """Make jobs of about ten seconds, half of them with 1 to 20 MiB from the gateway."""
    return [_job(f"{first + number:032x}", draw) for number in range(count)]


def _job(name: str, draw: random.Random) -> PoolJob:
    length = SECONDS * draw.uniform(0.5, 1.5)
    size = draw.choice([0, 1]) * draw.randint(1, 20) * MIB
    return PoolJob(
        name,
        "synthetic",
        seconds={k: length * draw.uniform(0.8, 1.2) / KINDS[k] for k in KINDS},
        inputs=(InputFile(name * 2, size, ("gateway",)),) if size else (),
    )


def single(planner: str, nodes: int, jobs: int, rack: int) -> dict[str, Any]:
    """Plan one batch on an empty pool."""
    pool, batch = a_pool(nodes), some_jobs(jobs, random.Random(1))
    racks = RackPlanner(planner, make_planner(planner, {}), rack)
    before = _memory()
    began = time.process_time()
    plan, _ = racks.plan(batch, pool, Ledger().commitments(0.0))
    took = time.process_time() - began
    return {
        "size": f"{planner}, {nodes} nodes of 3 slots, {jobs} jobs, {_racks(rack)}",
        "cpu_s": took,
        "memory_mib": _memory() - before,
        "makespan": plan.makespan,
        "makespan_over_bound": plan.makespan / plan.bound if plan.bound else None,
    }


def stream(nodes: int, rate: int, rack: int) -> dict[str, Any]:
    """Place each second's jobs beside what is there, until the pool is at work."""
    draw = random.Random(1)
    ledger = Ledger(nodes={node.name: node for node in a_pool(nodes)})
    racks = RackPlanner("ncjm", make_planner("ncjm", {}), rack)
    before, costs, waits = _memory(), [], []
    for second in range(STREAM_S):
        batch = some_jobs(rate, draw, second * rate)
        began = time.process_time()
        held = ledger.commitments(second)
        plan, _ = racks.plan(batch, list(ledger.nodes.values()), held, ledger.order)
        costs.append(time.process_time() - began)
        waits += [entry.start for entry in plan.entries]
        alone = [replace(entry, errand=entry.job) for entry in plan.entries]
        ledger.place(batch, alone, second)
        for placed in list(ledger.placed.values()):
            if placed.planned_at + placed.entry.finish <= second + 1:
                ledger.forget(placed.entry.errand)
    late = costs[STREAM_S // 2 :]
    return {
        "size": f"stream, {nodes} nodes of 3 slots, {rate} jobs a second, {_racks(rack)}",
        "cpu_s_a_second": sum(late) / len(late),
        "longest_plan_cpu_s": max(costs),
        "memory_mib": _memory() - before,
        "mean_wait_s": sum(waits) / len(waits),
        "unfinished": len(ledger.placed),
    }


def _racks(rack: int) -> str:
    return f"racks of {rack}" if rack else "whole"


def _memory() -> float:
    """Return the highest memory so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _alone(work: Any, case: tuple[Any, ...]) -> dict[str, Any]:
    """Run a case in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        done: dict[str, Any] = process.submit(_limited, work, case).result()
    print(done, file=sys.stderr)
    return done


def _limited(work: Any, case: tuple[Any, ...]) -> dict[str, Any]:
    with threadpool_limits(1):
        single("ncjm", 10, 20, 0)  # loads all modules
        done: dict[str, Any] = work(*case)
    return done


def run() -> list[dict[str, Any]]:
    rows = [_alone(single, case) for case in SINGLE]
    return rows + [_alone(stream, case) for case in STREAMS]
