"""The weights of a Gaussian, and the order in which every kind adds them up.

All kinds compute in float32, first down the columns, then along the rows, and add

    w[0] * x[0] + w[1] * (x[-1] + x[1]) + w[2] * (x[-2] + x[2]) + ...

from left to right, without fused multiply-add, so that results are bit-equal on all
of them. The image is mirrored at its edges, the outermost pixel included (d c b a | a b
c d | d c b a), as often as the radius takes. Integer images are rounded to the nearest
integer, halves to even.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def radius(sigma: float, truncate: float) -> int:
    """Return how many pixels on each side count; the rule of scipy.ndimage."""
    return int(truncate * sigma + 0.5)


def half_weights(sigma: float, truncate: float) -> NDArray[np.float32]:
    """Return the weights of the centre and of one side, (radius + 1) float32."""
    reach = radius(sigma, truncate)
    distance = np.arange(reach + 1, dtype=np.float64)
    weights: NDArray[np.float64] = np.exp(-0.5 * (distance / sigma) ** 2)
    weights /= weights[0] + 2.0 * weights[1:].sum()
    return weights.astype(np.float32)
