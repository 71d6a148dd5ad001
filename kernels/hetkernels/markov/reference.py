"""Reference: power iteration and the exact steady state, float64, plain NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def power_iteration(matrix: Any, steps: int) -> NDArray[np.float64]:
    """Apply `steps` steps x P to equal probabilities; dense or scipy.sparse matrix."""
    n = matrix.shape[0]
    x = np.full(n, 1.0 / n)
    for _ in range(steps):
        x = matrix.T @ x
    scaled: NDArray[np.float64] = x / x.sum()
    return scaled


def steady_state(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve x P = x, sum(x) = 1 directly; the chain must have one steady state."""
    n = matrix.shape[0]
    system = np.vstack([matrix.T - np.eye(n), np.ones(n)])
    right = np.append(np.zeros(n), 1.0)
    solution: NDArray[np.float64] = np.linalg.lstsq(system, right)[0]
    return solution
