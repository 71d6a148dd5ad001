"""The blur as SciPy does it in float64, then rounded: obviously right, slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.ndimage import gaussian_filter

if TYPE_CHECKING:
    from numpy.typing import NDArray


def blur_float64(
    planes: NDArray[Any], sigma: float, truncate: float
) -> NDArray[np.float64]:
    """Blur each plane of (planes, rows, columns), without rounding."""
    exact = [
        gaussian_filter(
            plane.astype(np.float64), sigma, mode="reflect", truncate=truncate
        )
        for plane in planes
    ]
    return np.stack(exact)


def blur_reference(planes: NDArray[Any], sigma: float, truncate: float) -> NDArray[Any]:
    """Blur each plane and round to its type: integers to the nearest."""
    exact = blur_float64(planes, sigma, truncate)
    if planes.dtype.kind in "iu":
        exact = np.rint(exact)
    return exact.astype(planes.dtype)
