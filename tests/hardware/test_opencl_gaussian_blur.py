"""The blur on OpenCL devices: the bits of the CPU, also when moved in the middle."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hardware.kernel_cases import blur_task, verify_blur
from hardware.stretches import CPU, advance
from hetapps.gaussian_blur import GRANULE, GaussianBlur
from hetkernels.gaussian_blur import opencl
from hetkernels.gaussian_blur.weights import half_weights
from libtask.devices import open_device
from libtask.messages import DeviceSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

types = pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
sigmas = pytest.mark.parametrize("sigma", [0.1, 1.0, 1.9, 5.1])


def on_cpu(task: GaussianBlur) -> NDArray[Any]:
    """Blur on the CPU, check that against the reference, and clear the result."""
    advance(task, CPU, 0, task.total(), GRANULE)
    verify_blur(task)
    expected = task.blurred.copy()
    task.blurred[:] = 0
    return expected


@types
@sigmas
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 4), (2, 70, 41), (1, 33, 600)])
def test_the_same_bits_as_the_cpu(
    spec: DeviceSpec,
    dtype: str,
    sigma: float,
    shape: tuple[int, int, int],
) -> None:
    task = blur_task(shape, dtype, sigma)
    expected = on_cpu(task)

    advance(task, spec, 0, task.total(), GRANULE)

    np.testing.assert_array_equal(task.blurred, expected)


def test_moves_in_the_middle_change_nothing(spec: DeviceSpec) -> None:
    task = blur_task((3, 300, 50), "uint8", 1.9)
    expected = on_cpu(task)

    for index, (start, stop) in enumerate(pairwise([0, 64, 128, 192, 256, 300])):
        advance(task, (CPU, spec)[index % 2], start, stop, GRANULE)

    np.testing.assert_array_equal(task.blurred, expected)


def test_strips_of_any_rows_give_the_same_bits(
    spec: DeviceSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opencl, "SUMS_PIXELS", 50 * 2 * 7)  # 7 rows between the passes
    task = blur_task((2, 90, 50), "uint8", 1.9)
    expected = on_cpu(task)
    picture = opencl.Picture((2, 90, 50), "uint8", len(task.weights) - 1)
    device: Any = open_device(spec)
    between = np.empty((2, picture.block, 50), np.float32)

    with (
        device.inputs(task.image, task.weights) as (image, weights),
        device.resident(task.blurred) as (out,),
        device.scratch(between) as (sums,),
    ):
        for start, stop in pairwise([0, 1, 3, 20, 57, 90]):
            strip = range(start, stop)
            if spec.kind == "gpu":
                opencl.gpu_rows(device, (image, out, weights, sums), picture, strip)
            else:
                opencl.fpga_rows(device, (image, out, weights), picture, strip)

    device.close()
    np.testing.assert_array_equal(task.blurred, expected)


def test_from_gpu_to_fpga_and_back(
    emulated_gpu: DeviceSpec, emulated_fpga: DeviceSpec
) -> None:
    task = blur_task((1, 300, 61), "uint8", 1.0)
    expected = on_cpu(task)

    for index, (start, stop) in enumerate(pairwise([0, 64, 128, 192, 256, 300])):
        advance(task, (emulated_gpu, emulated_fpga)[index % 2], start, stop, GRANULE)

    np.testing.assert_array_equal(task.blurred, expected)


def test_a_radius_beyond_what_one_cycle_adds(spec: DeviceSpec) -> None:
    task = blur_task((1, 30, 70), "uint8", 12.0)
    assert len(half_weights(12.0, 4.0)) > opencl.MOST_PAIRS
    expected = on_cpu(task)

    advance(task, spec, 0, task.total(), GRANULE)

    np.testing.assert_array_equal(task.blurred, expected)
