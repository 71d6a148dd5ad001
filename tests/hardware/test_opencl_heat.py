"""Heat on OpenCL devices: the same bits as on the CPU, also when moved in the middle."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hardware.kernel_cases import heat_task
from hardware.stretches import CPU, advance
from hetapps.heat import Heat
from hetkernels.heat import opencl
from hetkernels.heat.reference import heat_reference
from libtask.messages import DeviceSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

edges = pytest.mark.parametrize("edges", ["fixed", "insulated"])


def on_cpu(task: Heat) -> NDArray[np.float32]:
    copy = Heat(steps=task.steps, edges=task.edges, n=1)
    copy.load()
    copy.grid, copy.plate = task.grid.copy(), task.plate
    advance(copy, CPU, 0, task.steps, task.steps)
    return copy.grid


@edges
@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 9), (9, 1), (2, 3), (57, 113), (130, 56), (9, 1030)]
)
def test_the_same_bits_as_the_cpu(
    spec: DeviceSpec, edges: str, shape: tuple[int, int]
) -> None:
    task = heat_task(*shape, edges)
    expected = on_cpu(task)
    reference = heat_reference(
        task.grid, task.alpha, insulated=edges == "insulated", steps=task.steps
    )

    advance(task, spec, 0, task.steps, 16)

    np.testing.assert_array_equal(task.grid, expected)
    np.testing.assert_allclose(task.grid, reference, atol=2e-6)


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 9, 17])
def test_strips_of_any_length_leave_the_result_in_the_grid(
    spec: DeviceSpec, steps: int
) -> None:
    task = heat_task(40, 70, "insulated", steps)
    expected = on_cpu(task)

    advance(task, spec, 0, steps, steps)

    np.testing.assert_array_equal(task.grid, expected)


@edges
@pytest.mark.parametrize("depth", [4, 8, 16])
def test_launches_of_any_depth_give_the_same_bits(
    emulated_gpu: DeviceSpec, edges: str, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small grid on a real GPU takes more steps a launch."""
    monkeypatch.setattr(opencl, "gpu_depth", lambda _device, _plate: depth)
    task = heat_task(130, 75, edges, steps=50)
    expected = on_cpu(task)

    advance(task, emulated_gpu, 0, 32, 32)
    advance(task, emulated_gpu, 32, 50, 18)

    np.testing.assert_array_equal(task.grid, expected)


@edges
def test_moves_in_the_middle_change_nothing(spec: DeviceSpec, edges: str) -> None:
    task = heat_task(61, 75, edges, steps=128)
    expected = on_cpu(task)

    # multiples of the strips of all kinds
    for index, (start, stop) in enumerate(pairwise([0, 32, 64, 96, 128])):
        advance(task, (CPU, spec)[index % 2], start, stop, 16)

    np.testing.assert_array_equal(task.grid, expected)


def test_from_gpu_to_fpga_and_back(
    emulated_gpu: DeviceSpec, emulated_fpga: DeviceSpec
) -> None:
    task = heat_task(61, 75, "fixed", steps=96)
    expected = on_cpu(task)

    for index, (start, stop) in enumerate(pairwise([0, 16, 32, 64, 96])):
        advance(task, (emulated_gpu, emulated_fpga)[index % 2], start, stop, 16)

    np.testing.assert_array_equal(task.grid, expected)
