"""Heat on OpenCL devices: the host side of `gpu.cl` and `fpga.cl`.

Both kernels read one buffer and write the other, several time steps a launch. A strip
is an even number of launches, so that its result is always where the grid was and
nothing but the grid need be kept at a checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl

from hetkernels.heat.plate import passes
from hetkernels.sides import check_sides

if TYPE_CHECKING:
    from hetkernels.heat.plate import Plate

TILE = 64
"""Side of a GPU tile; with 16 cells in each work-item a group has 256 of them."""
CELLS = 16
GPU_STEPS = (4, 8, 16)
"""Steps a GPU launch; borders of 4 leave 77 % of a tile's work useful, those of 16 a quarter."""
GROUPS_OF_UNIT = 8
"""Groups of 256 work-items that a compute unit runs at once: 2048 of them."""
LAUNCH_S, BEGIN_S = 7.5e-6, 4e-6
"""Seconds in which a host enqueues a launch, and in which an idle GPU begins it: of an NVIDIA
H200, as `STEP_S`; their ratios matter."""
STEP_S = 4e-6
"""Seconds in which all groups that run at once do a time step."""
LEAST_OF_STEP = 0.2
"""Part of `STEP_S` that a single group takes."""

SOURCE, TARGET, DEPTH = 0, 1, 6
"""Places of arguments of both kernels."""

VECTOR = 8
FPGA_STEPS = 8
"""Chained stages of the FPGA kernel; at most VECTOR."""
BLOCK = 130
"""Vectors in a line buffer: blocks of 128 x 8 columns and a vector on each side."""


def gpu_depth(device: Any, plate: Plate) -> int:
    """Return the steps of a launch that are done soonest on a GPU.

    On a small grid a launch costs more than the work in wide borders.
    """
    if device.spec.emulated:  # computes on few cores, to which wide borders cost much
        return GPU_STEPS[0]
    at_once: int = GROUPS_OF_UNIT * device.context.devices[0].max_compute_units

    def seconds_of_step(depth: int) -> float:
        across, down = _groups(plate, depth)
        step = STEP_S * max(across * down / at_once, LEAST_OF_STEP)
        return max(LAUNCH_S, BEGIN_S + depth * step) / depth

    return min(GPU_STEPS, key=seconds_of_step)


def gpu_steps(
    device: Any, buffers: tuple[Any, Any], plate: Plate, steps: int, depth: int
) -> None:
    """Enqueue `steps` time steps of the first buffer; the second one is as large.

    Args:
        device: an OpenCL device.
        buffers: of the grid, and for every second launch.
        plate: what both hold.
        steps: time steps.
        depth: of them in one launch (`gpu_depth`); below half of TILE.

    Raises:
        ProgramError: more rows or columns than the kernel can count.

    """
    check_sides(plate.rows, plate.columns)
    defines = {"TILE": TILE, "CELLS": CELLS, "HALO": depth}
    kernel = device.kernel("hetkernels.heat", "gpu.cl", "heat_steps", **defines)
    across, down = _groups(plate, depth)
    local = (TILE, TILE // CELLS)
    shape = ((across * local[0], down * local[1]), local)
    _launch(device, (kernel, *shape), buffers, plate, passes(steps, depth))


def _groups(plate: Plate, depth: int) -> tuple[int, int]:
    """Return the groups across and down; each computes a tile without its border."""
    inner = TILE - 2 * depth
    return -(-plate.columns // inner), -(-plate.rows // inner)


def fpga_steps(device: Any, grid: Any, scratch: Any, plate: Plate, steps: int) -> None:
    """Enqueue `steps` time steps of the buffer `grid`; `scratch` is as large.

    Raises:
        ProgramError: more rows or columns than the kernel can count.

    """
    check_sides(plate.rows, plate.columns)
    defines = {"VECTOR": VECTOR, "CHAIN": FPGA_STEPS, "BLOCK": BLOCK}
    kernel = device.kernel("hetkernels.heat", "fpga.cl", "heat_steps", **defines)
    single = (kernel, (1,), (1,))
    _launch(device, single, (grid, scratch), plate, passes(steps, FPGA_STEPS))


def _launch(
    device: Any,
    program: tuple[Any, tuple[int, ...], tuple[int, ...]],
    buffers: tuple[Any, Any],
    plate: Plate,
    depths: list[int],
) -> None:
    kernel, whole, group = program
    source, target = buffers
    size = (np.int32(plate.rows), np.int32(plate.columns))
    law = (np.float32(plate.alpha), np.int32(plate.insulated))
    # The host sets a number in microseconds, a buffer in a tenth of one: numbers are set
    # where they change, and `passes` has at most two different depths.
    set_depth = depths[0]
    kernel.set_args(source, target, *size, *law, np.int32(set_depth))
    for depth in depths:
        kernel.set_arg(SOURCE, source)
        kernel.set_arg(TARGET, target)
        if depth != set_depth:
            kernel.set_arg(DEPTH, np.int32(depth))
            set_depth = depth
        pyopencl.enqueue_nd_range_kernel(device.queue, kernel, whole, group)
        source, target = target, source
    if len(depths) % 2:
        pyopencl.enqueue_copy(device.queue, target, source)
