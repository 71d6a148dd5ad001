"""The clients of the bench `pool`, each run on a machine of its pool.

    python -m hetbench.pool_client pool|dask < REQUEST.json      prints one JSON object

The request has jobs (`seconds` by kind, `size` of the input), a way, and where the pool or
Dask's scheduler is. Both clients submit the same jobs; both end when all results are there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

STRIPS = 20
WARM_UP = [
    {"seconds": {"cpu": 0.2, "gpu": 0.2, "fpga": 0.2}, "size": 10_000 + number}
    for number in range(18)
]
"""A batch before the one that is measured: daemons, workers and planner have started."""
PATIENCE_S = 900.0


def main() -> None:
    request = json.load(sys.stdin)
    ways = {"pool": through_pool, "dask": through_dask}
    print(json.dumps(ways[sys.argv[1]](request)))


def _files(request: dict[str, Any], jobs: list[dict[str, Any]]) -> list[Path]:
    """Return the jobs' inputs, which every way finds where the first one made them."""
    folder = Path(request["folder"]) / "inputs"
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}-{job['size']}.bin" for number, job in enumerate(jobs)]
    for path, job in zip(paths, jobs, strict=True):
        if not path.exists():
            path.write_bytes(os.urandom(job["size"]))
    return paths


def _params(job: dict[str, Any]) -> dict[str, Any]:
    return {"seconds": job["seconds"], "strips": STRIPS}


def through_pool(request: dict[str, Any]) -> dict[str, Any]:
    """Submit the jobs as one batch of the pool."""
    from hetpool import Pool
    from hetpool.setup.config import read_settings

    _files(request, request["jobs"])
    settings = read_settings(Path(request["config"]), {}).engine()
    incoming = Path(request["incoming"])
    with Pool(settings, timeout=PATIENCE_S, incoming=incoming) as pool:
        _await_nodes(lambda: [n.name for n in pool.nodes() if n.present], request)
        _ended(pool, request, _described(pool, request, WARM_UP))
        # leaving files with the gateway is not what is measured: Dask reads them there
        jobs = _described(pool, request, request["jobs"])
        began, cpu = time.perf_counter(), time.process_time()
        plan, tasks = _ended(pool, request, jobs)
        return {
            "seconds": time.perf_counter() - began,
            "planned": plan.makespan,
            "bound": plan.bound,
            "client_cpu_s": time.process_time() - cpu,
            "nodes": [task.node for task in tasks],
        }


def _described(
    pool: Any, request: dict[str, Any], jobs: list[dict[str, Any]]
) -> list[Any]:
    from hetpool import Input

    return [
        pool.job(
            "synthetic",
            {**_params(job), "label": Input(path) if job["size"] else ""},
            seconds=job["seconds"],
        )
        for job, path in zip(jobs, _files(request, jobs), strict=True)
    ]


def _ended(pool: Any, request: dict[str, Any], jobs: list[Any]) -> Any:
    """Run jobs as one batch to their ends; return its plan and tasks."""
    from hetpool import as_completed

    if request.get("single"):
        jobs, first = jobs[:1], jobs[1:]
        for job in first:
            pool.batch([job], planner=request["planner"])[1][0].result(PATIENCE_S)
    plan, tasks = pool.batch(jobs, planner=request["planner"])
    for task in as_completed(tasks):
        task.result(PATIENCE_S)
    return plan, tasks


def _await_nodes(look: Any, request: dict[str, Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    wanted = {*request["nodes"], "gw"}
    while not wanted <= set(look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not there: {wanted - set(look())}")
        time.sleep(0.1)


def load(path: str) -> Any:
    """Read an input where it is: the task that Dask runs on the gateway."""
    import numpy as np

    return np.fromfile(path, dtype=np.uint8)


def compute(params: dict[str, Any], _data: Any = None) -> str:
    """Run a job in the hetd of the worker's node: the task that Dask places."""
    from distributed import get_worker

    from libtask import Client

    worker = get_worker()
    client = getattr(worker, "hetd_client", None)
    if client is None:
        client = worker.hetd_client = Client(os.environ["HETD_SOCKET"])
    client.submit("synthetic", params).result()
    return str(worker.name)


def through_dask(request: dict[str, Any]) -> dict[str, Any]:
    """Submit the jobs to a Dask of its own; `way` says who chooses the nodes."""
    from distributed import Client

    _files(request, request["jobs"])
    with Client(request["scheduler"], timeout=PATIENCE_S) as client:
        _await_nodes(lambda: _names(client), request)
        _dasked(client, request, WARM_UP)
        began, cpu = time.perf_counter(), time.process_time()
        done = _dasked(client, request, request["jobs"])
        return {
            "seconds": time.perf_counter() - began,
            "client_cpu_s": time.process_time() - cpu,
            "nodes": done,
        }


def _dasked(
    client: Any, request: dict[str, Any], jobs: list[dict[str, Any]]
) -> list[str]:
    from distributed import as_completed

    futures = [
        _submitted(client, number, job, path, request)
        for number, (job, path) in enumerate(
            zip(jobs, _files(request, jobs), strict=True)
        )
    ]
    return [future.result() for future in as_completed(futures)]


def _submitted(
    client: Any, number: int, job: dict[str, Any], path: Path, request: dict[str, Any]
) -> Any:
    nodes = request["nodes"]
    # as the pool: earlier jobs first, which a configuration of one connection keeps
    options = {"pure": False, "priority": -number}
    data = None
    if job["size"]:
        data = client.submit(load, str(path), workers=["gw"], **options)
    if request["way"] == "round-robin":
        nodes = [nodes[number % len(nodes)]]
    return client.submit(compute, _params(job), data, workers=nodes, **options)


def _names(client: Any) -> list[str]:
    return [each["name"] for each in client.scheduler_info(-1)["workers"].values()]


if __name__ == "__main__":
    main()
