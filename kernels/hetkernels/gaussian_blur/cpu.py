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
from hetkernels.variants import Kernel, Size, size_of
from hetkernels.wide_vectors import aligned_zeros, wide_vectors

Planes: TypeAlias = NDArray[Any]
"""(planes, rows, columns) of uint8, uint16 or float32"""
Line: TypeAlias = NDArray[np.float32]

PIECE = 256
"""Rows of a large strip that are timed at once, while the fastest tile is not known: whole
tiles of each."""
WORTH_THREADS = 1 << 19
"""Pixels x pairs of a strip up to which one thread is done before a second one has woken up."""
WORTH_ALL_THREADS = 1 << 21
"""Pixels x pairs of each thread's share above which all are used, and a strip is timed in pieces."""
FEW_THREADS = 4
"""Between one and all of them: waking many takes as long as a strip of middle size."""
FOUR = 4
"""Pairs that one loop adds: more would need more registers and checks than there are."""
GROUP = 4096
"""Pixels of the rows that are summed in one call: they and their sums fit the first cache."""
LANES = 64
"""Pixels of one unrolled turn of the sums (four 512-bit vectors)."""
LINE = 16
"""Pixels of a line of the cache: a row begins with one."""


class Tiling(NamedTuple):
    """A variant of the blur; all give the same bits.

    Attributes:
        rows: of a tile, at least as many as the radius.
        columns: of a tile, at least four times the radius.
        threads: that share the tiles.

    """

    rows: int
    columns: int
    threads: int


TILES = ((64, 1024), (128, 512), (128, 1024))
"""(rows, columns): with a border of some pixels such tiles fit a level-2 cache."""


SMALL, MIDDLE, LARGE = "small", "middle", "large"
"""Beginnings of a strip's form, by the threads that may be worth their waking."""


def _tilings(size: Size) -> tuple[Tiling, ...]:
    """List the variants for a size; all threads come first."""
    counts = {1, min(FEW_THREADS, size.threads), size.threads}
    if size.form.startswith(SMALL):
        counts = {1}
    elif size.form.startswith(LARGE):
        counts = {size.threads}
    return tuple(
        Tiling(*tile, threads) for threads in sorted(counts)[::-1] for tile in TILES
    )


BLUR = Kernel("gaussian-blur", _tilings)


def blur_rows(image: Planes, blurred: Planes, weights: Line, strip: range) -> None:
    """Blur the rows `strip` of each plane of `image` into `blurred`.

    `weights` are those of the centre and one side, float32.
    """
    pixels = len(strip) * image.shape[0] * image.shape[2]
    extent = _extent(pixels * len(weights), threads())
    pieces = max(1, len(strip) // PIECE) if extent == LARGE else 1
    form = f"{extent} {image.dtype.char} {len(weights)}"
    size = size_of(pixels // pieces, threads(), form)

    def do(tiling: Tiling, first: int, last: int) -> bool:
        stop = strip.stop if last == pieces else strip.start + last * PIECE
        rows = range(strip.start + first * PIECE, stop)
        blur_tiles((image, blurred, weights), rows, tiling)
        return True

    BLUR.run(size, pieces, do)


def _extent(work: int, most: int) -> str:
    """Classify work, in pixels x pairs, that `most` threads may share."""
    if work > most * WORTH_ALL_THREADS:
        return LARGE
    return MIDDLE if work > WORTH_THREADS else SMALL


def blur_tiles(
    arrays: tuple[Planes, Planes, Line], rows: range, tiling: Tiling
) -> None:
    """Blur `rows` with a variant; `arrays` are those of `blur_rows`."""
    image, _, weights = arrays
    planes, _, columns = image.shape
    reach = len(weights) - 1
    width = min(columns, max(tiling.columns, 4 * reach))
    height = min(len(rows), max(tiling.rows, reach, tiling.rows * 512 // width))
    across = -(-columns // width)
    tiles = planes * -(-len(rows) // height) * across
    parts = min(tiles, tiling.threads)
    stride = _stride(width, reach)
    needed = (height + 2 * reach) * stride + 2 * max(GROUP, stride) + 5 * LANES

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
    """Return the length of a row of `width` pixels with its borders, in whole cache lines."""
    return -(-(width + 2 * reach) // LINE) * LINE


@njit(cache=True)
def _whole_turns(pixels: int) -> int:
    """Return the pixels of as many turns of the sums: none is left over for a slower loop."""
    return -(-pixels // LANES) * LANES


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
    room = _whole_turns(height * stride) + LANES
    line, result, pixels = memory[:room], memory[room : 2 * room], memory[2 * room :]
    rows, columns = (top - reach, bottom + reach), (left - reach, right + reach)
    _read(pixels, stride, image, rows, columns)
    for row in range(0, bottom - top, height):
        count = min(height, bottom - top - row)
        down = line[: _whole_turns(count * stride)]
        _sum(down, pixels, (row + reach) * stride, stride, weights)
        # the sums between the rows, across their borders, are not written
        along = result[: _whole_turns(count * stride - 2 * reach)]
        _sum(along, line, reach, 1, weights)
        box = (top + row, top + row + count, left, right)
        _write(blurred, box, result, stride)


@njit(cache=True)
def mirrored(index: int, length: int) -> int:
    """Return the index inside 0..length-1 that the mirrored image has at `index`."""
    if not -length <= index < 2 * length:
        index %= 2 * length
    if index < 0:
        return -1 - index
    return min(index, 2 * length - 1 - index)


@njit(cache=True)
def _read(
    pixels: Line,
    stride: int,
    image: NDArray[Any],
    rows: tuple[int, int],
    columns: tuple[int, int],
) -> None:
    """Read `columns` (first, last) of `rows` as float32, mirrored beyond the image.

    What pads a row is left as it is: no sum that is kept reads it.
    """
    wide_vectors()
    start, stop = columns
    first, last = max(0, start), min(image.shape[1], stop)
    for row in range(rows[0], rows[1]):
        line = pixels[(row - rows[0]) * stride : (row - rows[0] + 1) * stride]
        source = image[mirrored(row, image.shape[0])]
        for i in range(start, first):
            line[i - start] = source[mirrored(i, len(source))]
        inner, inside = line[first - start : last - start], source[first:last]
        for i in range(len(inside)):
            inner[i] = inside[i]
        for i in range(last, stop):
            line[i - start] = source[mirrored(i, len(source))]


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
def _write(
    blurred: NDArray[Any], box: tuple[int, int, int, int], sums: Line, stride: int
) -> None:
    """Write the first sums of each `stride` into the rows of `box`."""
    wide_vectors()
    top, bottom, left, right = box
    for row in range(top, bottom):
        out = blurred[row, left:right]
        line = sums[(row - top) * stride : (row - top) * stride + len(out)]
        if blurred.itemsize == sums.itemsize:  # float32
            for i in range(len(out)):
                out[i] = line[i]
        else:
            for i in range(len(out)):
                out[i] = np.rint(line[i])
