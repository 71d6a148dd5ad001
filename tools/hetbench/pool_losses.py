"""Costs of the loss of a process or of a link to a pool: parts of the bench `pool`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from hetbench.pool_machines import KINDS, LINK, BenchPool
from hetpool.setup.settings import EngineSettings
from libtask import Client
from libtask.client.client import Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    Value = TypeVar("Value")

TASK_S, CUT_TASK_S = 8.0, 12.0
LEASE_S, REPLACE_S = 4.0, 8.0
PATIENCE_S = 180.0


def kills() -> Iterator[dict[str, Any]]:
    """Kill the process of the node, then the scheduler, under a running task."""
    yield _killed("n1", "worker")
    yield _killed("head", "scheduler")


def _killed(machine: str, what: str) -> dict[str, Any]:
    with BenchPool(1, 100 * LINK) as pool:
        pool.start_pool()
        jobs = [{"seconds": dict.fromkeys(KINDS, TASK_S), "size": 0}]
        words = ["-m", "hetbench.pool_client", "pool"]
        process = pool.begin_client(words, pool.request(jobs=jobs))
        client = Client(pool.daemons["n1"].files.socket)
        _until(pool, lambda: _running(client, TASK_S))
        pool.kill(machine)
        pool.start_again(machine)
        if machine == "head":
            pool.revive()
        got = pool.end_client(process)
        executions = len(_lasting(client, TASK_S))
        client.close()
    return {
        "size": f"kill -9 of the {what} under a task of {TASK_S:g} s",
        "load": os.getloadavg()[0],
        "seconds_beyond_task": got["seconds"] - TASK_S,
        "executions": executions,
    }


def cuts() -> Iterator[dict[str, Any]]:
    """Cut the link of the node of a running task; mend it when the task has ended elsewhere."""
    with BenchPool(2, 100 * LINK, lease_s=LEASE_S, replace_s=REPLACE_S) as pool:
        pool.start_pool()
        request = pool.request(seconds=dict.fromkeys(KINDS, CUT_TASK_S))
        process = pool.begin_client(["-m", "hetbench.pool_client", "cut"], request)
        clients = {name: Client(pool.daemons[name].files.socket) for name in pool.names}
        lost = _until(pool, lambda: next(filter(_is_on(clients), clients), ""))
        orphan = _running(clients[lost], CUT_TASK_S)[0].id
        pool.machines.cut(lost)
        cut_at = time.monotonic()
        time.sleep(LEASE_S + 1.0)
        held = clients[lost].show(orphan).progress
        got = pool.end_client(process)
        later = clients[lost].show(orphan).progress
        pool.machines.mend(lost)
        mended = time.monotonic()
        _until(pool, lambda: clients[lost].show(orphan).state == "cancelled")
        cancelled = time.monotonic()
        for client in clients.values():
            client.close()
    yield {
        "size": f"the link of a node cut under a task of {CUT_TASK_S:g} s, lease "
        f"{LEASE_S:g} s, elsewhere after {REPLACE_S:g} s",
        "load": os.getloadavg()[0],
        "tcp_timeout_s": EngineSettings("").patience_s,
        "noticed_s": got["noticed_at"] - cut_at,
        "orphan_at": held,
        "orphan_progress_after_lease": later - held,
        "done_s": got["ended_at"] - cut_at,
        "other_node": got["node"] != lost,
        "orphan_cancelled_after_return_s": cancelled - mended,
    }


def _lasting(client: Client, seconds: float) -> list[Any]:
    """List the tasks of this length, not those that warm up."""
    found = client.tasks(Selection(detail=True))
    times = dict.fromkeys(KINDS, seconds)
    return [each for each in found if each.params.get("seconds") == times]


def _running(client: Client, seconds: float) -> list[Any]:
    return [each for each in _lasting(client, seconds) if each.state == "running"]


def _is_on(clients: dict[str, Client]) -> Callable[[str], bool]:
    return lambda name: bool(_running(clients[name], CUT_TASK_S))


def _until(pool: BenchPool, look: Callable[[], Value]) -> Value:
    """Look until there is something to see; return it."""
    deadline = time.monotonic() + PATIENCE_S
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(pool.logs())
        time.sleep(0.02)
    return seen
