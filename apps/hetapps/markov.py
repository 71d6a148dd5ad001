"""Markov chains: the steady state of a row-stochastic matrix, by power iteration.

The outer loop is the iteration x <- x P; it ends at convergence. All kinds add in the
same order (hetkernels.markov.layout), so a run gives the same bits on any kind, after
any moves. Against float64 arithmetic at the same step, float32 differs by less than
1e-5 in L1; it is the default as the iteration only reads the matrix, at half the bytes.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from hetapps import chains
from libtask.errors import InputError
from libtask.parameters import Input, Output
from libtask.task import Size, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hetkernels.markov.cpu import CpuWalk
    from hetkernels.markov.layout import Chain, Scratch, Walk
    from hetkernels.markov.opencl import OpenCLWalk
    from libtask.checkpoint import Checkpoint
    from libtask.devices import Device

LOWEST_TOLERANCE = {"float32": 1e-7, "float64": 1e-15}
"""L1 change that rounding alone causes; no iteration gets below it."""

TOP = 5
"""Most probable states that the result lists."""


@dataclass
class Markov(Task):
    """Steady state of a Markov chain by power iteration.

    Attributes:
        input: NPY or NPZ file (dense, or sparse as of scipy.sparse.save_npz) with the
            row-stochastic matrix; empty: generate one.
        output: NPY file for the probabilities (float64); empty: none is written.
        n: states of a generated chain.
        density: part of its transitions that exist; below 0.25 it is held sparse.
        stay: its probability to stay put; slows the convergence down.
        seed: of its random generator.
        tolerance: L1 change of a step at which the iteration has converged.
        iterations: steps at most.
        dtype: precision of the matrix and the iteration, float32 or float64.

    """

    state_names = ("walk",)

    input: Annotated[str, Input] = ""
    output: Annotated[str, Output] = ""
    n: int = 1024
    density: float = 1.0
    stay: float = 0.9
    seed: int = 0
    tolerance: float = 1e-6
    iterations: int = 10_000
    dtype: str = "float32"

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.dtype not in LOWEST_TOLERANCE:
            raise ValueError(f"dtype is {self.dtype!r}; give 'float32' or 'float64'")
        lowest = LOWEST_TOLERANCE[self.dtype]
        if not lowest <= self.tolerance < 1:
            text = f"tolerance is {self.tolerance:g}; {self.dtype} takes"
            raise ValueError(f"{text} {lowest:g} up to 1")
        if not 1 <= self.iterations < 2**31:
            raise ValueError(f"iterations is {self.iterations}; give 1 to 2147483647")
        if self.output and not self.output.endswith(".npy"):
            raise ValueError(f"output is {self.output!r}; its name must end in .npy")
        self._check_generated()

    def _check_generated(self) -> None:
        if not 1 <= self.n < 2**31:
            raise ValueError(f"n is {self.n}; give 1 to 2147483647")
        if not 0 < self.density <= 1:
            raise ValueError(
                f"density is {self.density:g}; give a part above 0, up to 1"
            )
        if not 0 <= self.stay < 1:
            raise ValueError(f"stay is {self.stay:g}; give a probability below 1")

    @classmethod
    def samples(cls, folder: Path) -> Sequence[Task]:
        """Measure dense and sparse chains, for too few steps to converge."""
        sparse = cls(n=20_000, density=0.002, stay=0.99, tolerance=1e-7, iterations=32)
        wanted = ((1024, 32), (2048, 128))
        return [sparse] + [
            cls(n=n, stay=0.99, tolerance=1e-7, iterations=steps) for n, steps in wanted
        ]

    def size(self) -> Size:
        """Size the chain by its stored entries: a step reads each of them once."""
        if self.output and not Path(self.output).absolute().parent.is_dir():
            raise InputError(f"{self.output}: no such folder to write into")
        n, entries, sparse = self._extent()
        real = np.dtype(self.dtype).itemsize
        matrix = entries * (real + 4) + 4 * n if sparse else entries * real
        state = 2 * n * real
        signature = f"{n}/{entries}" if sparse else f"{n}"
        return Size(
            signature=f"{signature}/{self.dtype}",
            work=float(entries) * self.iterations,
            input_bytes=matrix,
            state_bytes=state,
            # sorting a sparse matrix by columns takes a float64 copy, twice
            memory_bytes=matrix + state + (32 * entries if sparse else 64 << 20),
        )

    def _extent(self) -> tuple[int, int, bool]:
        """Return states, stored entries, and whether they are sparse."""
        if not self.input:
            return self.n, *chains.entries_generated(self.n, self.density)
        header = chains.read_header(Path(self.input))
        return header.shape[0], header.entries, header.sparse

    def load(self) -> None:
        """Read or generate the chain; start from equal probabilities."""
        from hetkernels.markov import layout

        real = np.dtype(self.dtype)
        self.chain: Chain = (
            chains.read_chain(Path(self.input), real)
            if self.input
            else chains.generate_chain(self.n, self.density, self.stay, self.seed, real)
        )
        self.walk: Walk = layout.start(self.chain)
        self.scratch: Scratch = layout.scratch(self.chain)

    def total(self) -> int:
        return self.iterations

    def save(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Write the probabilities; list the most probable states."""
        from hetkernels.markov import layout

        steady = layout.distribution(self.walk)
        if self.output:
            try:
                np.save(self.output, steady)
            except OSError as error:
                raise InputError(f"{self.output}: {error.strerror}") from error
        top = np.argsort(-steady, kind="stable")[:TOP]
        return {
            "states": len(steady),
            "iterations": int(self.walk.status[0]),
            "residual": float(self.walk.residual[0]),
            "converged": bool(self.walk.status[1]),
            "output": str(Path(self.output).absolute()) if self.output else None,
            "top": [[int(state), float(steady[state])] for state in top],
        }


