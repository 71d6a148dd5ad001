"""The machine of a measurement, as its JSON names it: no host names, no paths."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

import psutil

LOOK_SECONDS = 0.02
QUIET = 0.1
"""Processor time, relative to the time that passes, below which all threads sleep."""
STEPS = 200_000
"""Steps of the loop that speeds are compared with."""


def machine() -> dict[str, Any]:
    """Describe processor, memory, interpreter and present load."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def cpu_model() -> str:
    """Return the processor's name with family and model: virtual machines hide the name."""
    known: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        known.setdefault(key.strip(), value.strip())
    if "model name" not in known:
        return platform.machine()
    return (
        f"{known['model name']}, family {known['cpu family']}, model {known['model']}"
    )


def calibrate() -> int:
    """Return nanoseconds of processor time of a loop of what Python programs do.

    Figures relative to it tell machines, and moments, of different speed apart.
    """
    begin = time.thread_time_ns()
    found: dict[int, tuple[int, str]] = {}
    for step in range(STEPS):
        found[step % 977] = (step, "text")
        if found[step * 31 % (step % 977 + 1)][0] < 0:
            found.clear()
    return time.thread_time_ns() - begin


def await_quiet() -> None:
    """Wait until no thread of this process computes.

    Those of BLAS spin for 0.1 s and more after a call, and would slow what is measured next.
    """
    busy = 1.0
    while busy > QUIET:
        began, used = time.perf_counter(), time.process_time()
        time.sleep(LOOK_SECONDS)
        busy = (time.process_time() - used) / (time.perf_counter() - began)
