"""A pool beside Dask alone, on links of network namespaces: makespans, side by side.

    HETBENCH_SEEDS=1,2,3 HETBENCH_JOBS=200 python -m hetbench pool

Every way runs the same jobs on the same nodes and daemons: three nodes with a CPU, a GPU and
an FPGA (null drivers, 1 : 1.4 : 0.75) behind links of 25 Mbit/s, all inputs at one gateway.
Ratios count, as the processors of this machine are shared by all nodes. Then what is killed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from typing import Any

from hetbench.pool_client import WARM_UP
from hetbench.pool_machines import KINDS, PORT, SCHEDULER_PORT, BenchPool
from hetpool.setup.namespaces import obstacle

NODES = 3
LINK = 25e6 / 8
TYPES = 12
ORDERED = {
    "DASK_DISTRIBUTED__WORKER__CONNECTIONS__OUTGOING": "1",
    "DASK_DISTRIBUTED__WORKER__TRANSFER__MESSAGE_BYTES_LIMIT": "1MB",
}
DASK_WAYS: dict[str, dict[str, str]] = {
    "dask default": {},
    "round-robin": {},
    "dask placement, ordered transfers": ORDERED,
}


def jobs_of(seed: int, count: int) -> list[dict[str, Any]]:
    """Draw jobs of twelve types whose time and size go together, as in the papers."""
    draw = random.Random(seed)
    types = [draw.expovariate(1 / 0.6) + 0.1 for _ in range(TYPES)]
    return [_job(draw.choice(types), draw) for _ in range(count)]


def _job(length: float, draw: random.Random) -> dict[str, Any]:
    times = {
        kind: length * draw.uniform(0.8, 1.2) / speed for kind, speed in KINDS.items()
    }
    return {"seconds": times, "size": int(length * draw.uniform(0.6, 1.4) * 0.9e6)}


def run() -> list[dict[str, Any]]:
    reason = obstacle()
    if reason:
        return [{"size": "not run", "reason": f"no network namespaces: {reason}"}]
    seeds = [int(each) for each in os.environ.get("HETBENCH_SEEDS", "1,2,3").split(",")]
    count = int(os.environ.get("HETBENCH_JOBS", "200"))
    rows = []
    for seed in seeds:
        with BenchPool(NODES, LINK) as pool:
            rows.append(makespans(pool, seed, count))
            print(rows[-1], file=sys.stderr)
    kills = [worker_kill(), scheduler_kill()]
    return [*rows, *kills, costs(200, single=False), costs(100, single=True)]


# ---------------------------------------------------------------------- makespans


def makespans(pool: BenchPool, seed: int, count: int) -> dict[str, Any]:
    """Run one batch in every way."""
    jobs = jobs_of(seed, count)
    request = {
        "jobs": jobs,
        "nodes": pool.names,
        "folder": str(pool.folder),
        "config": str(pool.config),
        "incoming": str(pool.incoming),
        "scheduler": f"tcp://{pool.machines.address('head')}:{SCHEDULER_PORT}",
    }
    pool.start_pool()
    ours = _client(pool, "pool", {**request, "planner": "ncjm"})
    pool.end()
    print("ncjm", ours["seconds"], "planned", ours["planned"], file=sys.stderr)
    others = {way: _dask(pool, {**request, "way": way}) for way in DASK_WAYS}
    return {
        "size": f"{count} jobs, seed {seed}",
        "megabytes": sum(job["size"] for job in jobs) / 1e6,
        "load": os.getloadavg()[0],
        "ncjm_s": ours["seconds"],
        "got_over_planned": ours["seconds"] / ours["planned"],
        "others_s": {way: got["seconds"] for way, got in others.items()},
        "ncjm_over": {w: ours["seconds"] / got["seconds"] for w, got in others.items()},
    }


def _client(pool: BenchPool, way: str, request: dict[str, Any]) -> Any:
    return pool.client(["-m", "hetbench.pool_client", way], request)


def _dask(pool: BenchPool, request: dict[str, Any]) -> Any:
    """Run the batch on Dask alone: a scheduler, a worker a node with three threads."""
    environment = DASK_WAYS[request["way"]]
    address = request["scheduler"]
    host = pool.machines.address("head")
    words = ["-m", "distributed.cli.dask_scheduler", "--no-dashboard", "--host", host]
    pool.start("head", [*words, "--port", str(SCHEDULER_PORT)], environment)
    for name in [*pool.names, "gw"]:
        words = ["-m", "distributed.cli.dask_worker", address, "--name", name]
        words += ["--no-nanny", "--no-dashboard", "--nthreads", str(len(KINDS))]
        words += ["--host", pool.machines.address(name), "--worker-port", str(PORT)]
        words += ["--local-directory", str(pool.folder)]
        own = pool.daemons.get(name)
        socket = {"HETD_SOCKET": str(own.files.socket)} if own else {}
        pool.start(name, words, {**environment, **socket})
    try:
        got = _client(pool, "dask", request)
    finally:
        pool.end()
    print(request["way"], got["seconds"], file=sys.stderr)
    return got


# -------------------------------------------------------------------------- kills


def worker_kill() -> dict[str, Any]:
    """Kill the node's process under a task of 8 s; it is started again."""
    return _killed("n1", "worker")


