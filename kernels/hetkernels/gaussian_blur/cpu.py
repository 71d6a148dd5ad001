"""Gaussian blur on the CPU: both passes of a tile while it is in cache.

A tile is read once, as float32, with its surroundings mirrored where the image ends.
Each of its rows is then summed down the columns and along the row at once; both are
the same loop over pairs of slices, one pair a row or a pixel apart. Each output pixel
depends on input pixels only, so tiles, strips and threads do not change a bit.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from hetkernels.wide_vectors import aligned_zeros, wide_vectors

Planes: TypeAlias = NDArray[Any]
"""(planes, rows, columns) of uint8, uint16 or float32"""
Line: TypeAlias = NDArray[np.float32]

ROWS = 64
COLUMNS = 1024
"""Rows and columns of a tile; with a border of some pixels it fits a level-2 cache."""
FOUR = 4
"""Pairs that one loop adds: more would need more registers and checks than there are."""
LANES = 64
"""Pixels of one unrolled turn of the sums (four 512-bit vectors)."""


def blur_rows(image: Planes, blurred: Planes, weights: Line, strip: range) -> None:
    """Blur the rows `strip` of each plane of `image` into `blurred`.

    `weights` are those of the centre and one side, float32.
    """
    reach = len(weights) - 1
    tile = (max(ROWS, reach), max(COLUMNS, 4 * reach))
    _blur(image, blurred, weights, (strip.start, strip.stop), tile)


@njit(parallel=True, cache=True, nogil=True)
def _blur(
    image: Planes,
    blurred: Planes,
    weights: Line,
    strip: tuple[int, int],
    tile: tuple[int, int],
) -> None:
    down = -(-(strip[1] - strip[0]) // tile[0])
    across = -(-image.shape[2] // tile[1])
    for index in prange(image.shape[0] * down * across):
        plane = index // (down * across)
        top = strip[0] + index // across % down * tile[0]
        left = index % across * tile[1]
        bottom = min(strip[1], top + tile[0])
        right = min(image.shape[2], left + tile[1])
        _tile(image[plane], blurred[plane], weights, (top, bottom), (left, right))


@njit(cache=True)
def _tile(
    image: NDArray[Any],
    blurred: NDArray[Any],
    weights: Line,
    rows: tuple[int, int],
    columns: tuple[int, int],
) -> None:
    reach = len(weights) - 1
    height = rows[1] - rows[0]
    width = columns[1] - columns[0]
    # Some pixels more than needed: no turn of the sums is left over.
    stride = -(-(width + 2 * reach) // LANES) * LANES
    pixels = aligned_zeros((height + 2 * reach) * stride)
    for row in range(height + 2 * reach):
        source = mirrored(rows[0] + row - reach, image.shape[0])
        _read(pixels, row * stride, image, source, (columns[0] - reach, stride))
    line = aligned_zeros(stride)
    result = aligned_zeros(width)
    for row in range(height):
        _sum(line, pixels, (row + reach) * stride, stride, weights)
        _sum(result, line, reach, 1, weights)
        _write(blurred, rows[0] + row, columns[0], result)


@njit(cache=True)
def mirrored(index: int, length: int) -> int:
    """Return the index inside 0..length-1 that the mirrored image has at `index`."""
    index %= 2 * length
    return min(index, 2 * length - 1 - index)


@njit(cache=True)
def _read(
    pixels: Line, at: int, image: NDArray[Any], row: int, span: tuple[int, int]
) -> None:
    """Read `span` (start, count) of a row, mirrored beyond the image, as float32."""
    start, count = span
    columns = image.shape[1]
    first = max(0, start)
    last = min(columns, start + count)
    for i in range(start, first):
        pixels[at + i - start] = image[row, mirrored(i, columns)]
    _convert(pixels, at + first - start, image, row, (first, last))
    for i in range(last, start + count):
        pixels[at + i - start] = image[row, mirrored(i, columns)]


@njit(cache=True)
def _convert(
    pixels: Line, at: int, image: NDArray[Any], row: int, columns: tuple[int, int]
) -> None:
    wide_vectors()
    inside = image[row, columns[0] : columns[1]]
    line = pixels[at : at + len(inside)]
    for i in range(len(inside)):
        line[i] = inside[i]


@njit(cache=True)
def _sum(out: Line, source: Line, at: int, step: int, weights: Line) -> None:
    """Weigh slices of `source` as long as `out`, at multiples of `step` from `at`."""
    pair = 1
    if len(weights) > FOUR:
        _centre_and_four_pairs(out, source, at, step, weights)
        pair += FOUR
    else:
        _centre(out, source, at, weights[0])
    while pair + FOUR <= len(weights):
        _four_pairs(out, source, (at, step, pair), weights)
        pair += FOUR
    while pair < len(weights):
        _one_pair(out, source, at - pair * step, at + pair * step, weights[pair])
        pair += 1


@njit(cache=True)
def _centre(out: Line, source: Line, at: int, weight: np.float32) -> None:
    wide_vectors()
    pixels = source[at : at + len(out)]
    for i in range(len(out)):
        out[i] = weight * pixels[i]


@njit(cache=True)
def _centre_and_four_pairs(
    out: Line, source: Line, at: int, step: int, weights: Line
) -> None:
    wide_vectors()
    n = len(out)
    x = source[at : at + n]
    a1, b1 = source[at - step : at - step + n], source[at + step : at + step + n]
    far = 2 * step
    a2, b2 = source[at - far : at - far + n], source[at + far : at + far + n]
    far += step
    a3, b3 = source[at - far : at - far + n], source[at + far : at + far + n]
    far += step
    a4, b4 = source[at - far : at - far + n], source[at + far : at + far + n]
    w0, w1, w2, w3, w4 = weights[0], weights[1], weights[2], weights[3], weights[4]
    for i in range(n):
        inner = (w0 * x[i] + w1 * (a1[i] + b1[i])) + w2 * (a2[i] + b2[i])
        out[i] = (inner + w3 * (a3[i] + b3[i])) + w4 * (a4[i] + b4[i])


@njit(cache=True)
def _one_pair(out: Line, source: Line, a: int, b: int, weight: np.float32) -> None:
    wide_vectors()
    before = source[a : a + len(out)]
    after = source[b : b + len(out)]
    for i in range(len(out)):
        out[i] += weight * (before[i] + after[i])


@njit(cache=True)
def _four_pairs(
    out: Line, source: Line, place: tuple[int, int, int], weights: Line
) -> None:
    wide_vectors()
    at, step, k = place
    n = len(out)
    near, far = k * step, (k + 3) * step
    a3, b3 = source[at - far : at - far + n], source[at + far : at + far + n]
    a0, b0 = source[at - near : at - near + n], source[at + near : at + near + n]
    near, far = near + step, far - step
    a2, b2 = source[at - far : at - far + n], source[at + far : at + far + n]
    a1, b1 = source[at - near : at - near + n], source[at + near : at + near + n]
    w0, w1, w2, w3 = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
    for i in range(n):
        inner = (out[i] + w0 * (a0[i] + b0[i])) + w1 * (a1[i] + b1[i])
        out[i] = (inner + w2 * (a2[i] + b2[i])) + w3 * (a3[i] + b3[i])


@njit(cache=True)
def _write(blurred: NDArray[Any], row: int, left: int, result: Line) -> None:
    wide_vectors()
    out = blurred[row, left : left + len(result)]
    if blurred.itemsize == result.itemsize:  # float32
        for i in range(len(result)):
            out[i] = result[i]
        return
    for i in range(len(result)):
        out[i] = np.rint(result[i])
