"""No-op tasks through the real daemon: rate, and time from submission to finish.

Durable store, workers in processes of their own. Beside it, alternating in the same
run: `ProcessPoolExecutor` (no durability, no isolation), and Ray and Dask
where they are installed.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

from hetbench.noop import Noop, nothing
from hetbench.resources import CPU_ONLY
from libtask.apps import Options, describe, name_of
from libtask.daemon.private import private_daemon

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.client.client import Client
    from libtask.messages import TaskSpec

TASKS = 5000
ROUNDS = 5
SINGLE = 500
WORKERS = 2


def run() -> list[dict[str, Any]]:
    """Measure; return one row a system."""
    with private_daemon(CPU_ONLY) as client, ProcessPoolExecutor(WORKERS) as pool:
        spec = describe(Noop(), name_of(Noop), Options())
        client.submit_specs([spec] * 200)[-1].result(60)
        systems: dict[str, Callable[[], float]] = {
            "hetd": lambda: _rate(lambda: _through_hetd(client, spec)),
            "ProcessPoolExecutor": lambda: _rate(lambda: _through_pool(pool)),
            **_others(),
        }
        rates: dict[str, list[float]] = {name: [] for name in systems}
        for _ in range(ROUNDS):
            for name, measure in systems.items():
                rates[name].append(measure())
        rows = [_row(name, rates) for name in systems]
        rows.append({"case": "one at a time", **_latency(client, spec)})
    return rows


def _row(name: str, rates: dict[str, list[float]]) -> dict[str, Any]:
    rate = statistics.median(rates[name])
    ratios = [
        ours / other for ours, other in zip(rates["hetd"], rates[name], strict=True)
    ]
    return {
        "case": "no-op tasks",
        "system": name,
        "tasks_per_s": round(rate),
        "best": round(max(rates[name])),
        "hetd_over_it": round(statistics.median(ratios), 3),
    }


def _rate(body: Callable[[], None]) -> float:
    begin = time.perf_counter()
    body()
    return TASKS / (time.perf_counter() - begin)


def _through_hetd(client: Client, spec: TaskSpec) -> None:
    for handle in client.submit_specs([spec] * TASKS):
        handle.result(120)


def _through_pool(pool: ProcessPoolExecutor) -> None:
    for future in [pool.submit(nothing, index) for index in range(TASKS)]:
        future.result()


def _latency(client: Client, spec: TaskSpec) -> dict[str, float]:
    """Time from submission to finish of one task after another, in milliseconds."""
    times = []
    for _ in range(SINGLE):
        begin = time.perf_counter()
        client.submit_specs([spec])[0].result(60)
        times.append(1e3 * (time.perf_counter() - begin))
    cuts = statistics.quantiles(times, n=100)
    return {"p50_ms": round(cuts[49], 3), "p99_ms": round(cuts[98], 3)}


def _others() -> dict[str, Callable[[], float]]:
    """Find the neighbouring systems that are installed."""
    found: dict[str, Callable[[], float]] = {}
    if importlib.util.find_spec("ray"):
        found["Ray"] = _ray()
    if importlib.util.find_spec("distributed"):
        found["Dask"] = _dask()
    return found


def _ray() -> Callable[[], float]:
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    remote = ray.remote(nothing)
    return lambda: _rate(lambda: ray.get([remote.remote(n) for n in range(TASKS)]))


def _dask() -> Callable[[], float]:
    from distributed import Client as DaskClient
    from distributed import LocalCluster

    cluster = LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, dashboard_address=None
    )
    client = DaskClient(cluster)
    return lambda: _rate(
        lambda: client.gather(client.map(nothing, range(TASKS), pure=False))
    )
