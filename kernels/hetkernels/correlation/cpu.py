"""Correlation on the CPU: BLAS on wide row strips of the upper triangle.

A block's square on the diagonal goes to BLAS syrk (NumPy sees that both factors are the
same), the rest of its rows to gemm: no product is computed twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hetkernels.correlation.plan import DEPTH, Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from libtask.devices import Device


def multiply(
    device: Device, plan: Plan, buffers: tuple[NDArray[Any], NDArray[Any]], strip: range
) -> None:
    """Do a strip of iterations.

    Args:
        device: keeps BLAS to the task's threads; not asked here.
        plan: what the iterations are.
        buffers: the standardised table (rows x columns), and the matrix, whose blocks
            on and right of the diagonal are written.
        strip: iterations to do.

    """
    del device
    table, matrix = buffers
    for iteration in strip:
        pair, chunk = divmod(iteration, plan.chunks)
        part = table[chunk * DEPTH : (chunk + 1) * DEPTH]
        for block in plan.pair(pair):
            first = block * plan.block
            here = slice(first, min(first + plan.block, plan.columns))
            right = slice(here.stop, plan.columns)
            _product(part, here, here, (matrix[here, here], chunk > 0))
            _product(part, here, right, (matrix[here, right], chunk > 0))


def _product(
    part: NDArray[Any], rows: slice, columns: slice, target: tuple[NDArray[Any], bool]
) -> None:
    """Write part[:, rows]^T part[:, columns], or add it to what earlier chunks gave."""
    block, adds = target
    if adds:
        block += np.matmul(part[:, rows].T, part[:, columns])
    else:
        np.matmul(part[:, rows].T, part[:, columns], out=block)
