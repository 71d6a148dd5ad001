"""BLAS on parts of matrices, in place: what NumPy calls only for whole ones.

SciPy offers the addresses of its BLAS to compiled code (scipy.linalg.cython_blas). Arrays are
in C order here; BLAS sees them transposed.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
from numba.extending import get_cython_function_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

MODULE = "scipy.linalg.cython_blas"
PREFIXES = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
REALS = {"s": ctypes.c_float, "d": ctypes.c_double}


def add_square(rows: NDArray[Any], target: NDArray[Any], *, onto: bool) -> None:
    """Write rows^T rows, or add it: on and right of the diagonal only.

    Args:
        rows: k x n, each row in one piece.
        target: n x n, likewise.
        onto: whether to add to what is there.

    """
    prefix = PREFIXES[rows.dtype]
    n, k = rows.shape[1], rows.shape[0]
    one, beta = REALS[prefix](1), REALS[prefix](onto)
    SYRK[prefix](
        *_references(LOWER, AS_IT_IS, *_integers(n, k), one),
        *_matrix(rows),
        ctypes.byref(beta),
        *_matrix(target),
    )


def add_product(
    left: NDArray[Any], right: NDArray[Any], target: NDArray[Any], *, onto: bool
) -> None:
    """Write left^T right, or add it to what is there.

    Args:
        left: k x m, each row in one piece.
        right: k x n, likewise.
        target: m x n, likewise.
        onto: whether to add.

    """
    if not target.size:
        return
    prefix = PREFIXES[left.dtype]
    (k, m), n = left.shape, right.shape[1]
    one, beta = REALS[prefix](1), REALS[prefix](onto)
    GEMM[prefix](
        *_references(AS_IT_IS, TRANSPOSED, *_integers(n, m, k), one),
        *_matrix(right),
        *_matrix(left),
        ctypes.byref(beta),
        *_matrix(target),
    )


LOWER, AS_IT_IS, TRANSPOSED = (ctypes.c_char(letter) for letter in (b"L", b"N", b"T"))


def _routine(name: str, arguments: int) -> Callable[..., None]:
    address = get_cython_function_address(MODULE, name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)


def _references(*values: Any) -> list[Any]:
    return [ctypes.byref(value) for value in values]


def _integers(*values: int) -> tuple[ctypes.c_int, ...]:
    return tuple(ctypes.c_int(value) for value in values)


def _matrix(array: NDArray[Any]) -> tuple[Any, Any]:
    """Return where a matrix begins, and the distance of its rows."""
    distance = array.strides[0] // array.itemsize
    return array.ctypes.data, ctypes.byref(ctypes.c_int(max(1, distance)))


SYRK = {prefix: _routine(f"{prefix}syrk", 10) for prefix in REALS}
GEMM = {prefix: _routine(f"{prefix}gemm", 13) for prefix in REALS}
