"""No-op tasks through the real daemon: rate, processor time, and time of one alone.

Durable store, workers in processes of their own. Beside it, alternating in the same
run: `ProcessPoolExecutor` (no durability, no isolation), and with `make bench PEERS=1`
Dask and Ray.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from hetbench.noop import Noop, nothing
from hetbench.peers import peers
from hetbench.processes import DaemonProcesses
from hetbench.resources import CPU_ONLY, cpu_with
from libtask.apps import Options, describe, name_of
from libtask.client.client import Client
from libtask.daemon.private import private_daemon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from libtask.client.handles import TaskHandle
    from libtask.messages import TaskSpec

TASKS = 5000
ROUNDS = 5
SINGLE = 500
WORKERS = 2
CLIENTS = (8, 64)
"""Numbers of clients at once, beside one: each is a connection, and a thread here."""
MORE_WORKERS = (1, 4, 8)
ARRAY = 100_000
LONG = {"seconds": {"cpu": 600.0}, "strips": 10_000}
SYNCS = 50


def run() -> list[dict[str, Any]]:
    """Measure; return one row a case and system."""
    spec = describe(Noop(), name_of(Noop), Options())
    with private_daemon(CPU_ONLY) as client:
        _warm_up(client, spec)
        rows = [*_beside_others(client, spec)]
        rows += [_clients(client, spec, number) for number in CLIENTS]
        rows.append(_submission(client, spec))
        rows.append(_array(client, spec))
        rows.append({"case": "one at a time", **_latency(client, spec)})
    return [*rows, *(row for n in MORE_WORKERS for row in _workers(spec, n))]


def _warm_up(client: Client, spec: TaskSpec) -> None:
    client.submit_specs([spec] * 200)[-1].result(60)


def _beside_others(client: Client, spec: TaskSpec) -> Iterator[dict[str, Any]]:
    """One client and two workers, beside the other systems."""
    case = f"no-op tasks, 1 client, {WORKERS} workers"
    with ExitStack() as parts:
        pool = parts.enter_context(ProcessPoolExecutor(WORKERS))
        others = parts.enter_context(peers(WORKERS))
        processes = DaemonProcesses(client)
        systems: dict[str, Callable[[], float]] = {
            "hetd": lambda: _timed(lambda: _through_hetd(client, spec, TASKS)),
            "ProcessPoolExecutor": lambda: _timed(lambda: _through_pool(pool)),
            **{name: _peer(other.seconds) for name, other in others.items()},
        }
        before = processes.consumption()
        systems["hetd"]()
        used = processes.consumption().since(before).per_task(TASKS)
        rates = _alternating(systems)
    for name in systems:
        yield {"case": case, **_row(name, rates), **(used if name == "hetd" else {})}


def _peer(seconds: Callable[[int], float]) -> Callable[[], float]:
    return lambda: TASKS / seconds(TASKS)


def _clients(client: Client, spec: TaskSpec, number: int) -> dict[str, Any]:
    """Several clients at once, each with its part of the tasks."""
    part = TASKS // number
    with ExitStack() as parts:
        each = [parts.enter_context(Client(client.path)) for _ in range(number)]
        threads = parts.enter_context(ThreadPoolExecutor(number))

        def all_at_once() -> None:
            list(threads.map(lambda one: _through_hetd(one, spec, part), each))

        all_at_once()
        rates = _alternating({"hetd": lambda: _timed(all_at_once, part * number)})
    case = f"no-op tasks, {number} clients, {WORKERS} workers"
    return {"case": case, **_row("hetd", rates)}


def _workers(spec: TaskSpec, number: int) -> Iterator[dict[str, Any]]:
    """Another number of workers, beside as many of a pool."""
    case = f"no-op tasks, 1 client, {number} workers"
    with (
        private_daemon(cpu_with(number)) as client,
        ProcessPoolExecutor(number) as pool,
    ):
        _warm_up(client, spec)
        systems: dict[str, Callable[[], float]] = {
            "hetd": lambda: _timed(lambda: _through_hetd(client, spec, TASKS)),
            "ProcessPoolExecutor": lambda: _timed(lambda: _through_pool(pool)),
        }
        rates = _alternating(systems)
    for name in systems:
        yield {"case": case, **_row(name, rates)}


def _array(client: Client, spec: TaskSpec) -> dict[str, Any]:
    """One submit of many tasks, from its start to the last end."""
    processes = DaemonProcesses(client)
    before = processes.consumption()
    rate = _timed(lambda: _through_hetd(client, spec, ARRAY), ARRAY)
    used = processes.consumption().since(before)
    return {
        "case": f"{ARRAY} tasks at once",
        "tasks_per_s": round(rate),
        **used.per_task(ARRAY),
    }


def _submission(client: Client, spec: TaskSpec) -> dict[str, Any]:
    """The submit alone: until it is acknowledged, while long tasks occupy the workers."""
    processes = DaemonProcesses(client)
    long = [client.submit("synthetic", LONG) for _ in range(WORKERS)]
    while any(each.info().state != "running" for each in long):
        time.sleep(0.01)
    before = processes.consumption()
    handles: list[TaskHandle] = []
    rate = _timed(lambda: handles.extend(client.submit_specs([spec] * ARRAY)), ARRAY)
    used = processes.consumption().since(before)
    client.cancel(*(each.id for each in long))
    for handle in handles:
        handle.result(300)
    return {
        "case": f"submit of {ARRAY} tasks, behind long ones",
        "tasks_per_s": round(rate),
        **used.per_task(ARRAY),
    }


def _alternating(systems: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Measure systems in turn; return the rates of each."""
    rates: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(ROUNDS):
        for name, measure in systems.items():
            rates[name].append(measure())
    return rates


