"""Arrays of the power iteration, and the order of additions all kinds keep to.

Every kind adds in the same order and without fused multiply-add, so a run gives the
same bits wherever it runs, moves, or is cut into strips, and stops at the same step:

- dense: each chunk of `CHUNK` rows is summed by itself, then the chunks in order;
- sparse: a column's entries are summed in order;
- change |y - x|: blocks of `BLOCK` states are folded in halves; the sums of blocks are
  dealt to `BLOCK` sums, which are folded in halves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK = 128
"""Rows of a dense matrix whose products are summed by themselves."""

BLOCK = 256
"""States whose changes are summed by themselves; a power of two."""

VECTOR_BYTES = 64
"""Bytes of the widest vectors and of a cache line."""

Form = Literal["dense", "sparse"]


class Walk(NamedTuple):
    """State of a power iteration, as arrays or as device buffers.

    Attributes:
        pair: 2 x n; after k steps the distribution is row k % 2.
        status: int32; steps done, and 1 once converged (no step changes anything then).
        residual: L1 change of the last step; one element.

    """

    pair: Any
    status: Any
    residual: Any


class Scratch(NamedTuple):
    """Memory between the stages of a step, as arrays or as device buffers.

    Attributes:
        partial: chunks x n; products of a dense matrix, summed over each chunk.
        sums: changes, summed over each block.

    """

    partial: Any
    sums: Any


@dataclass(frozen=True, slots=True)
class Chain:
    """A row-stochastic matrix, ready for `x P`.

    Attributes:
        form: how it is held.
        n: states.
        arrays: dense: the n x n matrix. Sparse: offsets (uint32, n + 1), rows (uint32)
            and values of the columns of P (compressed sparse column).

    """

    form: Form
    n: int
    arrays: tuple[NDArray[Any], ...]

    @property
    def real(self) -> np.dtype[Any]:
        """Precision of the values, and so of the whole iteration."""
        return self.arrays[-1].dtype


def aligned(shape: tuple[int, ...], real: np.dtype[Any]) -> NDArray[Any]:
    """Allocate an array, without values, that begins at a whole vector.

    Loads across the borders of cache lines make a step up to a fifth slower.
    """
    size = math.prod(shape) * real.itemsize
    memory = np.empty(size + VECTOR_BYTES, np.uint8)
    skip = -memory.ctypes.data % VECTOR_BYTES
    array: NDArray[Any] = memory[skip : skip + size].view(real).reshape(shape)
    return array


def start(chain: Chain) -> Walk:
    """Allocate the state of a power iteration that starts from equal probabilities."""
    pair = aligned((2, chain.n), chain.real)
    pair[1] = 0.0
    pair[0] = 1.0 / chain.n
    return Walk(pair, np.zeros(2, np.int32), np.zeros(1, chain.real))


def scratch(chain: Chain) -> Scratch:
    """Allocate what a step needs beside the state; nothing in it outlives the step."""
    chunks = -(-chain.n // CHUNK) if chain.form == "dense" else 1
    blocks = -(-chain.n // BLOCK)
    width = chain.n if chain.form == "dense" else 1
    return Scratch(aligned((chunks, width), chain.real), np.empty(blocks, chain.real))


def distribution(walk: Walk) -> NDArray[np.float64]:
    """Return the probabilities that a walk's host arrays hold; their sum is 1."""
    latest: NDArray[Any] = walk.pair[walk.status[0] % 2]
    exact = latest.astype(np.float64)
    scaled: NDArray[np.float64] = exact / exact.sum()
    return scaled
