"""Heat on OpenCL devices: the same bits as on the CPU, also when moved in the middle."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hetapps.heat import Heat
from hetkernels.heat.reference import heat_reference
from libtask.checkpoint import Checkpoint, StripSizer
from libtask.devices import open_device
from libtask.messages import CheckpointRecord, DeviceSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

CPU = DeviceSpec("cpu", "cpu", threads=2)

devices = pytest.mark.parametrize(
    "fixture",
    [
        "pocl",
        "pocl_fpga",
        pytest.param("fpga_emulator", marks=pytest.mark.fpga),
        pytest.param("gpu", marks=pytest.mark.gpu),
    ],
)
edges = pytest.mark.parametrize("edges", ["fixed", "insulated"])


def a_task(rows: int, columns: int, edges: str, steps: int = 45) -> Heat:
    task = Heat(steps=steps, edges=edges)
    task.n = 1
    task.load()
    random = np.random.default_rng(rows + columns)
    task.grid = random.random((rows, columns), dtype=np.float32)
    task.plate = type(task.plate)(rows, columns, task.alpha, task.plate.insulated)
    return task


def advance(task: Heat, spec: DeviceSpec, start: int, stop: int, strip: int) -> None:
    """Run steps `start` to `stop` (or a strip beyond) on a device, then preempt it."""
    record = CheckpointRecord(done=start, total=task.total())
    checkpoint = Checkpoint(record, StripSizer(50_000_000, fixed=strip))
    device: Any = open_device(spec)
    generator: Any = Heat.implementations[spec.kind](task, device, checkpoint)
    while checkpoint.drawn < stop:
        next(generator)
    generator.close()
    device.close()


def on_cpu(task: Heat) -> NDArray[np.float32]:
    copy = Heat(steps=task.steps, edges=task.edges, n=1)
    copy.load()
    copy.grid, copy.plate = task.grid.copy(), task.plate
    advance(copy, CPU, 0, task.steps, task.steps)
    return copy.grid


@devices
@edges
@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 9), (9, 1), (2, 3), (57, 113), (130, 56), (9, 1030)]
)
def test_the_same_bits_as_the_cpu(
    fixture: str, edges: str, shape: tuple[int, int], request: pytest.FixtureRequest
) -> None:
    task = a_task(*shape, edges)
    expected = on_cpu(task)
    reference = heat_reference(
        task.grid, task.alpha, insulated=edges == "insulated", steps=task.steps
    )

    advance(task, request.getfixturevalue(fixture), 0, task.steps, 16)

    np.testing.assert_array_equal(task.grid, expected)
    np.testing.assert_allclose(task.grid, reference, atol=2e-6)


@devices
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 9, 17])
def test_strips_of_any_length_leave_the_result_in_the_grid(
    fixture: str, steps: int, request: pytest.FixtureRequest
) -> None:
    task = a_task(40, 70, "insulated", steps)
    expected = on_cpu(task)

    advance(task, request.getfixturevalue(fixture), 0, steps, steps)

    np.testing.assert_array_equal(task.grid, expected)


@devices
@edges
def test_moves_in_the_middle_change_nothing(
    fixture: str, edges: str, request: pytest.FixtureRequest
) -> None:
    other = request.getfixturevalue(fixture)
    task = a_task(61, 75, edges, steps=96)
    expected = on_cpu(task)

    for index, (start, stop) in enumerate(pairwise([0, 16, 32, 64, 96])):
        advance(task, (CPU, other)[index % 2], start, stop, 16)

    np.testing.assert_array_equal(task.grid, expected)


def test_from_gpu_to_fpga_and_back(pocl: DeviceSpec, pocl_fpga: DeviceSpec) -> None:
    task = a_task(61, 75, "fixed", steps=96)
    expected = on_cpu(task)

    for index, (start, stop) in enumerate(pairwise([0, 16, 32, 64, 96])):
        advance(task, (pocl, pocl_fpga)[index % 2], start, stop, 16)

    np.testing.assert_array_equal(task.grid, expected)
