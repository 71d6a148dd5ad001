"""Power iteration on the CPU: Numba, as fast as BLAS gemv, in our order of additions.

BLAS leaves its order of additions open, so that results would differ between kinds and
between numbers of threads; memory, not arithmetic, is the limit in both cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit, prange

from hetkernels.markov.layout import BLOCK, CHUNK

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hetkernels.markov.layout import Chain, Scratch, Walk

WORTH_THREADS = 1 << 18
"""Entries below which one thread is done before a second one has woken up."""

Array = Any
"""A NumPy array as Numba sees it."""


class CpuWalk:
    """Advances a walk that lies in host memory.

    Args:
        chain: the matrix.
        walk: the state, changed in place.
        scratch: memory of one step.
        tolerance: L1 change at which the iteration has converged.

    """

    def __init__(
        self, chain: Chain, walk: Walk, scratch: Scratch, tolerance: float
    ) -> None:
        self._steps = STEPS[chain.form]
        self._chain = chain
        self._walk = walk
        self._scratch = scratch
        self._tolerance = chain.real.type(tolerance)

    def steps(self, count: int) -> None:
        """Do `count` steps, or fewer where it converges before."""
        walk, arrays = tuple(self._walk), self._chain.arrays
        self._steps(arrays, walk, tuple(self._scratch), count, self._tolerance)

    def latest(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return (status, residual) as of the last steps."""
        return self._walk.status, self._walk.residual


@njit(cache=True)
def dense_steps(
    arrays: Any, walk: Any, scratch: Any, count: int, tolerance: float
) -> None:
    """Do steps with a dense matrix."""
    (matrix,) = arrays
    pair, status, residual = walk
    partial, sums = scratch
    for _ in range(count):
        if status[1]:
            break
        x, y = pair[status[0] % 2], pair[1 - status[0] % 2]
        if matrix.size < WORTH_THREADS:
            for chunk in range(len(partial)):
                _chunk_products(matrix, x, partial, chunk)
        else:
            _products(matrix, x, partial)
        if partial.size < WORTH_THREADS:
            for block in range(len(sums)):
                _block_sums(x, y, partial, sums, block)
        else:
            _column_sums(x, y, partial, sums)
        _conclude(sums, status, residual, tolerance)


@njit(cache=True)
def sparse_steps(
    arrays: Any, walk: Any, scratch: Any, count: int, tolerance: float
) -> None:
    """Do steps with a sparse matrix."""
    offsets, rows, values = arrays
    pair, status, residual = walk
    sums = scratch[1]
    for _ in range(count):
        if status[1]:
            break
        x, y = pair[status[0] % 2], pair[1 - status[0] % 2]
        if values.size < WORTH_THREADS:
            for block in range(len(sums)):
                _block_columns((offsets, rows, values), x, y, sums, block)
        else:
            _sparse_columns((offsets, rows, values), x, y, sums)
        _conclude(sums, status, residual, tolerance)


STEPS: dict[str, Callable[..., None]] = {"dense": dense_steps, "sparse": sparse_steps}


@njit(parallel=True, cache=True)
def _products(matrix: Array, x: Array, partial: Array) -> None:
    for chunk in prange(len(partial)):
        _chunk_products(matrix, x, partial, chunk)


@njit(cache=True)
def _chunk_products(matrix: Array, x: Array, partial: Array, chunk: int) -> None:
    """Sum x[i] * matrix[i] over the rows of a chunk."""
    first = chunk * CHUNK
    last = min(first + CHUNK, len(x))
    total = partial[chunk]
    total[:] = 0
    grouped = first + (last - first) // 8 * 8
    for row in range(first, grouped, 8):
        _add_eight_rows(matrix, x, row, total)
    for row in range(grouped, last):
        _add_row(matrix, x, row, total)


@njit(cache=True)
def _add_eight_rows(matrix: Array, x: Array, row: int, total: Array) -> None:
    """Add eight rows in order: one load and store of `total` for all of them."""
    x0, x1, x2, x3 = x[row], x[row + 1], x[row + 2], x[row + 3]
    x4, x5, x6, x7 = x[row + 4], x[row + 5], x[row + 6], x[row + 7]
    for column in range(matrix.shape[1]):
        s = total[column] + x0 * matrix[row, column]
        s += x1 * matrix[row + 1, column]
        s += x2 * matrix[row + 2, column]
        s += x3 * matrix[row + 3, column]
        s += x4 * matrix[row + 4, column]
        s += x5 * matrix[row + 5, column]
        s += x6 * matrix[row + 6, column]
        total[column] = s + x7 * matrix[row + 7, column]


@njit(cache=True)
def _add_row(matrix: Array, x: Array, row: int, total: Array) -> None:
    weight = x[row]
    for column in range(matrix.shape[1]):
        total[column] += weight * matrix[row, column]


@njit(parallel=True, cache=True)
def _column_sums(x: Array, y: Array, partial: Array, sums: Array) -> None:
    for block in prange(len(sums)):
        _block_sums(x, y, partial, sums, block)


@njit(cache=True)
def _block_sums(x: Array, y: Array, partial: Array, sums: Array, block: int) -> None:
    """Add the chunks to y, and sum the changes, for the states of a block."""
    first = block * BLOCK
    last = min(first + BLOCK, len(x))
    y[first:last] = 0
    for chunk in range(len(partial)):
        for column in range(first, last):
            y[column] += partial[chunk, column]
    sums[block] = _change(x[first:last], y[first:last])


@njit(parallel=True, cache=True)
def _sparse_columns(arrays: Any, x: Array, y: Array, sums: Array) -> None:
    for block in prange(len(sums)):
        _block_columns(arrays, x, y, sums, block)


@njit(cache=True)
def _block_columns(arrays: Any, x: Array, y: Array, sums: Array, block: int) -> None:
    """Compute y = x P, and sum the changes, for the states of a block."""
    offsets, rows, values = arrays
    first = block * BLOCK
    last = min(first + BLOCK, len(x))
    k = np.uint64(offsets[first])  # unsigned: no check for negative indices
    for column in range(first, last):
        total = values.dtype.type(0)
        while k < offsets[column + 1]:
            total += values[k] * x[rows[k]]
            k += np.uint64(1)
        y[column] = total
    sums[block] = _change(x[first:last], y[first:last])


@njit(cache=True)
def _change(x: Array, y: Array) -> Any:
    """Sum |y - x| over one block."""
    change = np.zeros(BLOCK, x.dtype)
    for i in range(len(x)):
        change[i] = abs(y[i] - x[i])
    return _fold(change)


@njit(cache=True)
def _fold(lanes: Array) -> Any:
    """Add the upper half to the lower, until one is left."""
    half = BLOCK // 2
    while half:
        for i in range(half):
            lanes[i] += lanes[i + half]
        half //= 2
    return lanes[0]


@njit(cache=True)
def _conclude(sums: Array, status: Array, residual: Array, tolerance: float) -> None:
    """Sum the changes of all blocks; count the step; note convergence."""
    lanes = np.zeros(BLOCK, sums.dtype)
    for block in range(len(sums)):
        lanes[block % BLOCK] += sums[block]
    residual[0] = _fold(lanes)
    status[0] += 1
    status[1] = residual[0] <= tolerance
