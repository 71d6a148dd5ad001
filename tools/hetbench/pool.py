"""A pool beside Dask alone, on links of network namespaces: makespans, side by side.

    HETBENCH_SEEDS=1,2,3 HETBENCH_JOBS=200 python -m hetbench pool

Every way runs the same jobs on the same nodes and daemons: three nodes with a CPU, a GPU and
an FPGA (null drivers, 1 : 1.4 : 0.75) behind links of 25 Mbit/s, all inputs at one gateway.
Ratios count, as the processors of this machine are shared by all nodes. `HETBENCH_PARTS`
chooses from these parts, by commas; without it all run, in twenty minutes:

    makespans   a batch for each seed, in every way
    mixed       links of 100 Mbit/s, inputs of 4.6 MB, twelve jobs that compute
    kills       the process of a node, and the scheduler, under a running task
    cut         the link of a node, under a running task
    move        a running task between nodes
    pace        files through capped links
    testbed     that of a paper (zhao-2018-tpds, Fig. 2) at a reduced scale
    costs       processor time of a no-op job
"""

from __future__ import annotations

import os
import random
import sys
from typing import TYPE_CHECKING, Any

from hetbench.pool_losses import cuts, kills
from hetbench.pool_machines import KINDS, LINK, PORT, SCHEDULER_PORT, BenchPool
from hetbench.pool_testbed import testbeds
from hetbench.pool_transfers import moves, paces
from hetpool.setup.config import read_settings
from hetpool.setup.namespaces import obstacle
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

NODES = 3
TYPES = 12
BYTES_A_SECOND = 0.9e6
"""Bytes of a job's input for each second that it takes on a CPU."""
REAL = [
    {"app": app, "params": params, "seconds": {"cpu": 1.0}, "size": 0, "on": "cpu0"}
    for app, params in (
        ("heat", {"n": 1024, "steps": 300}),
        ("markov", {"n": 2048}),
        ("correlation", {}),
    )
    for _ in range(4)
]
"""Jobs that compute, without inputs."""
ORDERED = {
    "DASK_DISTRIBUTED__WORKER__CONNECTIONS__OUTGOING": "1",
    "DASK_DISTRIBUTED__WORKER__TRANSFER__MESSAGE_BYTES_LIMIT": "1MB",
}
DASK_WAYS: dict[str, dict[str, str]] = {
    "dask default": {},
    "round-robin": {},
    "dask placement, ordered transfers": ORDERED,
}


def jobs_of(
    seed: int, count: int, bytes_a_second: float = BYTES_A_SECOND
) -> list[dict[str, Any]]:
    """Draw jobs of twelve types whose time and size go together, as in the papers."""
    draw = random.Random(seed)
    types = [draw.expovariate(1 / 0.6) + 0.1 for _ in range(TYPES)]
    return [_job(draw.choice(types), draw, bytes_a_second) for _ in range(count)]


def _job(length: float, draw: random.Random, bytes_a_second: float) -> dict[str, Any]:
    times = {
        kind: length * draw.uniform(0.8, 1.2) / speed for kind, speed in KINDS.items()
    }
    size = int(length * draw.uniform(0.6, 1.4) * bytes_a_second)
    return {"seconds": times, "size": size}


def run() -> list[dict[str, Any]]:
    reason = obstacle()
    if reason:
        return [{"size": "not run", "reason": f"no network namespaces: {reason}"}]
    chosen = os.environ.get("HETBENCH_PARTS", ",".join(PARTS)).split(",")
    unknown = sorted(set(chosen) - set(PARTS))
    if unknown:
        raise InputError(
            f"HETBENCH_PARTS: no {unknown[0]!r}; one of {', '.join(PARTS)}"
        )
    rows = []
    for part in chosen:
        for row in PARTS[part]():
            print(row, file=sys.stderr)
            rows.append(row)
    return rows


# ---------------------------------------------------------------------- makespans


def makespans() -> Iterator[dict[str, Any]]:
    """Run a batch for each seed in every way."""
    count = int(os.environ.get("HETBENCH_JOBS", "200"))
    for seed in _seeds():
        with BenchPool(NODES, LINK) as pool:
            found = beside(pool, jobs_of(seed, count), list(DASK_WAYS))
        yield {"size": f"{count} jobs, seed {seed}", **found}


def mixed() -> Iterator[dict[str, Any]]:
    """Run a batch with larger inputs, and with jobs that compute, on faster links."""
    seed, count = _seeds()[0], int(os.environ.get("HETBENCH_JOBS", "200"))
    jobs = jobs_of(seed, count - len(REAL), bytes_a_second=4 * BYTES_A_SECOND)
    jobs += REAL
    random.Random(seed).shuffle(jobs)
    with BenchPool(NODES, 4 * LINK, cpu="cpu") as pool:
        found = beside(pool, jobs, ["dask default"])
    yield {
        "size": f"{count} jobs, {len(REAL)} compute, 100 Mbit/s, seed {seed}",
        **found,
    }


