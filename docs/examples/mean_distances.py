"""Estimate mean distances of random points, in joblib's loop: the backend is hetd."""

from __future__ import annotations

import joblib
import numpy as np

import libtask.joblib


def mean_distance(seed: int, points: int = 10_000) -> float:
    """Return the mean distance of pairs of random points of the unit square."""
    pairs = np.random.default_rng(seed).random((points, 2, 2))
    return float(np.hypot(*(pairs[:, 0] - pairs[:, 1]).T).mean())


libtask.joblib.register()
with joblib.parallel_config(backend="hetd"):
    found = joblib.Parallel(n_jobs=-1)(
        joblib.delayed(mean_distance)(seed) for seed in range(8)
    )
print(f"{np.mean(found):.3f}")
