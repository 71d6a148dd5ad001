"""Gaussian blur on the CPU: both passes of a tile while it is in cache.

A tile is read once, as float32, with its surroundings mirrored where the image ends.
Some of its rows at once are then summed down the columns and along the rows; both are
the same loop over pairs of slices, one pair a row or a pixel apart. Each output pixel
depends on input pixels only, so tiles, strips and threads do not change a bit.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hetkernels.parts import share, span, threads
from hetkernels.variants import Kernel, size_of
from hetkernels.wide_vectors import aligned_zeros, wide_vectors

Planes: TypeAlias = NDArray[Any]
"""(planes, rows, columns) of uint8, uint16 or float32"""
Line: TypeAlias = NDArray[np.float32]

PIECE = 256
"""Rows that are timed at once, while the fastest tile is not known: whole tiles of each."""
WORTH_THREADS = 1 << 19
"""Pixels x pairs up to which one thread is done before a second one has woken up."""
FOUR = 4
"""Pairs that one loop adds: more would need more registers and checks than there are."""
GROUP = 4096
"""Pixels of the rows that are summed in one call: they and their sums fit the first cache."""
LANES = 64
"""Pixels of one unrolled turn of the sums (four 512-bit vectors)."""


class Tiling(NamedTuple):
    """A variant of the blur; all give the same bits.

    Attributes:
        rows: of a tile, at least as many as the radius.
        columns: of a tile, at least four times the radius.

    """

    rows: int
    columns: int


TILINGS = (Tiling(64, 1024), Tiling(128, 512), Tiling(128, 1024))
"""With a border of some pixels such tiles fit a level-2 cache."""
BLUR = Kernel("gaussian-blur", lambda _size: TILINGS)


def blur_rows(image: Planes, blurred: Planes, weights: Line, strip: range) -> None:
    """Blur the rows `strip` of each plane of `image` into `blurred`.

    `weights` are those of the centre and one side, float32.
    """
    pieces = max(1, len(strip) // PIECE)
    pixels = len(strip) * image.shape[0] * image.shape[2]
    count = threads() if pixels * len(weights) > WORTH_THREADS else 1
    form = f"{image.dtype.char} {len(weights)}"
    size = size_of(pixels // pieces, count, form)

    def do(tiling: Tiling, first: int, last: int) -> bool:
        stop = strip.stop if last == pieces else strip.start + last * PIECE
        rows = range(strip.start + first * PIECE, stop)
        blur_tiles((image, blurred, weights), rows, tiling, count)
        return True

    BLUR.run(size, pieces, do)


def blur_tiles(
    arrays: tuple[Planes, Planes, Line], rows: range, tiling: Tiling, most: int
) -> None:
    """Blur `rows` with a variant, in `most` threads; `arrays` are those of `blur_rows`."""
    image, _, weights = arrays
    planes, _, columns = image.shape
    reach = len(weights) - 1
    width = min(columns, max(tiling.columns, 4 * reach))
    height = min(len(rows), max(tiling.rows, reach, tiling.rows * 512 // width))
    across = -(-columns // width)
    tiles = planes * -(-len(rows) // height) * across
    parts = min(tiles, most)
    stride = _stride(width, reach)
    needed = (height + 2 * reach) * stride + 2 * max(GROUP, stride)

    def do(part: int) -> None:
        place = ((rows.start, rows.stop), (height, width), span(part, parts, tiles))
        _blur_part(*arrays, place, _memory(needed))

    share(do, parts)


_of_thread = threading.local()


def _memory(pixels: int) -> Line:
    """Return memory of this thread's own, kept for the next tiles.

    Fresh pages for each of them would take longer than a narrow blur.
    """
    kept: Line | None = getattr(_of_thread, "memory", None)
    if kept is None or len(kept) < pixels:
        kept = _of_thread.memory = aligned_zeros(pixels)
    return kept


@njit(cache=True, nogil=True)
def _blur_part(
    image: Planes,
    blurred: Planes,
    weights: Line,
    place: tuple[tuple[int, int], tuple[int, int], tuple[int, int]],
    memory: Line,
) -> None:
    """Blur some tiles; `place` is (strip, tile, from this one up to that one)."""
    strip, tile, tiles = place
    down = -(-(strip[1] - strip[0]) // tile[0])
    across = -(-image.shape[2] // tile[1])
    for index in range(tiles[0], tiles[1]):
        plane = index // (down * across)
        top = strip[0] + index // across % down * tile[0]
        left = index % across * tile[1]
        bottom = min(strip[1], top + tile[0])
        right = min(image.shape[2], left + tile[1])
        box = (top, bottom, left, right)
        _tile(image[plane], blurred[plane], weights, box, memory)


@njit(cache=True)
def _stride(width: int, reach: int) -> int:
    """Return the length of a row of `width` pixels with its borders.

    It has some pixels more than needed: no turn of the sums is left over.
    """
    return -(-(width + 2 * reach) // LANES) * LANES


@njit(cache=True)
def _tile(
    image: NDArray[Any],
    blurred: NDArray[Any],
    weights: Line,
    box: tuple[int, int, int, int],
    memory: Line,
) -> None:
    """Blur the pixels of `box` (top, bottom, left, right)."""
    top, bottom, left, right = box
    reach = len(weights) - 1
    stride = _stride(right - left, reach)
    height = min(bottom - top, max(1, GROUP // stride))
    line, rest = memory[: height * stride], memory[height * stride :]
    result, pixels = rest[: height * stride], rest[height * stride :]
    for row in range(bottom - top + 2 * reach):
        source = mirrored(top + row - reach, image.shape[0])
        # What pads a row is left as it is: no sum that is kept reads it.
        _read(pixels, row * stride, image, source, (left - reach, right + reach))
    for row in range(0, bottom - top, height):
        count = min(height, bottom - top - row)
        _sum(line[: count * stride], pixels, (row + reach) * stride, stride, weights)
        # the sums between the rows, across their borders, are not written
        _sum(result[: count * stride - 2 * reach], line, reach, 1, weights)
        for i in range(count):
            sums = result[i * stride : i * stride + right - left]
            _write(blurred, top + row + i, left, sums)


@njit(cache=True)
def mirrored(index: int, length: int) -> int:
    """Return the index inside 0..length-1 that the mirrored image has at `index`."""
    index %= 2 * length
    return min(index, 2 * length - 1 - index)


@njit(cache=True)
def _read(
    pixels: Line, at: int, image: NDArray[Any], row: int, span: tuple[int, int]
) -> None:
    """Read `span` (first, last) of a row, mirrored beyond the image, as float32."""
    start, stop = span
    columns = image.shape[1]
    first = max(0, start)
    last = min(columns, stop)
    for i in range(start, first):
        pixels[at + i - start] = image[row, mirrored(i, columns)]
    _convert(pixels, at + first - start, image, row, (first, last))
    for i in range(last, stop):
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
