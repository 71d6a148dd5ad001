"""Power iteration on OpenCL devices: enqueues steps, reads the outcome of strips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl

from hetkernels.markov.layout import BLOCK, CHUNK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetkernels.markov.layout import Chain, Scratch, Walk
    from libtask.devices.opencl import OpenCLDevice

PACKAGE = "hetkernels.markov"

COLUMNS = 64
"""Sparse columns that a GPU's work-group computes."""


class OpenCLWalk:
    """Enqueues the steps of a walk that lies on a device; base of both kinds.

    Args:
        device: the open device.
        chain: the matrix on the host; tells sizes and precision only.
        walk: buffers of the state.
        tolerance: L1 change at which the iteration has converged.

    """

    source = ""

    def __init__(
        self, device: OpenCLDevice, chain: Chain, walk: Walk, tolerance: float
    ) -> None:
        self._device = device
        self._chain = chain
        self._walk = walk
        self._tolerance = chain.real.type(tolerance)
        self._n = np.uint32(chain.n)
        self._readings: list[tuple[pyopencl.Event, NDArray[Any], NDArray[Any]]] = []
        self._latest = (np.zeros(2, np.int32), np.zeros(1, chain.real))

    def latest(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return (status, residual) of the last strip whose outcome has arrived."""
        done = pyopencl.command_execution_status.COMPLETE
        while self._readings and (
            self._readings[0][0].command_execution_status == done
        ):
            _, status, residual = self._readings.pop(0)
            self._latest = (status, residual)
        return self._latest

    def steps(self, count: int) -> None:
        """Enqueue `count` steps; those after convergence change nothing."""
        raise NotImplementedError

    def _read(self) -> None:
        """Enqueue reading the outcome, without waiting for it."""
        status, residual = np.zeros(2, np.int32), np.zeros(1, self._chain.real)
        queue, walk = self._device.queue, self._walk
        pyopencl.enqueue_copy(queue, status, walk.status, is_blocking=False)
        event = pyopencl.enqueue_copy(queue, residual, walk.residual, is_blocking=False)
        self._readings.append((event, status, residual))

    def _kernel(self, name: str, *arguments: Any) -> pyopencl.Kernel:
        double = self._chain.real == np.float64
        macros: dict[str, object] = {"REAL": "double" if double else "float"}
        if double:
            macros["DOUBLE"] = 1
        kernel = self._device.kernel(
            PACKAGE,
            self.source,
            name,
            CHUNK=CHUNK,
            BLOCK=BLOCK,
            COLUMNS=COLUMNS,
            **macros,
        )
        kernel.set_args(*arguments)
        return kernel


class GpuWalk(OpenCLWalk):
    """Steps of two or three kernels each."""

    source = "gpu.cl"

    def load(self, arrays: tuple[Any, ...], scratch: Scratch) -> GpuWalk:
        """Bind the matrix and the scratch memory; return self."""
        bind = {"dense": self._dense, "sparse": self._sparse}[self._chain.form]
        blocks = len_blocks(self._chain.n)
        walk = self._walk
        concluding = (scratch.sums, walk.status, walk.residual, np.uint32(blocks))
        conclude = self._kernel("conclude", *concluding, self._tolerance)
        self._stages = [*bind(arrays, scratch), (conclude, (BLOCK,))]
        return self

    def steps(self, count: int) -> None:
        """Enqueue `count` steps; those after convergence change nothing."""
        queue = self._device.queue
        for _ in range(count):
            for kernel, shape in self._stages:
                local = (BLOCK, 1)[: len(shape)]
                pyopencl.enqueue_nd_range_kernel(queue, kernel, shape, local)
        self._read()

    def _dense(self, arrays: tuple[Any, ...], scratch: Scratch) -> list[Any]:
        walk = self._walk
        products = self._kernel(
            "dense_products", *arrays, walk.pair, walk.status, scratch.partial, self._n
        )
        sums = self._kernel("column_sums", walk.pair, walk.status, *scratch, self._n)
        width = len_blocks(self._chain.n) * BLOCK
        chunks = -(-self._chain.n // CHUNK)
        return [(products, (width, chunks)), (sums, (width,))]

    def _sparse(self, arrays: tuple[Any, ...], scratch: Scratch) -> list[Any]:
        walk = self._walk
        columns = self._kernel(
            "sparse_columns", *arrays, walk.pair, walk.status, self._n
        )
        changes = self._kernel("changes", walk.pair, walk.status, scratch.sums, self._n)
        width = len_blocks(self._chain.n) * BLOCK
        groups = -(-self._chain.n // COLUMNS)
        return [(columns, (groups * BLOCK,)), (changes, (width,))]


class FpgaWalk(OpenCLWalk):
    """All steps of a strip in one launch of one work-item."""

    source = "fpga.cl"

    def load(self, arrays: tuple[Any, ...], scratch: Scratch) -> FpgaWalk:
        """Bind the matrix; everything else stays on chip. Return self."""
        del scratch
        self._arrays = arrays
        return self

    def steps(self, count: int) -> None:
        """Enqueue `count` steps; the kernel ends at convergence."""
        name = f"{self._chain.form}_steps"
        loop = (self._n, np.uint32(count), self._tolerance)
        kernel = self._kernel(name, *self._arrays, *self._walk, *loop)
        pyopencl.enqueue_nd_range_kernel(self._device.queue, kernel, (1,), (1,))
        self._read()


def len_blocks(n: int) -> int:
    """Count the blocks of n states."""
    return -(-n // BLOCK)
