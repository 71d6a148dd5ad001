"""100,000 tasks in the store: submitting them, starting with them, looking at them.

All of them wait: for the resource, drained, and then, as here it is not about running
them, for a worker that does not exist.
Durable throughout.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from hetbench.noop import Noop
from hetbench.resources import CPU_ONLY
from libtask import messages as m
from libtask.apps import Options, describe, name_of
from libtask.client.client import Client, Selection
from libtask.daemon.process import DaemonFiles, DaemonProcess

if TYPE_CHECKING:
    from collections.abc import Callable

TASKS = 100_000
BATCH = 100
LOOKS = 15
ON_HISTORY = (
    ("list",),
    ("list", "--state", "failed"),
    ("list", "@sweep"),
    ("list", "--jobs"),
    ("history",),
    ("cancel", "all"),
)
"""Commands that are asked of a long history; some find nothing."""
START_S = 120.0
END_S = 60.0


def run() -> list[dict[str, Any]]:
    """Measure; return one row a question."""
    with tempfile.TemporaryDirectory(prefix="hetbench-") as folder:
        files = DaemonFiles.within(Path(folder), CPU_ONLY)
        daemon = DaemonProcess(files)
        try:
            return _rows(daemon)
        finally:
            if daemon.is_up():
                daemon.end()


def _rows(daemon: DaemonProcess) -> list[dict[str, Any]]:
    files = daemon.files
    _start(daemon)
    rows = [_submissions(files.socket), _memory(daemon, "after submitting")]
    daemon.terminate(END_S)
    rows.append({"case": "database", "bytes": (files.state / "hetd.db").stat().st_size})
    rows.append({"case": "start to the first answer", **_start(daemon)})
    rows += [_memory(daemon, "after a start"), *_looks(files.socket)]
    daemon.kill()  # as a crash: the next start checks more
    rows.append({"case": "start after a crash", **_start(daemon)})
    rows += _history(files.socket)
    daemon.terminate(END_S)
    return rows


def _history(socket: Path) -> list[dict[str, Any]]:
    """Let all tasks end, and use commands that concern few of them."""
    rows = [
        {
            "case": f"hetctl cancel all, {TASKS} tasks",
            "ms": _middle([_command(socket, "cancel", "all")]),
        }
    ]
    for words in ON_HISTORY:
        times = [_command(socket, *words) for _ in range(LOOKS)]
        case = f"hetctl {' '.join(words)}, {TASKS} ended tasks"
        rows.append({"case": case, "median_ms": _middle(times)})
    return rows


def _start(daemon: DaemonProcess) -> dict[str, float]:
    """Start a daemon; return the time, and processor time, until it answered."""
    begin = time.perf_counter()
    daemon.start(START_S)
    with Client(daemon.files.socket, timeout=START_S) as client:
        client.policy()
    took = time.perf_counter() - begin
    used = psutil.Process(daemon.pid).cpu_times()
    return {
        "seconds": round(took, 2),
        "cpu_seconds": round(used.user + used.system, 2),
    }


def _submissions(socket: Path) -> dict[str, Any]:
    """Submit in batches, one after another, each acknowledged when durable."""
    spec = describe(Noop(), name_of(Noop), Options())
    with Client(socket) as client:
        client.drain("cpu")
        begin = time.perf_counter()
        for number in range(TASKS // BATCH):
            submit = m.Submit(request=0, tasks=[spec] * BATCH, key=f"{number}")
            client._session.request(submit)  # noqa: SLF001  `submit_specs` makes batches of 500
        took = time.perf_counter() - begin
        client.resume("cpu")  # there is no launcher: tasks are placed and wait
    return {
        "case": f"submit {TASKS} in batches of {BATCH}, one client",
        "tasks_per_s": round(TASKS / took),
    }


def _memory(daemon: DaemonProcess, when: str) -> dict[str, Any]:
    resident = psutil.Process(daemon.pid).memory_info().rss
    return {"case": f"memory {when}", "mib": round(resident / 2**20)}


def _looks(socket: Path) -> list[dict[str, Any]]:
    """Look at the first page: as a client that is there, and as a command."""
    with Client(socket) as client:
        asked = [
            _timed(lambda: client.tasks(Selection(limit=100))) for _ in range(LOOKS)
        ]
        full = [
            _timed(lambda: client.tasks(Selection(limit=1000))) for _ in range(LOOKS)
        ]
    listing = [_command(socket, "list", "--json") for _ in range(LOOKS)]
    bare = [_command(socket, "daemon", "status") for _ in range(LOOKS)]
    return [
        {"case": "first page of 100, from a client", "median_ms": _middle(asked)},
        {"case": "first page of 1000, from a client", "median_ms": _middle(full)},
        {"case": "hetctl list", "median_ms": _middle(listing)},
        {"case": "hetctl daemon status, for start-up", "median_ms": _middle(bare)},
    ]


def _command(socket: Path, *words: str) -> float:
    """Return the milliseconds that a command of hetctl takes, whole process."""
    environment = {**os.environ, "HETD_SOCKET": str(socket)}
    command = [sys.executable, "-m", "hetctl", *words]
    return _timed(
        lambda: subprocess.run(
            command, check=False, capture_output=True, env=environment
        )
    )


def _timed(body: Callable[[], object]) -> float:
    begin = time.perf_counter()
    body()
    return 1e3 * (time.perf_counter() - begin)


def _middle(times: list[float]) -> float:
    return round(statistics.median(times), 1)
