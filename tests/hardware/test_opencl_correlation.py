"""Correlation on OpenCL: right, the same bits for any cut, and moved half-way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hardware.stretches import CPU, compute
from hetapps.correlation import Correlation
from hetapps.tables import generate_table
from hetkernels.correlation.finish import finish
from hetkernels.correlation.reference import correlation
from libtask.devices import open_device

if TYPE_CHECKING:
    from libtask.devices import Device

ACCURACY = {"float32": 1e-5, "float64": 1e-12}
TABLES: list[dict[str, Any]] = [
    {"rows": 5, "columns": 1},
    {"rows": 100, "columns": 70},
    {"rows": 33, "columns": 1100, "dtype": "float64"},  # an odd number of blocks
    {"rows": 5000, "columns": 65},  # three chunks
]


def loaded(parameters: dict[str, Any]) -> Correlation:
    task = Correlation(**parameters)
    task.load()
    return task


def assert_right(task: Correlation) -> None:
    finish(task.matrix, task.constant)
    table = generate_table(task.rows, task.columns, task.seed)
    accuracy = ACCURACY[task.dtype]
    expected = correlation(table.values)
    np.testing.assert_allclose(task.matrix, expected, rtol=0, atol=accuracy)


@pytest.mark.parametrize("parameters", TABLES, ids=str)
def test_agrees_with_reference(device: Device, parameters: dict[str, Any]) -> None:
    task = loaded(parameters)

    compute(task, device, strip=1000)

    assert_right(task)


@pytest.mark.parametrize(
    ("parameters", "strip"),
    [(TABLES[3], 1), (TABLES[3], 2), ({"rows": 2100, "columns": 1030}, 3)],
    ids=str,
)
def test_cutting_changes_no_bit(
    device: Device, parameters: dict[str, Any], strip: int
) -> None:
    cut, uncut = loaded(parameters), loaded(parameters)

    compute(cut, device, strip)
    compute(uncut, device, strip=1000)

    assert cut.total() > strip
    np.testing.assert_array_equal(cut.matrix, uncut.matrix)


@pytest.mark.parametrize("parameters", [TABLES[3], {"rows": 50, "columns": 2100}])
def test_moves_there_and_back(device: Device, parameters: dict[str, Any]) -> None:
    task = loaded(parameters)
    cpu = open_device(CPU)

    assert compute(task, cpu, strip=1, stop=1) == 1
    assert compute(task, device, strip=1, start=1, stop=2) == 2
    compute(task, cpu, strip=1, start=2)

    assert_right(task)