@contextmanager
def _held(task: Markov, device: Device) -> Iterator[tuple[Walk, Any, Scratch]]:
    """Hold the state, the matrix and the scratch memory on a device."""
    from hetkernels.markov.layout import Scratch, Walk

    with (
        device.resident(*task.walk) as walk,
        device.inputs(*task.chain.arrays) as arrays,
        device.scratch(*task.scratch) as scratch,
    ):
        yield Walk(*walk), arrays, Scratch(*scratch)


def _advance(
    task: Markov, walker: CpuWalk | OpenCLWalk, checkpoint: Checkpoint
) -> Iterator[None]:
    """Step until converged.

    A device reports a strip late; the steps that it does until then change nothing.
    """
    if task.walk.status[1]:
        checkpoint.end_early()
        return  # it was preempted after it had converged, and before it told
    for strip in checkpoint.strips():
        walker.steps(len(strip))
        yield
        status, residual = walker.latest()
        checkpoint.extra["residual"] = float(residual[0])
        if status[1]:
            checkpoint.end_early()
            return


@Markov.on("cpu")
def markov_cpu(task: Markov, device: Device, checkpoint: Checkpoint) -> Iterator[None]:
    """Iterate with Numba."""
    from hetkernels.markov.cpu import CpuWalk

    with _held(task, device) as (walk, _, scratch):
        walker = CpuWalk(task.chain, walk, scratch, task.tolerance)
        yield from _advance(task, walker, checkpoint)


@Markov.on("gpu")
def markov_gpu(task: Markov, device: Any, checkpoint: Checkpoint) -> Iterator[None]:
    """Iterate with kernels of many work-items."""
    from hetkernels.markov.opencl import GpuWalk

    with _held(task, device) as (walk, arrays, scratch):
        walker = GpuWalk(device, task.chain, walk, task.tolerance)
        yield from _advance(task, walker.load(arrays, scratch), checkpoint)


@Markov.on("fpga")
def markov_fpga(task: Markov, device: Any, checkpoint: Checkpoint) -> Iterator[None]:
    """Iterate with a pipeline of one work-item."""
    from hetkernels.markov.opencl import FpgaWalk

    with _held(task, device) as (walk, arrays, scratch):
        walker = FpgaWalk(device, task.chain, walk, task.tolerance)
        yield from _advance(task, walker.load(arrays, scratch), checkpoint)
