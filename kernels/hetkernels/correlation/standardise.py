"""Standardises a table on the host, once: columns of mean 0 and length 1.

Means and sums of squares are taken in float64, relative to the first row: constant
columns give exact zeros, and large offsets cost no digits. Bands of rows are summed by
themselves and merged in order, so the result does not depend on the threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit, prange

if TYPE_CHECKING:
    from numpy.typing import NDArray

BAND = 256
"""Rows read twice while they are in the cache."""

Array = Any
"""A NumPy array as Numba sees it."""


def standardise(
    table: NDArray[Any], real: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Standardise a table of float32 or float64.

    Returns:
        The standardised table, and each column's sum of squares about its mean: 0 for
        a constant column, not finite where a value is not (or overflows).

    """
    rows, columns = table.shape
    bands = -(-rows // BAND)
    means, squares = np.zeros((bands, columns)), np.zeros((bands, columns))
    _band_moments(table, means, squares)
    _merge(means, squares, rows)
    scaled = np.empty((rows, columns), real)
    if np.isfinite(squares[0]).all():
        _scale(table, means[0], squares[0], scaled)
    return scaled, squares[0]


@njit(parallel=True, cache=True)
def _band_moments(table: Array, means: Array, squares: Array) -> None:
    """Take each band's means, and sums of squares about them."""
    for band in prange(len(means)):
        first = band * BAND
        last = min(first + BAND, len(table))
        _moments(table, (first, last), means[band], squares[band])


@njit(cache=True)
def _moments(table: Array, rows: Any, mean: Array, square: Array) -> None:
    first, last = rows
    for row in range(first, last):
        for column in range(len(mean)):
            mean[column] += np.float64(table[row, column]) - table[0, column]
    for column in range(len(mean)):
        mean[column] /= last - first
    for row in range(first, last):
        for column in range(len(mean)):
            shifted = np.float64(table[row, column]) - table[0, column]
            square[column] += (shifted - mean[column]) ** 2


@njit(cache=True)
def _merge(means: Array, squares: Array, rows: int) -> None:
    """Merge all bands into the first one (Chan, Golub and LeVeque 1979)."""
    merged = min(BAND, rows)
    for band in range(1, len(means)):
        height = min(BAND, rows - merged)
        part = height / (merged + height)
        for column in range(means.shape[1]):
            apart = means[band, column] - means[0, column]
            means[0, column] += apart * part
            squares[0, column] += squares[band, column] + apart**2 * merged * part
        merged += height


@njit(parallel=True, cache=True)
def _scale(table: Array, mean: Array, square: Array, scaled: Array) -> None:
    """Write (table - mean) / length; zeros for constant columns."""
    factor = np.zeros(len(mean))
    for column in range(len(mean)):
        if square[column] > 0:
            factor[column] = 1 / np.sqrt(square[column])
    for row in prange(len(table)):
        for column in range(len(mean)):
            shifted = np.float64(table[row, column]) - table[0, column]
            scaled[row, column] = (shifted - mean[column]) * factor[column]
