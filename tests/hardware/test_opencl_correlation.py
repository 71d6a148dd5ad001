"""Correlation on OpenCL: right, the same bits for any cut, and moved half-way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hardware.kernel_cases import correlation_task, verify_correlation
from hardware.stretches import CPU, compute
from libtask.devices import open_device

if TYPE_CHECKING:
    from libtask.devices import Device

TABLES: list[dict[str, Any]] = [
    {"rows": 5, "columns": 1},
    {"rows": 100, "columns": 70},
    {"rows": 33, "columns": 3100, "dtype": "float64"},  # an odd number of blocks
    {"rows": 5000, "columns": 65},  # five chunks
]


@pytest.mark.parametrize("parameters", TABLES, ids=str)
def test_agrees_with_reference(device: Device, parameters: dict[str, Any]) -> None:
    task = correlation_task(**parameters)

    compute(task, device, strip=1000)

    verify_correlation(task)


@pytest.mark.parametrize(
    ("parameters", "strip"),
    [(TABLES[3], 1), (TABLES[3], 2), ({"rows": 2100, "columns": 1030}, 1)],
    ids=str,
)
def test_cutting_changes_no_bit(
    device: Device, parameters: dict[str, Any], strip: int
) -> None:
    cut, uncut = correlation_task(**parameters), correlation_task(**parameters)

    compute(cut, device, strip)
    compute(uncut, device, strip=1000)

    assert cut.total() > strip
    np.testing.assert_array_equal(cut.matrix, uncut.matrix)


@pytest.mark.parametrize("parameters", [TABLES[3], {"rows": 50, "columns": 3100}])
def test_moves_there_and_back(device: Device, parameters: dict[str, Any]) -> None:
    task = correlation_task(**parameters)
    cpu = open_device(CPU)

    assert compute(task, cpu, strip=1, stop=1) == 1
    assert compute(task, device, strip=1, start=1, stop=2) == 2
    compute(task, cpu, strip=1, start=2)

    verify_correlation(task)
