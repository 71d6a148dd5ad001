"""Standardises a table on the host, once: columns of mean 0 and length 1.

Means and sums of squares are taken in float64, relative to the first row: constant
columns give exact zeros, and large offsets cost no digits. Bands of rows are summed by
themselves and merged in order, so the result does not depend on the threads.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from hetkernels.parts import share, span, threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

BAND = 256
"""Rows read twice while they are in the cache."""

WORTH_A_THREAD = 1 << 14
"""Values that take as long as waking a thread."""

Array = Any
"""A NumPy array as Numba sees it."""


class Standardised:
    """A table of columns of mean 0 and length 1, whose rows are made as they are used.

    The CPU multiplies rows while they are in its caches; other kinds take the whole table.
    Both get the same bits.

    Attributes:
        values: the table as it was read, float32 or float64.
        real: precision of the standardised rows.
        mean: of each column, less its first value.
        squares: each column's sum of squares about its mean: 0 for a constant column,
            not finite where a value is not (or overflows).
        factor: 1 / length of each column; 0 for a constant one.

    """

    def __init__(self, values: NDArray[Any], real: np.dtype[Any]) -> None:
        rows, columns = values.shape
        bands = -(-rows // BAND)
        means, squares = np.zeros((bands, columns)), np.zeros((bands, columns))
        parts = min(threads(), bands)
        share(
            lambda part: _band_moments(
                values, means, squares, span(part, parts, bands)
            ),
            parts,
        )
        _merge(means, squares, rows)
        self.values = values
        self.real = real
        self.mean: NDArray[np.float64] = means[0].copy()
        self.squares: NDArray[np.float64] = squares[0].copy()
        lengths = np.sqrt(np.where(self.squares > 0, self.squares, np.inf))
        self.factor: NDArray[np.float64] = 1 / lengths

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.values.shape
        return rows, columns

    @functools.cached_property
    def table(self) -> NDArray[Any]:
        """All rows."""
        return self.rows(0, len(self.values), np.empty(self.shape, self.real))

    def rows(self, first: int, last: int, memory: NDArray[Any]) -> NDArray[Any]:
        """Make some rows, in the first ones of `memory`."""
        made = memory[: last - first]
        if np.isfinite(self.squares).all():
            self._scale(first, made)
        return made

    def _scale(self, first: int, made: NDArray[Any]) -> None:
        parts = max(1, min(threads(), made.size // WORTH_A_THREAD))
        moments = (self.mean, self.factor)

        def do(part: int) -> None:
            begin, end = span(part, parts, len(made))
            rows = (first + begin, first + end)
            _scale(self.values, rows, moments, made[begin:end])

        share(do, parts)


def standardise(
    table: NDArray[Any], real: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Standardise a table of float32 or float64.

    Returns:
        The standardised table, and each column's sum of squares about its mean.

    """
    made = Standardised(table, real)
    return made.table, made.squares


@njit(cache=True, nogil=True)
def _band_moments(
    table: Array, means: Array, squares: Array, bands: tuple[int, int]
) -> None:
    """Take the means of some bands, and sums of squares about them."""
    for band in range(bands[0], bands[1]):
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


@njit(cache=True, nogil=True)
def _scale(
    table: Array, rows: tuple[int, int], moments: tuple[Array, Array], made: Array
) -> None:
    """Write (table - mean) / length; zeros for constant columns."""
    first, last = rows
    mean, factor = moments
    for row in range(first, last):
        for column in range(len(mean)):
            shifted = np.float64(table[row, column]) - table[0, column]
            made[row - first, column] = (shifted - mean[column]) * factor[column]
