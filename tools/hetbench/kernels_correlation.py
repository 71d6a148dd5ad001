"""Times whole correlations, from table to matrix, beside NumPy and pandas.

All take turns, so that a busy machine disturbs all alike.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from hetapps.tables import generate_table
from hetkernels.correlation.cpu import multiply
from hetkernels.correlation.finish import finish
from hetkernels.correlation.plan import Plan
from hetkernels.correlation.standardise import Standardised
from libtask.devices import open_device
from libtask.messages import DeviceSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from libtask.devices import Device

    Calls = dict[str, Callable[[], Any]]

ROUNDS = 5
THREADS = len(os.sched_getaffinity(0))
PANDAS_LIMIT = 1e9
"""Multiplications; pandas takes half a minute for the larger tables."""

TABLES = [
    (4_096, 2_048, "float32"),
    (4_096, 2_048, "float64"),
    (20_000, 1_000, "float32"),
    (20_000, 1_000, "float64"),
    (100_000, 200, "float32"),
    (100_000, 200, "float64"),
    (1_000_000, 20, "float64"),
]


def ours(device: Device, table: NDArray[Any], strip: int) -> NDArray[Any]:
    """Correlate with a checkpoint after each `strip` iterations."""
    standardised = Standardised(table, table.dtype)
    plan = Plan(*standardised.shape, table.dtype)
    matrix = np.zeros((plan.columns, plan.columns), table.dtype)
    for start in range(0, plan.total, strip):
        part = range(start, min(start + strip, plan.total))
        multiply(device, plan, (standardised, matrix), part)
    finish(matrix, standardised.squares == 0)
    return matrix


def seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def calls(device: Device, rows: int, columns: int, dtype: str) -> Calls:
    """Return what is timed on one table, by name."""
    table = generate_table(rows, columns, 0).values.astype(dtype)
    frame = pd.DataFrame(table)
    found: Calls = {
        "ours": lambda: ours(device, table, 1 << 30),
        "cut": lambda: ours(device, table, 1),
        "np.corrcoef (BLAS syrk)": lambda: np.corrcoef(
            table, rowvar=False, dtype=table.dtype
        ),
    }
    if rows * columns**2 <= PANDAS_LIMIT:
        found["pandas DataFrame.corr"] = frame.corr
    return found


def measure(
    device: Device, rows: int, columns: int, dtype: str
) -> list[dict[str, Any]]:
    timed = calls(device, rows, columns, dtype)
    times: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(ROUNDS):
        for name, call in timed.items():
            times[name].append(seconds(call))
    median = {name: statistics.median(values) for name, values in times.items()}
    mine, cut = median.pop("ours"), median.pop("cut")
    return [
        {
            "kernel": "correlation",
            "size": f"{rows} x {columns}, {dtype}",
            "ours_s": round(mine, 6),
            "baseline": baseline,
            "baseline_s": round(theirs, 6),
            "ratio": round(theirs / mine, 2),
            "threads": THREADS,
            "note": f"with a checkpoint after each iteration: {cut:.6f} s",
        }
        for baseline, theirs in median.items()
    ]


def run() -> list[dict[str, Any]]:
    device = open_device(DeviceSpec(name="cpu", kind="cpu", threads=THREADS))
    device.mark()()
    return [row for table in TABLES for row in measure(device, *table)]
