"""Heat and blur in float64 by their closed forms: exact, and quick on large inputs.

Cosines (insulated edges, mirrored images) and sines (fixed edges) are eigenvectors of
both stencils, so that any number of steps, and any radius, costs two transforms.
Stepping a large grid in plain NumPy, or blurring a large image with SciPy, would take
minutes; the tests compare these to such references (hetkernels.*.reference).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Grid = NDArray[np.float64]


def blur(planes: NDArray[Any], sigma: float, truncate: float) -> Grid:
    """Blur each plane of (planes, rows, columns) as `gaussian_filter(mode="reflect")`."""
    from scipy.fft import dctn, idctn

    down, across = (_response(n, sigma, truncate) for n in planes.shape[1:])
    both = down[:, None] * across[None, :]
    blurred: Grid = np.empty(planes.shape)
    for plane, target in zip(planes, blurred, strict=True):
        waves = dctn(plane.astype(np.float64), norm="ortho")
        target[:] = idctn(waves * both, norm="ortho")
    return blurred


def _response(n: int, sigma: float, truncate: float) -> Grid:
    """Return what a Gaussian, cut off, multiplies each of n cosines by."""
    radius = int(truncate * sigma + 0.5)
    distance = np.arange(1, radius + 1)
    side = np.exp(-0.5 * (distance / sigma) ** 2)
    angles = np.pi * np.arange(n) / n
    weighed = 1.0 + 2.0 * np.cos(np.outer(angles, distance)) @ side
    response: Grid = weighed / (1.0 + 2.0 * side.sum())
    return response


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
