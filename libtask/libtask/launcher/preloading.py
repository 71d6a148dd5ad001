"""Imports ahead: what tasks need is imported once, before workers are forked.

The launcher and the fork servers of other interpreters call it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os

PRELOADED = ("numpy", "numba", "pyopencl", "threadpoolctl", "libtask.devices.cpu")


def preload() -> None:
    """Import what tasks need, once for all workers."""
    # OpenBLAS would start threads during its import; each worker sets the number of
    # threads that its device allows.
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for module in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    if before is None:
        del os.environ["OPENBLAS_NUM_THREADS"]
    else:
        os.environ["OPENBLAS_NUM_THREADS"] = before
    # Workers need not collect permanent objects, which would copy their pages.
    gc.collect()
    gc.freeze()
