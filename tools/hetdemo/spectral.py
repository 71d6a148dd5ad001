"""Many time steps of heat at once, in float64: the closed form of the stencil.

Cosines (insulated edges) and sines (fixed edges) are its eigenvectors, so that any
number of steps costs two transforms; stepping a large grid in plain NumPy
(hetkernels.heat.reference, to which the tests compare this) would take minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Grid = NDArray[np.float64]


def heat_after(
    grid: NDArray[np.floating], alpha: float, *, insulated: bool, steps: int
) -> Grid:
    """Return the grid (rows x columns) after `steps` time steps."""
    now = np.asarray(grid, dtype=np.float64)
    if insulated:
        return _insulated(now, alpha, steps)
    if min(now.shape) < 3:  # noqa: PLR2004  no cell that is not at the edge
        return now.copy()
    return _fixed(now, alpha, steps)


def _insulated(grid: Grid, alpha: float, steps: int) -> Grid:
    from scipy.fft import dctn, idctn

    down, across = (np.cos(np.pi * np.arange(n) / n) for n in grid.shape)
    decay = _decay(down, across, alpha) ** steps
    after: Grid = idctn(dctn(grid, norm="ortho") * decay, norm="ortho")
    return after


def _fixed(grid: Grid, alpha: float, steps: int) -> Grid:
    """Let the inner cells approach the balance with the edges, wave by wave."""
    from scipy.fft import dstn

    inner = grid[1:-1, 1:-1]
    down, across = (np.cos(np.pi * np.arange(1, n + 1) / (n + 1)) for n in inner.shape)
    once = _decay(down, across, alpha)
    after_all = once**steps
    inflow = dstn(_from_edges(grid), type=1, norm="ortho") * (alpha / (1.0 - once))
    waves = dstn(inner, type=1, norm="ortho") * after_all + inflow * (1.0 - after_all)
    after = grid.copy()
    after[1:-1, 1:-1] = dstn(waves, type=1, norm="ortho")  # its own inverse
    return after


def _decay(down: Grid, across: Grid, alpha: float) -> Grid:
    """Return what one step multiplies each wave by, from the cosines of both sides."""
    return 1.0 + alpha * (2.0 * down[:, None] + 2.0 * across[None, :] - 4.0)


def _from_edges(grid: Grid) -> Grid:
    """Return what each inner cell gets from neighbours at the edge."""
    inflow = np.zeros_like(grid[1:-1, 1:-1])
    inflow[0] += grid[0, 1:-1]
    inflow[-1] += grid[-1, 1:-1]
    inflow[:, 0] += grid[1:-1, 0]
    inflow[:, -1] += grid[1:-1, -1]
    return inflow
