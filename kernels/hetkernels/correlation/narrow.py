"""Correlation of tables with few columns on the CPU: standardised and multiplied at once.

Such a table is as large as its matrix is small: the time goes into reading it. BLAS would
need the standardised rows in memory, and its threads for blocks too small to share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from hetkernels.correlation.plan import DEPTH, RUN
from hetkernels.parts import share, span, threads
from hetkernels.wide_vectors import wide_vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetkernels.correlation.standardise import Standardised

NARROW = 64
"""Columns up to which this is faster than BLAS. By size alone, as the bits differ."""
SIDE = 4
"""Rows and columns of the matrix that one loop sums: their 16 sums stay in registers."""

Array = Any
"""A NumPy array as Numba sees it."""


def multiply_narrow(
    table: Standardised, matrix: NDArray[Any], chunks: range, depth: int = DEPTH
) -> None:
    """Add the products of some chunks of rows to the matrix, in order.

    Args:
        table: the table.
        matrix: columns x columns; written on and right of the diagonal.
        chunks: the chunks to add; the first of all overwrites the matrix.
        depth: rows in a chunk.

    """
    columns = len(matrix)
    width = -(-columns // SIDE) * SIDE
    sums = np.zeros((len(chunks), width, width), matrix.dtype)
    parts = min(threads(), len(chunks))

    def do(part: int) -> None:
        first, last = span(part, parts, len(chunks))
        rows = (chunks.start + first, depth)
        _products(table.values, (table.mean, table.factor), sums[first:last], rows)

    share(do, parts)
    for chunk, each in zip(chunks, sums, strict=True):
        if chunk == 0:
            matrix[:] = each[:columns, :columns]
        else:
            matrix += each[:columns, :columns]


@njit(cache=True, nogil=True)
def _products(
    values: Array, moments: tuple[Array, Array], sums: Array, rows: tuple[int, int]
) -> None:
    """Sum the products of some chunks, each by itself; `rows` is (first chunk, depth)."""
    first, depth = rows
    run = np.zeros((sums.shape[2], RUN), sums.dtype)
    for i in range(len(sums)):
        begin = (first + i) * depth
        end = min(begin + depth, len(values))
        _chunk(values, moments, (begin, end), run, sums[i])


@njit(cache=True)
def _chunk(
    values: Array,
    moments: tuple[Array, Array],
    rows: tuple[int, int],
    run: Array,
    total: Array,
) -> None:
    """Sum the products of a chunk, in runs: float32 loses digits in long ones."""
    for first in range(rows[0], rows[1], RUN):
        last = min(first + RUN, rows[1])
        _standardise(values, moments, (first, last), run)
        for i in range(0, len(total), SIDE):
            for j in range(i, len(total), SIDE):
                _add(_products_of(run, i, j), total, i, j)


@njit(cache=True)
def _standardise(
    values: Array, moments: tuple[Array, Array], rows: tuple[int, int], run: Array
) -> None:
    """Make some rows, as `Standardised.rows`, as columns; zeros beyond."""
    mean, factor = moments
    first, last = rows
    if last - first < RUN:
        run[:] = 0
    for column in range(len(mean)):
        offset, middle, scale = values[0, column], mean[column], factor[column]
        line = run[column]
        for row in range(first, last):
            shifted = np.float64(values[row, column]) - offset
            line[row - first] = (shifted - middle) * scale


# kinds may differ in the last bits, so sums may have an order of the compiler's own
@njit(cache=True, fastmath={"contract", "reassoc", "nsz"})
def _products_of(run: Array, i: int, j: int) -> tuple[Any, ...]:
    """Sum the products of four columns with four others over a run."""
    wide_vectors()
    a0, a1, a2, a3 = run[i], run[i + 1], run[i + 2], run[i + 3]
    b0, b1, b2, b3 = run[j], run[j + 1], run[j + 2], run[j + 3]
    s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = run.dtype.type(0)
    s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = run.dtype.type(0)
    for r in range(RUN):
        s00 += a0[r] * b0[r]
        s01 += a0[r] * b1[r]
        s02 += a0[r] * b2[r]
        s03 += a0[r] * b3[r]
        s10 += a1[r] * b0[r]
        s11 += a1[r] * b1[r]
        s12 += a1[r] * b2[r]
        s13 += a1[r] * b3[r]
        s20 += a2[r] * b0[r]
        s21 += a2[r] * b1[r]
        s22 += a2[r] * b2[r]
        s23 += a2[r] * b3[r]
        s30 += a3[r] * b0[r]
        s31 += a3[r] * b1[r]
        s32 += a3[r] * b2[r]
        s33 += a3[r] * b3[r]
    return (
        s00,
        s01,
        s02,
        s03,
        s10,
        s11,
        s12,
        s13,
        s20,
        s21,
        s22,
        s23,
        s30,
        s31,
        s32,
        s33,
    )


@njit(cache=True)
def _add(sums: tuple[Any, ...], total: Array, i: int, j: int) -> None:
    for place in range(SIDE * SIDE):
        total[i + place // SIDE, j + place % SIDE] += sums[place]
