"""1,000 times `true`, as tasks through the real daemon, beside `xargs -P2` and GNU parallel.

The tasks are kept durably, each with its output and exit status; what stands beside them
keeps nothing. With hetctl its own start counts too, as that of the others does.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from hetbench.resources import CPU_ONLY
from libtask.daemon.private import private_daemon

if TYPE_CHECKING:
    from libtask.client.client import Client

COMMANDS = 1000
ROUNDS = 5


def run() -> list[dict[str, Any]]:
    """Measure all systems alternately; return one row for each."""
    with private_daemon(CPU_ONLY) as client:
        systems = {"hetd": _hetctl(client), **_others()}
        times: dict[str, list[float]] = {name: [] for name in systems}
        _time(systems["hetd"])  # workers are made
        for _ in range(ROUNDS):
            for name, command in systems.items():
                times[name].append(_time(command))
    return [_row(name, times[name]) for name in systems]


def _row(name: str, times: list[float]) -> dict[str, Any]:
    return {
        "case": f"{COMMANDS} times `true`",
        "system": name,
        "commands_per_s": round(COMMANDS / statistics.median(times)),
        "best": round(COMMANDS / min(times)),
    }


def _time(command: list[str]) -> float:
    numbers = "\n".join(map(str, range(COMMANDS))) + "\n"
    begin = time.perf_counter()
    subprocess.run(
        command, input=numbers, text=True, stdout=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - begin


def _hetctl(client: Client) -> list[str]:
    array = ["--array", f"0-{COMMANDS - 1}", "--wait", "--json"]
    program = [sys.executable, "-m", "hetctl", "--socket", str(client.path)]
    return [*program, "submit", *array, "--", "true"]


def _others() -> dict[str, list[str]]:
    found = {"xargs -P2": ["xargs", "-P2", "-n1", "true"]}
    if shutil.which("parallel"):
        found["GNU parallel -j2"] = ["parallel", "-j2", "true"]
    return found
