"""Correlation on the CPU: BLAS on wide row strips of the upper triangle.

A block's square on the diagonal goes to BLAS syrk, the rest of its rows to gemm: no product
is computed twice. Both add to the matrix in place. Tables whose matrix is one block are
standardised chunk by chunk, just before they are multiplied: they are never written to memory
as a whole. Those with few columns do without BLAS (`narrow`). Which of these it is depends on
the size alone, so every cut into strips gives the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hetkernels.blas import add_product, add_square
from hetkernels.correlation.narrow import NARROW, multiply_narrow
from hetkernels.correlation.plan import DEPTH, Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetkernels.correlation.standardise import Standardised
    from libtask.devices import Device

BATCH_BYTES = 16 << 20
"""Standardised rows made at a time, so that BLAS and Numba take turns seldom: threads of
one still spin while those of the other begin."""


def multiply(
    device: Device, plan: Plan, buffers: tuple[Standardised, NDArray[Any]], strip: range
) -> None:
    """Do a strip of iterations.

    Args:
        device: keeps BLAS to the task's threads; not asked here.
        plan: what the iterations are.
        buffers: the table (rows x columns), and the matrix, which is written on and right
            of the diagonal.
        strip: iterations to do.

    """
    del device
    table, matrix = buffers
    if plan.columns <= NARROW:
        multiply_narrow(table, matrix, strip, DEPTH)
    elif plan.pairs == 1:
        _multiply_whole(table, matrix, strip)
    else:
        _multiply_blocks(plan, table.table, matrix, strip)


def _multiply_whole(table: Standardised, matrix: NDArray[Any], chunks: range) -> None:
    """Add some chunks of rows to a matrix of one block."""
    rows, columns = table.shape
    fitting = BATCH_BYTES // (DEPTH * columns * table.real.itemsize)
    batch = min(len(chunks), max(1, fitting))
    memory = np.empty((batch * DEPTH, columns), table.real)
    for first in chunks[::batch]:
        last = min(first + batch, chunks.stop)
        made = table.rows(first * DEPTH, min(last * DEPTH, rows), memory)
        for chunk in range(first, last):
            part = made[(chunk - first) * DEPTH : (chunk - first + 1) * DEPTH]
            add_square(part, matrix, onto=chunk > 0)


def _multiply_blocks(
    plan: Plan, table: NDArray[Any], matrix: NDArray[Any], strip: range
) -> None:
    for iteration in strip:
        pair, chunk = divmod(iteration, plan.chunks)
        part = table[chunk * DEPTH : (chunk + 1) * DEPTH]
        for block in plan.pair(pair):
            first = block * plan.block
            here = slice(first, min(first + plan.block, plan.columns))
            right = slice(here.stop, plan.columns)
            add_square(part[:, here], matrix[here, here], onto=chunk > 0)
            add_product(
                part[:, here], part[:, right], matrix[here, right], onto=chunk > 0
            )
