"""The plate: the arguments of a heat kernel other than the grid.

Every kind computes, in float32 and in exactly this order, without fused
multiply-add, so that results are bit-equal on all of them:

    u + alpha * (((up + down) + (left + right)) - 4 * u)

Fixed edges (Dirichlet) keep their first values. Insulated edges (Neumann) see the
cell itself beyond the edge: no heat flows through it, and the sum is conserved.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plate:
    """A plate of `rows` x `columns` cells.

    Attributes:
        rows: cells down.
        columns: cells across.
        alpha: diffusivity * time step / cell size squared; stable up to 0.25.
        insulated: whether the edges are insulated; else they keep their values.

    """

    rows: int
    columns: int
    alpha: float
    insulated: bool


def passes(steps: int, deepest: int) -> list[int]:
    """Split `steps` into an even number of passes of at most `deepest` steps each.

    `deepest` is at least 2. A pass reads one buffer and writes the other; an even
    number of them leaves the result where the grid was. A single step cannot be
    split: the caller copies.
    """
    if steps == 1:
        return [1]
    count = -(-steps // deepest)
    count += count % 2
    return [steps // count + (index < steps % count) for index in range(count)]
