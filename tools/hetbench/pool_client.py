"""The clients of the bench `pool`, each run on a machine of its pool.

    python -m hetbench.pool_client WAY < REQUEST.json      prints one JSON object

The request says what to do and where the pool or Dask's scheduler is. `pool` and `dask`
submit the same jobs (`seconds` by kind, `size` of the input; `app`, `params` and `on`, if it
is not a synthetic one) and end when all results are there. `cut`, `move` and `pace` follow a
task of the pool.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetpool import Pool

STRIPS = 20
LONG_STRIPS = 200
"""Of a task that is stopped at a strip's end."""
BEGUN = 0.1
"""Share that a task has done before it moves."""
WARM_UP = [
    {"seconds": {"cpu": 0.2, "gpu": 0.2, "fpga": 0.2}, "size": 10_000 + number}
    for number in range(18)
]
"""A batch before the one that is measured: daemons, workers and planner have started."""
PATIENCE_S = 900.0


def main() -> None:
    request = json.load(sys.stdin)
    ways = {
        "pool": through_pool,
        "dask": through_dask,
        "cut": through_cut,
        "move": through_move,
        "pace": through_pace,
    }
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
    own: dict[str, Any] | None = job.get("params")
    return {"seconds": job["seconds"], "strips": STRIPS} if own is None else own


def _where(job: dict[str, Any]) -> dict[str, Any]:
    """Return the option by which a job is for one resource."""
    return {"resources": (job["on"],)} if "on" in job else {}


@contextmanager
def _opened(request: dict[str, Any]) -> Iterator[Pool]:
    """Connect to the pool, when all its nodes are there."""
    from hetpool import Pool
    from hetpool.setup.config import read_settings

    settings = read_settings(Path(request["config"]), {}).engine()
    incoming = Path(request["incoming"])
    with Pool(settings, timeout=PATIENCE_S, incoming=incoming) as pool:
        _await_nodes(lambda: [n.name for n in pool.nodes() if n.present], request)
        yield pool


def through_pool(request: dict[str, Any]) -> dict[str, Any]:
    """Submit the jobs as one batch of the pool."""
    _files(request, request["jobs"])
    with _opened(request) as pool:
        if request.get("warm", True):
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
            job.get("app", "synthetic"),
            {**_params(job), **({"label": Input(path)} if job["size"] else {})},
            seconds=job["seconds"],
            **_where(job),
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


def through_cut(request: dict[str, Any]) -> dict[str, Any]:
    """Follow a task whose node is cut off; note when the pool notices that."""
    with _opened(request) as pool:
        params = {"seconds": request["seconds"], "strips": LONG_STRIPS}
        task = pool.submit("synthetic", params, seconds=request["seconds"])
        while all(node.present for node in pool.nodes()):
            time.sleep(0.05)
        noticed = time.monotonic()
        task.result(PATIENCE_S)
        ended = time.monotonic()
        return {"noticed_at": noticed, "ended_at": ended, "node": task.node}


def through_move(request: dict[str, Any]) -> dict[str, Any]:
    """Move a task while it runs; compare its result with that of one that stays."""
    from hetpool.inquiry import AskTasks, TaskFacts

    app, params, where = request["app"], request["params"], _where(request)
    with _opened(request) as pool:
        # on each node, as compiling the kernel there is no part of the move
        stays = [
            pool.submit(app, params, nodes=(name,), **where)
            for name in request["nodes"]
        ]
        results = [each.result(PATIENCE_S) for each in stays]
        task = pool.submit(app, params, **where)
        while task.progress < BEGUN:
            time.sleep(0.02)
        source, moved_at = task.node, task.progress
        target = next(name for name in request["nodes"] if name != source)
        task.move(target)
        results.append(task.result(PATIENCE_S))
        facts = {n: pool.inquire(n, AskTasks(), TaskFacts) for n in (source, target)}
    segments = {
        name: [
            segment
            for each in found.tasks
            if each.name.startswith(f"pool/{task.id}")
            for segment in each.segments
        ]
        for name, found in facts.items()
    }
    stopped = max(each.finish or 0.0 for each in segments[source])
    began = min(each.computing or each.start for each in segments[target])
    return {
        "equal": all(each == results[0] for each in results),
        "moved_at": moved_at,
        "idle_s": began - stopped,
        "bytes": sum(each.size for each in facts[target].transfers),
    }


def through_pace(request: dict[str, Any]) -> dict[str, float]:
    """Send a file to each node; return the rates that they reached."""
    from hetpool import Input
    from hetpool.inquiry import AskTasks, TaskFacts

    nodes = request["nodes"]
    paths = _files(request, [{"size": request["size"]}] * len(nodes))
    seconds = {"cpu": 0.1}
    with _opened(request) as pool:
        tasks = [
            pool.submit(
                "synthetic",
                {"seconds": seconds, "label": Input(path)},
                seconds=seconds,
                nodes=(name,),
            )
            for name, path in zip(nodes, paths, strict=True)
        ]
        for task in tasks:
            task.result(PATIENCE_S)
        found = {n: pool.inquire(n, AskTasks(), TaskFacts).transfers for n in nodes}
    return {
        name: each.size / (each.finish - each.start) for name, (each,) in found.items()
    }


def load(path: str) -> Any:
    """Read an input where it is: the task that Dask runs on the gateway."""
    import numpy as np

    return np.fromfile(path, dtype=np.uint8)


def compute(job: dict[str, Any], _data: Any = None) -> str:
    """Run a job in the hetd of the worker's node: the task that Dask places."""
    from distributed import get_worker

    from libtask import Client

    worker = get_worker()
    client = getattr(worker, "hetd_client", None)
    if client is None:
        client = worker.hetd_client = Client(os.environ["HETD_SOCKET"])
    client.submit(job.get("app", "synthetic"), _params(job), **_where(job)).result()
    return str(worker.name)


def through_dask(request: dict[str, Any]) -> dict[str, Any]:
    """Submit the jobs to a Dask of its own; `way` says who chooses the nodes."""
    from distributed import Client

    from hetpool.engine.configuration import security
    from hetpool.setup.config import read_settings

    _files(request, request["jobs"])
    tls = security(read_settings(Path(request["config"]), {}).engine())
    with Client(request["scheduler"], timeout=PATIENCE_S, security=tls) as client:
        _await_nodes(lambda: _names(client), request)
        if request.get("warm", True):
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

    paths = _files(request, jobs)
    futures = []
    for number, (job, path) in enumerate(zip(jobs, paths, strict=True)):
        futures.append(_submitted(client, number, job, path, request))
        if request.get("single"):
            futures[-1].result()
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
    return client.submit(compute, job, data, workers=nodes, **options)


def _names(client: Any) -> list[str]:
    return [each["name"] for each in client.scheduler_info(-1)["workers"].values()]


if __name__ == "__main__":
    main()
