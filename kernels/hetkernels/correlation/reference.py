"""Reference: Pearson correlation in float64, plain NumPy, column by column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def correlation(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Correlate the columns of a table; NaN for constant ones."""
    constant = (table == table[0]).all(axis=0)
    centred = table - table.mean(axis=0)
    norms = np.sqrt((centred**2).sum(axis=0))
    norms[constant] = np.nan
    matrix: NDArray[np.float64] = (centred / norms).T @ (centred / norms)
    return matrix
