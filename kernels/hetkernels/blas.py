"""BLAS on parts of matrices, in place: what NumPy calls only for whole ones.

NumPy's wheels contain an OpenBLAS that is newer than the one in SciPy's, and threads of two of
them wait for each other. Other builds of NumPy do not say which BLAS they have; with these it is
SciPy's, whose addresses are offered to compiled code (scipy.linalg.cython_blas). Arrays are in C
order here; BLAS sees them transposed.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numba.extending import get_cython_function_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

NUMPYS = "numpy._core._multiarray_umath"
"""The module that the BLAS of NumPy's wheels is linked to."""
SCIPYS = "scipy.linalg.cython_blas"
PREFIXES = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
REALS = {"s": ctypes.c_float, "d": ctypes.c_double}


LOWER, AS_IT_IS, TRANSPOSED = (ctypes.c_char(letter) for letter in (b"L", b"N", b"T"))


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
    BLAS.syrk[prefix](
        *_references(LOWER, AS_IT_IS, *BLAS.integers(n, k), one),
        *BLAS.matrix(rows),
        ctypes.byref(beta),
        *BLAS.matrix(target),
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
    BLAS.gemm[prefix](
        *_references(AS_IT_IS, TRANSPOSED, *BLAS.integers(n, m, k), one),
        *BLAS.matrix(right),
        *BLAS.matrix(left),
        ctypes.byref(beta),
        *BLAS.matrix(target),
    )


def _references(*values: Any) -> list[Any]:
    return [ctypes.byref(value) for value in values]


class Blas:
    """The routines of a BLAS, by precision.

    Args:
        numpys: the library of NumPy's wheels; None: SciPy's is used.

    """

    def __init__(self, numpys: ctypes.CDLL | None) -> None:
        self._numpys = numpys
        self._integer = ctypes.c_int if numpys is None else ctypes.c_int64
        self.syrk = {prefix: self._routine(f"{prefix}syrk", 10) for prefix in REALS}
        self.gemm = {prefix: self._routine(f"{prefix}gemm", 13) for prefix in REALS}

    def _routine(self, name: str, arguments: int) -> Callable[..., None]:
        form = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)
        if self._numpys is not None:
            return form((in_wheels(name), self._numpys))
        return form(get_cython_function_address(SCIPYS, name))

    def integers(self, *values: int) -> tuple[Any, ...]:
        """Return integers as the routines take them."""
        return tuple(self._integer(value) for value in values)

    def matrix(self, array: NDArray[Any]) -> tuple[Any, Any]:
        """Return where a matrix begins, and the distance of its rows."""
        distance = array.strides[0] // array.itemsize
        return array.ctypes.data, ctypes.byref(self._integer(max(1, distance)))


def in_wheels(routine: str) -> str:
    """Return the name of a routine in the library of NumPy's wheels."""
    return f"scipy_{routine}_64_"


def blas_of_numpy(module: str = NUMPYS) -> ctypes.CDLL | None:
    """Load the library of NumPy's wheels; None: this NumPy is not from a wheel."""
    try:
        library = ctypes.CDLL(importlib.import_module(module).__file__ or "")
        for prefix in REALS:
            for routine in ("syrk", "gemm"):
                getattr(library, in_wheels(prefix + routine))
    except (ImportError, OSError, AttributeError):
        return None
    return library


BLAS = Blas(blas_of_numpy())