def scheduler_kill() -> dict[str, Any]:
    """Kill the scheduler under a task of 8 s; it is started again."""
    return _killed("head", "scheduler")


def _killed(machine: str, what: str) -> dict[str, Any]:
    seconds = 8.0
    with BenchPool(1, 100 * LINK) as pool:
        pool.start_pool()
        jobs = [{"seconds": dict.fromkeys(KINDS, seconds), "size": 0}]
        process = pool.begin_client(
            ["-m", "hetbench.pool_client", "pool"],
            {
                "jobs": jobs,
                "nodes": pool.names,
                "folder": str(pool.folder),
                "config": str(pool.config),
                "incoming": str(pool.incoming),
                "planner": "ncjm",
            },
        )
        client = _wait_for_running(pool)
        pool.kill(machine)
        if what == "worker":
            pool.start_node(machine)
        else:
            words = ["-m", "hetpool", "scheduler", "--config", str(pool.config)]
            pool.start("head", words)
            _revive(pool)
        got = pool.end_client(process)
        submitted = [each for each in client.tasks() if each.name.startswith("pool/")]
        client.close()
    return {
        "size": f"kill -9 of the {what} under a task of {seconds:g} s",
        "load": os.getloadavg()[0],
        "seconds_beyond_task": got["seconds"] - seconds,
        "executions": len(submitted) - len(WARM_UP),
    }


def _wait_for_running(pool: BenchPool) -> Any:
    from libtask import Client

    client = Client(pool.daemons["n1"].files.socket)
    deadline = time.monotonic() + 180
    while not any(each.state == "running" for each in client.tasks()):
        if time.monotonic() > deadline:
            raise TimeoutError(pool.logs())
        time.sleep(0.05)
    return client


def _revive(pool: BenchPool) -> None:
    """Start again what ends with the scheduler, as a service manager does."""
    for name in [*pool.names, "gw"]:
        try:
            pool.processes[name].wait(3)
        except subprocess.TimeoutExpired:
            continue  # it goes on, and connects again
        if name == "gw":
            pool.start("gw", pool._words("gateway", "gw"))  # noqa: SLF001  one bench
        else:
            pool.start_node(name)


# -------------------------------------------------------------------------- costs


def costs(count: int, *, single: bool) -> dict[str, Any]:
    """Measure the processor time of a no-op job, in a batch or each for itself."""
    import psutil

    with BenchPool(2, 100 * LINK) as pool:
        pool.start_pool()
        request = {
            "nodes": pool.names,
            "folder": str(pool.folder),
            "config": str(pool.config),
            "incoming": str(pool.incoming),
            "planner": "ncjm",
            "single": single,
            "jobs": [{"seconds": dict.fromkeys(KINDS, 0.0), "size": 0}] * count,
        }
        _client(pool, "pool", request)  # everything is imported by now
        before = {name: _cpu(psutil, p.pid) for name, p in pool.processes.items()}
        got = _client(pool, "pool", request)
        used = {n: _cpu(psutil, p.pid) - before[n] for n, p in pool.processes.items()}
    nodes = sum(used[name] for name in used if name != "head")
    return {
        "size": f"{count} no-op jobs, {'one by one' if single else 'in one batch, grouped'}",
        "load": os.getloadavg()[0],
        "scheduler_ms": 1e3 * used["head"] / count,
        "nodes_ms": 1e3 * nodes / count,
        "client_ms": 1e3 * got["client_cpu_s"] / count,
        "pool_ms": 1e3 * (used["head"] + nodes + got["client_cpu_s"]) / count,
    }


def _cpu(psutil: Any, pid: int) -> float:
    """Return the processor seconds of a process and its children."""
    process = psutil.Process(pid)
    every = [process, *process.children(recursive=True)]
    return float(sum(sum(each.cpu_times()[:2]) for each in every))
