"""Idle cost of a daemon, its launcher and its workers: wake-ups and processor time."""

from __future__ import annotations

import time
from typing import Any

from hetbench.noop import Noop
from hetbench.processes import DaemonProcesses
from hetbench.resources import CPU_ONLY
from libtask.apps import Options, describe, name_of
from libtask.daemon.private import private_daemon

SECONDS = 20.0
SETTLE_S = 3.0
"""Time for what follows the last task: commits, checks, warm workers."""


def run() -> list[dict[str, Any]]:
    """Measure a daemon that has run tasks and has no more; return one row."""
    spec = describe(Noop(), name_of(Noop), Options())
    with private_daemon(CPU_ONLY) as client:
        client.submit_specs([spec] * 200)[-1].result(60)
        processes = DaemonProcesses(client)
        time.sleep(SETTLE_S)
        workers = len(processes.others()) - 1
        before, woken = processes.consumption(), processes.wake_ups()
        time.sleep(SECONDS)
        used, wakes = processes.consumption().since(before), processes.wake_ups()
    return [
        {
            "case": f"idle, launcher and {workers} workers",
            "wake_ups_per_s": round((wakes - woken) / SECONDS, 2),
            "cpu_ms_per_s": round(1e3 * (used.hetd_s + used.others_s) / SECONDS, 2),
        }
    ]
