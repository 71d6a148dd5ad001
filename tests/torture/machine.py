"""The machine of a run, where it affects figures: no names, no paths."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
from typing import TYPE_CHECKING, Any

import psutil
import zmq

from hetbench.machine import cpu_model

if TYPE_CHECKING:
    from collections.abc import Sequence


def machine() -> dict[str, Any]:
    """Describe the machine and the libraries that matter here."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "libzmq": zmq.zmq_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Return median, 99th percentile and maximum, in milliseconds."""
    if len(seconds) < 2:
        return {}
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    found = {"p50_ms": cuts[49], "p99_ms": cuts[98], "max_ms": max(seconds)}
    return {name: round(1e3 * value, 1) for name, value in found.items()}