def _row(name: str, rates: dict[str, list[float]]) -> dict[str, Any]:
    ratios = [
        ours / other for ours, other in zip(rates["hetd"], rates[name], strict=True)
    ]
    return {
        "system": name,
        "tasks_per_s": round(statistics.median(rates[name])),
        "best": round(max(rates[name])),
        "hetd_over_it": round(statistics.median(ratios), 3),
    }


def _timed(body: Callable[[], None], tasks: int = TASKS) -> float:
    """Return tasks a second."""
    begin = time.perf_counter()
    body()
    return tasks / (time.perf_counter() - begin)


def _through_hetd(client: Client, spec: TaskSpec, tasks: int) -> None:
    for handle in client.submit_specs([spec] * tasks):
        handle.result(300)


def _through_pool(pool: ProcessPoolExecutor) -> None:
    for future in [pool.submit(nothing, index) for index in range(TASKS)]:
        future.result()


def _latency(client: Client, spec: TaskSpec) -> dict[str, float]:
    """Time from submission to finish of one task after another, beside that of a sync."""
    before = client.status().commits
    times = []
    for _ in range(SINGLE):
        begin = time.perf_counter()
        client.submit_specs([spec])[0].result(60)
        times.append(1e3 * (time.perf_counter() - begin))
    cuts = statistics.quantiles(times, n=100)
    return {
        "p50_ms": round(cuts[49], 3),
        "p99_ms": round(cuts[98], 3),
        "commits_per_task": round((client.status().commits - before) / SINGLE, 3),
        "sync_ms": round(_sync_ms(client.path.parent, cuts[49] / 1e3), 3),
    }


def _sync_ms(folder: Path, pause_s: float) -> float:
    """Return the median time of a write of one page with a sync, milliseconds.

    Args:
        folder: of the file.
        pause_s: seconds before each, as between the commits that it is compared with: a
            disk that was written just now takes half as long.

    """
    times = []
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            time.sleep(pause_s)
            begin = time.perf_counter()
            os.pwrite(file.fileno(), b"\0" * 4096, 0)
            os.fdatasync(file.fileno())
            times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)
