"""Finishes the matrix on the host: mirror, limits, NaN for constant columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

TILE = 256
"""Rows and columns transposed at a time: both copies stay in the cache."""


def finish(matrix: NDArray[Any], constant: NDArray[np.bool_]) -> None:
    """Turn the upper triangle into the whole matrix, in place.

    Args:
        matrix: columns x columns; what is left of the diagonal is overwritten.
        constant: columns that are constant; they correlate with nothing.

    """
    # Rounding leaves correlations of 1 a little above it.
    np.clip(matrix, -1.0, 1.0, out=matrix)
    np.fill_diagonal(matrix, 1.0)
    for first in range(0, len(matrix), TILE):
        _mirror(matrix, slice(first, first + TILE))
    matrix[constant] = np.nan
    matrix[:, constant] = np.nan


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


def _mirror(matrix: NDArray[Any], rows: slice) -> None:
    """Copy a band's upper part to below the diagonal, tile by tile."""
    square = matrix[rows, rows]
    square[:] = np.triu(square) + np.triu(square, 1).T
    for first in range(rows.stop, len(matrix), TILE):
        columns = slice(first, first + TILE)
        matrix[columns, rows] = matrix[rows, columns].T
