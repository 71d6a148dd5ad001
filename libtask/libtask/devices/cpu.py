"""The CPU: arrays stay in place, and threads are limited to the task's budget.

Several workers share the CPU, each with the threads of one slot. The libraries that
start threads (Numba, BLAS, OpenMP, OpenCV) are limited after their import: this module
imports none of them, so that a worker that never uses Numba does not wait for it.

Numba runs on its `workqueue` layer. Workers are forked, and GNU OpenMP may hang in a
child; its threads also spin between loops, and steal time from the other slots.
TBB would work but is not always installed. `workqueue` comes with Numba, starts its
threads in the worker at first use, and sleeps when idle. Its limit is that only one
Python thread at a time may run parallel Numba code, which holds in a worker.
NUMBA_THREADING_LAYER selects another layer.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from libtask.devices.residents import ResultsOnHost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from libtask.messages import DeviceSpec


class CpuDevice(ResultsOnHost):
    """A number of threads of the CPU.

    The limits last until another budget is set: a worker runs one task at a time and
    opens the device before each.
    """

    pipelined = False
    copies_out = None

    def __init__(self, spec: DeviceSpec) -> None:
        super().__init__()
        self.spec = spec
        self.transfer_in = 0.0
        self.transfer_out = 0.0
        self._limited: set[str] = set()
        _choose_numba_layer()
        self._limit_threads()

    @contextmanager
    def resident(self, *arrays: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
        self._limit_threads()
        yield arrays

    @contextmanager
    def inputs(self, *arrays: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
        self._limit_threads()
        yield arrays

    @contextmanager
    def scratch(self, *arrays: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
        self._limit_threads()
        yield arrays

    def refresh(self) -> None:
        pass  # the arrays are already in place

    def mark(self) -> Callable[[], None]:
        # The first strip may have imported a library that is not yet limited.
        self._limit_threads()
        return _nothing_to_wait_for

    def close(self) -> None:
        pass

    def _limit_threads(self) -> None:
        """Limit the libraries that have been imported since the last call."""
        for library, limit in LIMITS.items():
            if library in sys.modules and library not in self._limited:
                limit(self.spec.threads)
                self._limited.add(library)


def _nothing_to_wait_for() -> None:
    """Return at once: a strip on the CPU is done when its call returns."""


def _choose_numba_layer() -> None:
    os.environ.setdefault("NUMBA_THREADING_LAYER", "workqueue")
    if "numba" in sys.modules:  # it has already read the environment
        import numba

        config: Any = numba.config
        config.THREADING_LAYER = os.environ["NUMBA_THREADING_LAYER"]


def _limit_numba(threads: int) -> None:
    import numba

    # The pool has a thread for each CPU of the process; a budget is a part of it.
    config: Any = numba.config
    numba.set_num_threads(min(threads, config.NUMBA_NUM_THREADS))


def _limit_opencv(threads: int) -> None:
    import cv2

    cv2.setNumThreads(threads)


def _limit_pools(threads: int) -> None:
    import threadpoolctl

    threadpoolctl.threadpool_limits(limits=threads)


def _limit_torch(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


LIMITS: dict[str, Callable[[int], None]] = {
    "numba.np.ufunc.parallel": _limit_numba,
    "cv2": _limit_opencv,
    "torch": _limit_torch,
    "numpy": _limit_pools,
    # These load their own BLAS or OpenMP, which is visible only afterwards.
    "scipy.linalg": _limit_pools,
    "sklearn.utils": _limit_pools,
}
"""Imported module -> function that limits its threads."""
