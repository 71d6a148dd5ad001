"""Gaussian blur on OpenCL devices: the host side of `gpu.cl` and `fpga.cl`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl

from hetkernels.sides import check_sides

PIXELS = {"uint8": "uchar", "uint16": "ushort", "float32": "float"}
"""Type of the pixels -> its OpenCL name."""

WIDTH, HEIGHT, EACH, CHUNK = 32, 8, 4, 16
"""GPU: groups of 32 x 8 work-items with 4 pixels each; 12 KiB of local memory."""
TOP, COUNT = 6, 7
"""Places of arguments of both GPU kernels."""
SUMS_PIXELS = 1 << 22
"""GPU: pixels between the two passes at a time (16 MiB), however large the image."""

VECTOR, INNER = 8, 64
"""FPGA: pixels a cycle; blocks of 64 x 8 columns."""
LEAST_REACH = 4
MOST_PAIRS = 16
"""FPGA: pairs added in a cycle; 2 x 16 x 8 multipliers fit any board in use."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The arguments of the kernels for an image of (planes, rows, columns).

    Attributes:
        shape: planes, rows, columns.
        pixel: name of its NumPy type.
        reach: radius of the blur.

    """

    shape: tuple[int, int, int]
    pixel: str
    reach: int

    @property
    def block(self) -> int:
        """Rows that the GPU takes from one pass to the next at a time."""
        planes, rows, columns = self.shape
        return max(1, min(rows, SUMS_PIXELS // (planes * columns)))


def gpu_rows(
    device: Any, buffers: tuple[Any, ...], picture: Picture, strip: range
) -> None:
    """Enqueue the blur of the rows `strip`.

    `buffers` are the image, the blurred image, the weights and the sums: float32,
    planes x `picture.block` x columns.

    Raises:
        ProgramError: more rows or columns than the kernels can count.

    """
    check_sides(*picture.shape[1:])
    image, blurred, weights, sums = buffers
    defines: dict[str, object] = {"PIXEL": PIXELS[picture.pixel]}
    defines |= {"ROUNDED": picture.pixel != "float32"}
    defines |= {"WIDTH": WIDTH, "HEIGHT": HEIGHT, "EACH": EACH, "CHUNK": CHUNK}
    program = ("hetkernels.gaussian_blur", "gpu.cl")
    down = device.kernel(*program, "blur_down", **defines)
    along = device.kernel(*program, "blur_along", **defines)
    planes, rows, columns = picture.shape
    group = (WIDTH, HEIGHT, 1)
    place = _int32(picture.reach, rows, columns, strip.start, 0)
    down.set_args(image, sums, weights, *place)
    along.set_args(sums, blurred, weights, *place)
    for top in range(strip.start, strip.stop, picture.block):
        count = min(picture.block, strip.stop - top)
        for kernel in (down, along):
            # the host sets a number in microseconds: the others stay
            kernel.set_arg(TOP, np.int32(top))
            kernel.set_arg(COUNT, np.int32(count))
        whole = (_up(columns, WIDTH), _up(count, HEIGHT * EACH) // EACH, planes)
        pyopencl.enqueue_nd_range_kernel(device.queue, down, whole, group)
        whole = (_up(columns, WIDTH * EACH) // EACH, _up(count, HEIGHT), planes)
        pyopencl.enqueue_nd_range_kernel(device.queue, along, whole, group)


def fpga_rows(
    device: Any, buffers: tuple[Any, ...], picture: Picture, strip: range
) -> None:
    """Enqueue the blur of the rows `strip`.

    `buffers` are the image, the blurred image and the weights.

    Raises:
        ProgramError: more rows or columns than the kernel can count.

    """
    check_sides(*picture.shape[1:])
    reach = LEAST_REACH
    while reach < picture.reach:
        reach *= 2
    defines: dict[str, object] = {"PIXEL": PIXELS[picture.pixel]}
    defines |= {"ROUNDED": picture.pixel != "float32", "VECTOR": VECTOR}
    defines |= {"REACH": reach, "SIDE": -(-reach // VECTOR), "INNER": INNER}
    defines |= {"UNROLL": min(reach, MOST_PAIRS)}
    program = ("hetkernels.gaussian_blur", "fpga.cl")
    kernel = device.kernel(*program, "blur_rows", **defines)
    planes, rows, columns = picture.shape
    place = _int32(picture.reach, rows, columns, planes, strip.start, strip.stop)
    kernel(device.queue, (1,), (1,), *buffers, *place)


def _int32(*values: int) -> tuple[np.int32, ...]:
    return tuple(np.int32(value) for value in values)


def _up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple
