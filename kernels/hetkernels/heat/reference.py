"""The heat stencil in float64, one whole-grid step at a time: obviously right, slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def heat_reference(
    grid: NDArray[np.floating], alpha: float, *, insulated: bool, steps: int
) -> NDArray[np.float64]:
    """Return the grid (rows x columns) after `steps` time steps."""
    now = np.asarray(grid, dtype=np.float64)
    for _ in range(steps):
        padded = np.pad(now, 1, mode="edge")
        around = (padded[:-2, 1:-1] + padded[2:, 1:-1]) + (
            padded[1:-1, :-2] + padded[1:-1, 2:]
        )
        after = now + alpha * (around - 4.0 * now)
        now = after if insulated else _with_edges_of(now, after)
    return now


def _with_edges_of(
    before: NDArray[np.float64], after: NDArray[np.float64]
) -> NDArray[np.float64]:
    kept = before.copy()
    kept[1:-1, 1:-1] = after[1:-1, 1:-1]
    return kept
