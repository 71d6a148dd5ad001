"""How the upper triangle of the correlation matrix is cut into equal iterations.

The matrix is cut into blocks of rows. Block p reaches from the diagonal to the
right edge, so the triangle is folded: iterations treat block p together with block
`blocks - 1 - p`, and all of them take the same time. Long tables are also cut into
chunks of `DEPTH` rows, whose products are added to the matrix in order.
An iteration is one chunk of one pair of blocks, so every cut gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

DEPTH = 1024
"""Table rows in a chunk: enough for BLAS, and few, so that an iteration is short."""

RUN = 256
"""Table rows whose products GPU and FPGA add one after another: float32 loses digits in
long runs. Divides DEPTH; BLAS has runs of its own."""

BLOCK = 512
"""Rows of the matrix in a block: enough for BLAS to come near its full speed."""

ONE_BLOCK = 3072
"""Columns up to which the matrix is one block: BLAS treats it best in one piece."""


class Piece(NamedTuple):
    """A rectangle of iterations: some chunks of some pairs of blocks."""

    first_pair: int
    pairs: int
    first_chunk: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Iterations of one correlation.

    Attributes:
        rows: rows of the table.
        columns: its columns; the matrix is columns x columns.
        real: precision of both.

    """

    rows: int
    columns: int
    real: np.dtype[Any]

    @property
    def block(self) -> int:
        """Count the rows of the matrix in a block."""
        return ONE_BLOCK if self.columns <= ONE_BLOCK else BLOCK

    @property
    def blocks(self) -> int:
        return -(-self.columns // self.block)

    @property
    def pairs(self) -> int:
        return (self.blocks + 1) // 2

    @property
    def chunks(self) -> int:
        return -(-self.rows // DEPTH)

    @property
    def total(self) -> int:
        return self.pairs * self.chunks

    def pair(self, index: int) -> set[int]:
        """Return the blocks of a pair; the middle one stands alone."""
        return {index, self.blocks - 1 - index}

    def pieces(self, strip: range) -> Iterator[Piece]:
        """Cut a strip into at most three rectangles of iterations."""
        start = strip.start
        while start < strip.stop:
            pair, chunk = divmod(start, self.chunks)
            whole = (strip.stop - start) // self.chunks
            if chunk == 0 and whole:
                piece = Piece(pair, whole, 0, self.chunks)
            else:
                left = min(self.chunks - chunk, strip.stop - start)
                piece = Piece(pair, 1, chunk, left)
            yield piece
            start += piece.pairs * piece.chunks
