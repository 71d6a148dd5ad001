"""Start-up: `hetctl` from the shell, against a bare interpreter; a daemon with drivers."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from hetbench.noop import Noop
from hetbench.resources import CPU_ONLY
from libtask.apps import name_of
from libtask.daemon.private import private_daemon
from libtask.devices.discovery import forget

if TYPE_CHECKING:
    from collections.abc import Callable

PROBE = [sys.executable, "-m", "libtask.devices.probe"]

NOOP = name_of(Noop)
RUNS = 15
DAEMONS = 7


def run() -> list[dict[str, Any]]:
    """Measure whole processes, alternating."""
    return [*_commands(), *_daemons()]


def _daemons() -> list[dict[str, Any]]:
    """Start daemons, alternating: their drivers known, to be tested, or configured.

    The plain probe asks all drivers in one process and tests none.
    """
    cases: dict[str, Callable[[], float]] = {
        "daemon, resources configured": lambda: _start(CPU_ONLY),
        "daemon, verdicts on its drivers known": lambda: _start(""),
        "daemon, drivers to be tested": _start_afresh,
        "plain probe of all drivers": lambda: _time(PROBE, ""),
    }
    _start("")
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(DAEMONS):
        for name, measure in cases.items():
            times[name].append(measure())
    return _rows(times)


def _start(config: str) -> float:
    begin = time.perf_counter()
    with private_daemon(config):
        return 1e3 * (time.perf_counter() - begin)


def _start_afresh() -> float:
    """Start with an empty cache, which the following start finds filled."""
    forget()
    return _start("")


def _commands() -> list[dict[str, Any]]:
    hetctl = [sys.executable, "-m", "hetctl"]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "hetctl list": [*hetctl, "list", "--json"],
        "hetctl daemon status": [*hetctl, "daemon", "status"],
        "hetctl submit --wait, a no-op task": [*hetctl, "submit", "--wait", NOOP],
        "hetctl submit --wait, true": [*hetctl, "submit", "--wait", "--", "true"],
    }
    with private_daemon(CPU_ONLY) as client:
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(RUNS):
            for name, command in commands.items():
                times[name].append(_time(command, str(client.path)))
    return _rows(times)


def _rows(times: dict[str, list[float]]) -> list[dict[str, Any]]:
    return [
        {"case": name, "median_ms": round(statistics.median(found), 1)}
        for name, found in times.items()
    ]


def _time(command: list[str], socket: str) -> float:
    begin = time.perf_counter()
    done = subprocess.run(
        command,
        env=os.environ | {"HETD_SOCKET": socket},
        capture_output=True,
        check=False,
    )
    elapsed = 1e3 * (time.perf_counter() - begin)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.decode()}")
    return elapsed
