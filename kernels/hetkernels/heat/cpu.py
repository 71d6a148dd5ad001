"""Heat on the CPU: several time steps in one pass over memory, in place.

The grid is cut into tiles. A tile streams down its rows once, two at a time; level
t (the grid after t steps) trails level t-1 by one row, and only four rows of each
level are kept, so that a pass of `DEPTH` steps works in the level-2 cache and
touches main memory once. The last level overwrites the grid behind the front.

Tiles need cells of their neighbours as they were before the pass: rows and columns
around each cut are saved first (`_save_*`), so tiles are independent and the result
does not depend on their order, number or shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from hetkernels.wide_vectors import aligned_zeros, wide_vectors

if TYPE_CHECKING:
    from hetkernels.heat.plate import Plate

Cells: TypeAlias = NDArray[np.float32]
Cuts: TypeAlias = NDArray[np.int64]
Law: TypeAlias = tuple[np.float32, bool]
"""(alpha, insulated)"""

DEPTH = 32
"""Time steps in one pass: main memory is read and written once for all of them."""
WIDTH = 1024
"""Columns of a tile: 4 rows x 32 levels x 4 KiB fit in a level-2 cache."""
LANES = 64
"""Cells of one unrolled turn of the stencil (four 512-bit vectors)."""
HEIGHT = 1024
"""Rows of a tile: the overlap of DEPTH rows costs DEPTH / HEIGHT of the time."""


def heat_steps(grid: Cells, plate: Plate, steps: int, threads: int = 1) -> None:
    """Advance `grid` (rows x columns, C order) by `steps` time steps, in place."""
    blocks = max(1, plate.columns // WIDTH)
    wanted = max(plate.rows // HEIGHT, -(-2 * threads // blocks))
    bands = max(1, min(wanted, plate.rows // (4 * DEPTH)))
    cuts = (_cuts(plate.rows, bands), _cuts(plate.columns, blocks))
    law = (np.float32(plate.alpha), plate.insulated)
    while steps > 0:
        depth = min(DEPTH, steps)
        _pass(grid, law, depth, *cuts)
        steps -= depth


def _cuts(length: int, parts: int) -> Cuts:
    return np.linspace(0, length, parts + 1).astype(np.int64)


@njit(parallel=True, cache=True, nogil=True)
def _pass(grid: Cells, law: Law, depth: int, rows: Cuts, columns: Cuts) -> None:
    saved_rows = np.empty((len(rows), 2 * depth, grid.shape[1]), np.float32)
    saved_columns = np.empty((len(columns), grid.shape[0], 2 * depth), np.float32)
    _save_rows(saved_rows, grid, rows, depth)
    for row in prange(grid.shape[0]):
        _save_columns(saved_columns, grid, columns, depth, row)
    blocks = len(columns) - 1
    for tile in prange((len(rows) - 1) * blocks):
        i = tile // blocks
        j = tile % blocks
        box = (rows[i], rows[i + 1], columns[j], columns[j + 1])
        above_below = (saved_rows[i], saved_rows[i + 1])
        before_after = (saved_columns[j], saved_columns[j + 1])
        _tile(grid, law, depth, box, (above_below, before_after))


@njit(cache=True)
def _save_rows(saved: Cells, grid: Cells, cuts: Cuts, depth: int) -> None:
    """Copy `depth` rows on both sides of each inner cut: (cuts, 2 depth, columns)."""
    for cut in range(1, len(cuts) - 1):
        first = cuts[cut] - depth
        for row in range(max(0, first), min(grid.shape[0], first + 2 * depth)):
            saved[cut, row - first] = grid[row]


@njit(cache=True)
def _save_columns(saved: Cells, grid: Cells, cuts: Cuts, depth: int, row: int) -> None:
    """Copy a row's `depth` columns on both sides of each cut: (cuts, rows, 2 depth)."""
    for cut in range(1, len(cuts) - 1):
        first = cuts[cut] - depth
        for column in range(max(0, first), min(grid.shape[1], first + 2 * depth)):
            saved[cut, row, column - first] = grid[row, column]


@njit(cache=True)
def _tile(
    grid: Cells,
    law: Law,
    depth: int,
    box: tuple[int, int, int, int],
    outside: tuple[tuple[Cells, Cells], tuple[Cells, Cells]],
) -> None:
    """Advance the cells of `box` (top, bottom, left, right) by `depth` steps."""
    top, bottom, left, right = box
    n = grid.shape[0]
    low = max(0, left - depth)
    width = min(grid.shape[1], right + depth) - low
    lines = aligned_zeros(_at(depth + 1, 0, width) + LANES)
    for front in range(max(0, top - depth), bottom + depth, 2):
        for row in range(front, min(n, front + 2)):
            _read_row(lines, grid, row, box, outside)
        for level in range(1, depth + 1):
            row = front - level
            # Rows that no later level needs are left out.
            if top - depth + level - 2 < row < min(n, bottom + depth - level):
                _next_rows(lines, (level, width), row, n, law)
        for row in range(max(top, front - depth), min(bottom, front - depth + 2)):
            at = _at(depth, row, width) - low
            _write(grid, row, (left, right), lines, at)


@njit(cache=True)
def _at(level: int, row: int, width: int) -> int:
    """Return where a row of a level begins in the flat array of lines.

    Rows are padded to whole vectors, with a margin before and after, so that the
    stencil runs over padding instead of finishing each row cell by cell.
    """
    stride = (width + LANES - 1) // LANES * LANES + LANES
    return LANES + (level * 4 + row % 4) * stride


