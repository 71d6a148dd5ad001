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
GPU_STEPS = 4
"""Steps a GPU launch; the border of 4 leaves 77 % of a tile's work useful."""

VECTOR = 8
FPGA_STEPS = 8
"""Chained stages of the FPGA kernel; at most VECTOR."""
BLOCK = 130
"""Vectors in a line buffer: blocks of 128 x 8 columns and a vector on each side."""


def gpu_steps(device: Any, grid: Any, scratch: Any, plate: Plate, steps: int) -> None:
    """Enqueue `steps` time steps of the buffer `grid`; `scratch` is as large.

    Raises:
        ProgramError: more rows or columns than the kernel can count.

    """
    check_sides(plate.rows, plate.columns)
    defines = {"TILE": TILE, "CELLS": CELLS, "HALO": GPU_STEPS}
    kernel = device.kernel("hetkernels.heat", "gpu.cl", "heat_steps", **defines)
    inner = TILE - 2 * GPU_STEPS
    groups = (-(-plate.columns // inner), -(-plate.rows // inner))
    local = (TILE, TILE // CELLS)
    shape = ((groups[0] * local[0], groups[1] * local[1]), local)
    _launch(device, (kernel, *shape), (grid, scratch), plate, passes(steps, GPU_STEPS))


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
    for depth in depths:
        kernel(device.queue, whole, group, source, target, *size, *law, np.int32(depth))
        source, target = target, source
    if len(depths) % 2:
        pyopencl.enqueue_copy(device.queue, target, source)
