"""Correlation on OpenCL devices: enqueues the pieces of a strip.

Compilers may fuse multiply and add as they like: kinds differ in the last bits, but on
one device any cut into strips gives the same ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl

from hetkernels.correlation.plan import DEPTH, RUN, Plan
from hetkernels.sides import check_sides

if TYPE_CHECKING:
    from libtask.devices.opencl import OpenCLDevice

PACKAGE = "hetkernels.correlation"
SIDE = 16
"""Work-items of a group in each direction; as in gpu.cl."""
TILE = 64
"""Rows and columns of a group's results; as in gpu.cl."""


def multiply_gpu(
    device: OpenCLDevice, plan: Plan, buffers: tuple[Any, Any], strip: range
) -> None:
    """Enqueue a strip; `buffers` hold the standardised table and the matrix.

    Raises:
        ProgramError: more rows or columns than the kernel can count.

    """
    check_sides(plan.rows, plan.columns)
    kernel = _kernel(device, "gpu.cl", plan)
    for piece in plan.pieces(strip):
        sizes = (plan.rows, plan.columns, piece.first_pair, *piece[2:])
        kernel.set_args(*buffers, *map(np.uint32, sizes))
        along, down = _groups(plan)
        items = (along * SIDE, down * SIDE, piece.pairs)
        pyopencl.enqueue_nd_range_kernel(device.queue, kernel, items, (SIDE, SIDE, 1))


def _groups(plan: Plan) -> tuple[int, int]:
    """Count the groups along a folded pair of blocks, and down its rows.

    Those of a single block end with its columns: the block of a narrow table is mostly empty.
    """
    if plan.blocks == 1:
        tiles = -(-plan.columns // TILE)
        return tiles, tiles
    tiles = plan.block // TILE
    return (plan.blocks + 1) * tiles, tiles


def multiply_fpga(
    device: OpenCLDevice, plan: Plan, buffers: tuple[Any, Any], strip: range
) -> None:
    """Enqueue a strip; `buffers` hold the standardised table and the matrix.

    Raises:
        ProgramError: more rows or columns than the kernel can count.

    """
    check_sides(plan.rows, plan.columns)
    kernel = _kernel(device, "fpga.cl", plan)
    for piece in plan.pieces(strip):
        kernel.set_args(*buffers, *map(np.uint32, (plan.rows, plan.columns, *piece)))
        pyopencl.enqueue_nd_range_kernel(device.queue, kernel, (1,), (1,))


def _kernel(device: OpenCLDevice, source: str, plan: Plan) -> pyopencl.Kernel:
    double = plan.real == np.float64
    macros: dict[str, object] = {"REAL": "double" if double else "float"}
    if double:
        macros["DOUBLE"] = 1
    macros |= {"BLOCK": plan.block, "DEPTH": DEPTH, "RUN": RUN}
    return device.kernel(PACKAGE, source, "multiply", **macros)
