"""Start-up of `hetctl`: a status command from the shell, against a bare interpreter."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Any

from hetbench.resources import CPU_ONLY
from libtask.daemon.private import private_daemon

RUNS = 15


def run() -> list[dict[str, Any]]:
    """Measure whole processes, alternating."""
    with private_daemon(CPU_ONLY) as client:
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "hetctl list": [sys.executable, "-m", "hetctl", "list", "--json"],
            "hetctl daemon status": [
                sys.executable,
                "-m",
                "hetctl",
                "daemon",
                "status",
            ],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(RUNS):
            for name, command in commands.items():
                times[name].append(_time(command, str(client.path)))
    return [
        {"case": name, "median_ms": round(statistics.median(found), 1)}
        for name, found in times.items()
    ]


def _time(command: list[str], socket: str) -> float:
    begin = time.perf_counter()
    done = subprocess.run(
        command, env={"HETD_SOCKET": socket}, capture_output=True, check=False
    )
    elapsed = 1e3 * (time.perf_counter() - begin)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.decode()}")
    return elapsed
