"""100,000 tasks in the store: submitting them, starting with them, looking at them.

All of them wait: the only resource is drained, as here it is not about running them.
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
from typing import Any

import psutil

from hetbench.noop import Noop
from hetbench.private import CPU_ONLY
from libtask import messages as m
from libtask.apps import Options, describe, name_of
from libtask.client.client import Client, Selection
from libtask.errors import DaemonUnreachableError

TASKS = 100_000
BATCH = 100
LOOKS = 15
START_S = 120.0


def run() -> list[dict[str, Any]]:
    """Measure; return one row a question."""
    with tempfile.TemporaryDirectory(prefix="hetbench-") as folder:
        home = Path(folder)
        (home / "hetd.toml").write_text(CPU_ONLY, encoding="utf-8")
        daemon, _ = _start(home)
        rows = [_submissions(home), _memory(daemon, "after submitting")]
        _end(daemon)
        rows.append(
            {"case": "database", "bytes": (home / "state/hetd.db").stat().st_size}
        )
        daemon, start = _start(home)
        rows.append({"case": "start to the first answer", **start})
        rows += [_memory(daemon, "after a start"), *_looks(home)]
        daemon.kill()  # as a crash: the next start checks more
        daemon.wait(30)
        daemon, start = _start(home)
        rows.append({"case": "start after a crash", **start})
        _end(daemon)
    return rows


def _start(home: Path) -> tuple[subprocess.Popen[bytes], dict[str, float]]:
    """Start a daemon; return it, and the time, and processor time, until it answered."""
    command = [sys.executable, "-m", "hetd", "--socket", str(home / "s")]
    command += ["--state", str(home / "state"), "--config", str(home / "hetd.toml")]
    begin = time.perf_counter()
    with (home / "log").open("ab") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log)
    while time.perf_counter() - begin < START_S:
        try:
            with Client(home / "s", timeout=START_S) as client:
                client.policy()
            return daemon, _spent(daemon, time.perf_counter() - begin)
        except DaemonUnreachableError:
            time.sleep(0.005)
        if daemon.poll() is not None:
            break
    raise RuntimeError((home / "log").read_text(encoding="utf-8"))


def _spent(daemon: subprocess.Popen[bytes], seconds: float) -> dict[str, float]:
    used = psutil.Process(daemon.pid).cpu_times()
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(used.user + used.system, 2),
    }


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    daemon.wait(60)


def _submissions(home: Path) -> dict[str, Any]:
    """Submit in batches, one after another, each acknowledged when durable."""
    spec = describe(Noop(), name_of(Noop), Options())
    with Client(home / "s") as client:
        client.drain("cpu")
        begin = time.perf_counter()
        for number in range(TASKS // BATCH):
            submit = m.Submit(request=0, tasks=[spec] * BATCH, key=f"{number}")
            client._session.request(submit)  # noqa: SLF001  `submit_specs` makes batches of 500
        took = time.perf_counter() - begin
    return {
        "case": f"submit {TASKS} in batches of {BATCH}, one client",
        "tasks_per_s": round(TASKS / took),
    }


def _memory(daemon: subprocess.Popen[bytes], when: str) -> dict[str, Any]:
    resident = psutil.Process(daemon.pid).memory_info().rss
    return {"case": f"memory {when}", "mib": round(resident / 2**20)}


def _looks(home: Path) -> list[dict[str, Any]]:
    """Look at the first page: as a client that is there, and as a command."""
    with Client(home / "s") as client:
        asked = [
            _timed(lambda: client.tasks(Selection(limit=100))) for _ in range(LOOKS)
        ]
        full = [
            _timed(lambda: client.tasks(Selection(limit=1000))) for _ in range(LOOKS)
        ]
    command = [sys.executable, "-m", "hetctl", "list", "--json"]
    environment = {**os.environ, "HETD_SOCKET": str(home / "s")}

    def look(words: list[str]) -> float:
        return _timed(
            lambda: subprocess.run(
                words, check=True, capture_output=True, env=environment
            )
        )

    listing = [look(command) for _ in range(LOOKS)]
    bare = [look([*command[:3], "daemon", "status"]) for _ in range(LOOKS)]
    return [
        {"case": "first page of 100, from a client", "median_ms": _middle(asked)},
        {"case": "first page of 1000, from a client", "median_ms": _middle(full)},
        {"case": "hetctl list", "median_ms": _middle(listing)},
        {"case": "hetctl daemon status, for start-up", "median_ms": _middle(bare)},
    ]


def _timed(body: Any) -> float:
    begin = time.perf_counter()
    body()
    return 1e3 * (time.perf_counter() - begin)


def _middle(times: list[float]) -> float:
    return round(statistics.median(times), 1)
