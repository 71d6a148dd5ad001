"""Finishes the matrix on the host: mirror, limits, NaN for constant columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from hetkernels.parts import share, threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

TILE = 64
"""Rows and columns treated at a time: a tile and its mirror image stay in the cache."""
WORTH_THREADS = 512
"""Columns up to which one thread is done before a second one has woken up."""

Array = Any
"""A NumPy array as Numba sees it."""


def finish(matrix: NDArray[Any], constant: NDArray[np.bool_]) -> None:
    """Turn the upper triangle into the whole matrix, in place.

    Rounding leaves correlations of 1 a little above it; they are cut off.

    Args:
        matrix: columns x columns; what is left of the diagonal is overwritten.
        constant: columns that are constant; they correlate with nothing.

    """
    tiles = -(-len(matrix) // TILE)
    parts = threads() if len(matrix) > WORTH_THREADS else 1
    share(lambda part: _finish(matrix, constant, (tiles, part, parts)), parts)


def strongest(matrix: NDArray[Any]) -> tuple[int, int] | None:
    """Return the two different columns that correlate most, either way, if any do."""
    best, found = 0.0, None
    for row in range(len(matrix) - 1):
        right = np.abs(matrix[row, row + 1 :])
        if np.isnan(matrix[row, row]):
            continue
        column = int(np.nanargmax(np.append(right, 0.0)))
        if column < len(right) and right[column] > best:
            best, found = float(right[column]), (row, row + 1 + column)
    return found


@njit(cache=True, nogil=True)
def _finish(matrix: Array, constant: Array, which: tuple[int, int, int]) -> None:
    """Finish a thread's share (tiles across, which part, of how many) of the tiles."""
    tiles, part, parts = which
    for above in range(part, tiles, parts):
        for across in range(above, tiles):
            _finish_tile(matrix, constant, above, across)


@njit(cache=True)
def _finish_tile(matrix: Array, constant: Array, above: int, across: int) -> None:
    """Finish a tile right of the diagonal or on it, and its mirror image.

    Each step is a loop of its own, which the compiler makes of vectors.
    """
    n = len(matrix)
    rows = (above * TILE, min(n, (above + 1) * TILE))
    columns = (across * TILE, min(n, (across + 1) * TILE))
    one = matrix.dtype.type(1)
    for row in range(rows[0], rows[1]):
        for column in range(max(row, columns[0]), columns[1]):
            matrix[row, column] = min(max(matrix[row, column], -one), one)
        if above == across:
            matrix[row, row] = one
        if constant[row]:
            matrix[row, max(row, columns[0]) : columns[1]] = np.nan
    for column in range(columns[0], columns[1]):
        last = min(rows[1], column + 1)
        if constant[column]:
            matrix[rows[0] : last, column] = np.nan
        for row in range(rows[0], last):
            matrix[column, row] = matrix[row, column]
