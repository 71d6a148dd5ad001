"""A million waiting tasks: what hetd needs for them, and how long it then decides.

They wait for a worker: no launcher is there, so every event still leads to a decision
about all of them. Durable throughout.
"""

from __future__ import annotations

import gc
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import psutil

from hetbench.noop import Noop
from hetbench.resources import CPU_ONLY
from libtask import messages as m
from libtask.apps import Options, describe, name_of
from libtask.client.client import Client
from libtask.daemon.process import DaemonFiles, DaemonProcess

STEPS = (100_000, 1_000_000)
"""Numbers of waiting tasks at which is measured."""
BATCH = 500
EVENTS = 500
"""Further tasks, submitted one by one, over which decisions are measured."""
HANDLES = 10_000
"""Further tasks whose handles are kept."""
START_S = END_S = 300.0


def run() -> list[dict[str, Any]]:
    """Measure; return one row a number of waiting tasks, and one about their handles."""
    with tempfile.TemporaryDirectory(prefix="hetbench-") as folder:
        daemon = DaemonProcess(DaemonFiles.within(Path(folder), CPU_ONLY))
        daemon.start(START_S)
        try:
            with Client(daemon.files.socket, timeout=START_S) as client:
                before = 0
                rows = []
                for waiting in STEPS:
                    rate = _submit(client, waiting - before)
                    rows.append({"waiting": waiting, **rate, **_look(client, daemon)})
                    before = waiting + EVENTS
                return [*rows, _handles(client)]
        finally:
            daemon.kill()


def _submit(client: Client, tasks: int) -> dict[str, float]:
    """Submit in batches, each acknowledged when it is durable."""
    spec = describe(Noop(), name_of(Noop), Options())
    begin = time.perf_counter()
    for _ in range(tasks // BATCH):
        client._session.request(m.Submit(request=0, tasks=[spec] * BATCH))  # noqa: SLF001  no handles
    return {"submitted_per_s": round(tasks / (time.perf_counter() - begin))}


def _look(client: Client, daemon: DaemonProcess) -> dict[str, float]:
    """Measure memory, decisions and the answer to a submit of one task."""
    memory = psutil.Process(daemon.pid).memory_info().rss
    spec = describe(Noop(), name_of(Noop), Options())
    before, times = client.status(), []
    for _ in range(EVENTS):
        begin = time.perf_counter()
        client._session.request(m.Submit(request=0, tasks=[spec]))  # noqa: SLF001  no handles
        times.append(1e3 * (time.perf_counter() - begin))
    after = client.status()
    decided = after.decided - before.decided
    return {
        "memory_mib": round(memory / 2**20),
        "us_per_decision": round(
            1e6 * (after.deciding_s - before.deciding_s) / decided, 1
        ),
        "submit_p50_ms": round(sorted(times)[EVENTS // 2], 2),
        "submit_longest_ms": round(max(times), 2),
    }


def _handles(client: Client) -> dict[str, int]:
    """Measure the memory of a program that keeps handles of waiting tasks."""
    spec = describe(Noop(), name_of(Noop), Options())
    client.submit_specs([spec])  # loads modules: once in a program
    tracemalloc.start()
    try:
        handles = client.submit_specs([spec] * HANDLES)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return {"handles": len(handles), "bytes_per_handle": round(taken / len(handles))}