@njit(cache=True)
def _read_row(
    lines: Cells,
    grid: Cells,
    row: int,
    box: tuple[int, int, int, int],
    outside: tuple[tuple[Cells, Cells], tuple[Cells, Cells]],
) -> None:
    """Read a row of the tile and its surroundings, as they were before the pass."""
    top, bottom, left, right = box
    (above, below), (before, after) = outside
    depth = above.shape[0] // 2
    low = max(0, left - depth)
    high = min(grid.shape[1], right + depth)
    at = _at(0, row, high - low) - low
    if row < top:
        _copy(lines, at + low, above, (row - top + depth, low), high - low)
    elif row >= bottom:
        _copy(lines, at + low, below, (row - bottom + depth, low), high - low)
    else:
        _copy(lines, at + low, before, (row, low - left + depth), left - low)
        _copy(lines, at + left, grid, (row, left), right - left)
        _copy(lines, at + right, after, (row, depth), high - right)


@njit(cache=True)
def _copy(
    lines: Cells, at: int, source: Cells, start: tuple[int, int], count: int
) -> None:
    row, column = start
    line = lines[at : at + count]
    cells = source[row, column : column + count]
    for i in range(count):
        line[i] = cells[i]


@njit(cache=True)
def _write(
    grid: Cells, row: int, columns: tuple[int, int], lines: Cells, at: int
) -> None:
    left, right = columns
    cells = grid[row, left:right]
    line = lines[at + left : at + right]
    for i in range(right - left):
        cells[i] = line[i]


@njit(cache=True)
def _next_rows(
    lines: Cells, place: tuple[int, int], row: int, n: int, law: Law
) -> None:
    """Compute `row` and `row + 1` of a level from the level before.

    At the fringe of the tile one of the two may be wrong or outside: it is not used.
    `place` is (level, width).
    """
    if 0 < row < n - 2:
        _pair(lines, place, row, law)
        _ends(lines, place, (row, row - 1, row + 1), law)
        _ends(lines, place, (row + 1, row, row + 2), law)
        return
    for one in range(max(0, row), min(n, row + 2)):
        _edge_row(lines, place, one, n, law)


@njit(cache=True)
def _pair(lines: Cells, place: tuple[int, int], row: int, law: Law) -> None:
    """Two inner rows at once: half the loads of one after the other.

    The views are made here, in the leaf: passed through a call they would be
    reference-counted, which takes longer than computing a row.
    """
    wide_vectors()
    level, width = place
    span = (width + LANES - 1) // LANES * LANES
    at = _at(level - 1, row - 1, width)
    up = lines[at : at + span]
    at = _at(level - 1, row, width) - 1
    here1 = lines[at : at + span + 2]
    at = _at(level - 1, row + 1, width) - 1
    here2 = lines[at : at + span + 2]
    at = _at(level - 1, row + 2, width)
    down = lines[at : at + span]
    at = _at(level, row, width)
    out1 = lines[at : at + span]
    at = _at(level, row + 1, width)
    out2 = lines[at : at + span]
    alpha = law[0]
    four = np.float32(4)
    for i in range(span):
        one = here1[i + 1]
        two = here2[i + 1]
        around1 = (up[i] + two) + (here1[i] + here1[i + 2])
        around2 = (one + down[i]) + (here2[i] + here2[i + 2])
        out1[i] = one + alpha * (around1 - four * one)
        out2[i] = two + alpha * (around2 - four * two)


@njit(cache=True)
def _edge_row(lines: Cells, place: tuple[int, int], row: int, n: int, law: Law) -> None:
    """Compute the first row, the last, or the one beside it."""
    level, width = place
    rows = (row, max(0, row - 1), min(n - 1, row + 1))
    here = _at(level - 1, row, width)
    out = _at(level, row, width)
    if not law[1] and (row == 0 or row == n - 1):
        lines[out : out + width] = lines[here : here + width]
        return
    for i in range(1, width - 1):
        _cell(lines, place, rows, (i, i - 1, i + 1), law[0])
    _ends(lines, place, rows, law)


@njit(cache=True)
def _ends(
    lines: Cells, place: tuple[int, int], rows: tuple[int, int, int], law: Law
) -> None:
    """Finish both ends of a row. At a cut they are wrong, but outside the tile."""
    level, width = place
    last = width - 1
    if law[1]:
        _cell(lines, place, rows, (0, 0, min(1, last)), law[0])
        _cell(lines, place, rows, (last, max(0, last - 1), last), law[0])
        return
    out = _at(level, rows[0], width)
    here = _at(level - 1, rows[0], width)
    lines[out] = lines[here]
    lines[out + last] = lines[here + last]


@njit(cache=True)
def _cell(
    lines: Cells,
    place: tuple[int, int],
    rows: tuple[int, int, int],
    columns: tuple[int, int, int],
    alpha: np.float32,
) -> None:
    """Compute one cell; `rows` and `columns` are (its own, before, after)."""
    level, width = place
    here = _at(level - 1, rows[0], width)
    up = lines[_at(level - 1, rows[1], width) + columns[0]]
    down = lines[_at(level - 1, rows[2], width) + columns[0]]
    around = (up + down) + (lines[here + columns[1]] + lines[here + columns[2]])
    old = lines[here + columns[0]]
    new = old + alpha * (around - np.float32(4) * old)
    lines[_at(level, rows[0], width) + columns[0]] = new