def _seeds() -> list[int]:
    return [int(each) for each in os.environ.get("HETBENCH_SEEDS", "1,2,3").split(",")]


def beside(
    pool: BenchPool, jobs: list[dict[str, Any]], ways: Sequence[str]
) -> dict[str, Any]:
    """Run one batch on the pool, and in some ways of Dask alone."""
    request = pool.request(
        jobs=jobs, scheduler=f"tls://{pool.machines.address('head')}:{SCHEDULER_PORT}"
    )
    pool.start_pool()
    ours = _client(pool, "pool", request)
    pool.end()
    print("ncjm", ours["seconds"], "planned", ours["planned"], file=sys.stderr)
    others = {way: _dask(pool, {**request, "way": way}) for way in ways}
    return {
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
    _start_dask(pool, request["scheduler"], DASK_WAYS[request["way"]])
    try:
        got = _client(pool, "dask", request)
    finally:
        pool.end()
    print(request["way"], got["seconds"], file=sys.stderr)
    return got


def _start_dask(pool: BenchPool, address: str, environment: dict[str, str]) -> None:
    """Start a Dask of its own, encrypted as the pool is, with its certificates."""
    settings = read_settings(pool.config, {}).engine()
    tls = ["--tls-ca-file", str(settings.ca), "--tls-cert", str(settings.cert)]
    tls += ["--tls-key", str(settings.key)]
    host = pool.machines.address("head")
    words = ["-m", "distributed.cli.dask_scheduler", "--no-dashboard", "--host", host]
    words += ["--port", str(SCHEDULER_PORT), "--protocol", "tls", *tls]
    pool.start("head", words, environment)
    for name in [*pool.names, "gw"]:
        words = ["-m", "distributed.cli.dask_worker", address, "--name", name]
        words += ["--no-nanny", "--no-dashboard", "--nthreads", str(len(KINDS))]
        words += ["--host", pool.machines.address(name), "--worker-port", str(PORT)]
        words += ["--local-directory", str(pool.folder), *tls]
        own = pool.daemons.get(name)
        socket = {"HETD_SOCKET": str(own.files.socket)} if own else {}
        pool.start(name, words, {**environment, **socket})


# -------------------------------------------------------------------------- costs


def costs(count: int, *, single: bool) -> dict[str, Any]:
    """Measure the processor time of a no-op job, without hetd's: of the pool, and of Dask alone."""
    with BenchPool(2, 100 * LINK) as pool:
        nothing = {"seconds": dict.fromkeys(KINDS, 0.0), "size": 0}
        address = f"tls://{pool.machines.address('head')}:{SCHEDULER_PORT}"
        request = pool.request(jobs=[nothing] * count, single=single, scheduler=address)
        pool.start_pool()
        ours = _used(pool, "pool", request)
        pool.end()
        _start_dask(pool, address, {})
        dask = _used(pool, "dask", {**request, "way": "dask default"})
    return {
        "size": f"{count} no-op jobs, {'one by one' if single else 'in one batch'}",
        "load": os.getloadavg()[0],
        **ours,
        "dask_alone": dask,
        "over_dask_alone": ours["all_ms"] / dask["all_ms"],
    }


def _used(pool: BenchPool, way: str, request: dict[str, Any]) -> dict[str, float]:
    """Return the milliseconds of processor time a job of each part."""
    count = len(request["jobs"])
    _client(pool, way, request)  # everything is imported by now
    before = {name: _cpu(process.pid) for name, process in pool.processes.items()}
    got = _client(pool, way, {**request, "warm": False})
    used = {name: _cpu(p.pid) - before[name] for name, p in pool.processes.items()}
    parts = {"scheduler": used.pop("head"), "nodes": sum(used.values())}
    parts |= {"client": got["client_cpu_s"]}
    each = {f"{name}_ms": 1e3 * seconds / count for name, seconds in parts.items()}
    return {**each, "all_ms": sum(each.values())}


def both_costs() -> Iterator[dict[str, Any]]:
    """Measure no-op jobs in a batch and one by one."""
    yield costs(2000, single=False)
    yield costs(200, single=True)


def _cpu(pid: int) -> float:
    """Return the processor seconds of a process and its children."""
    import psutil

    process = psutil.Process(pid)
    every = [process, *process.children(recursive=True)]
    return float(sum(sum(each.cpu_times()[:2]) for each in every))


PARTS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "makespans": makespans,
    "mixed": mixed,
    "kills": kills,
    "cut": cuts,
    "move": moves,
    "pace": paces,
    "testbed": testbeds,
    "costs": both_costs,
}
