"""Time the blur on this CPU beside OpenCV and SciPy.

All calls blur the same image with the same radius, edges and threads. They take turns,
and medians are compared, so that a busy machine disturbs all alike. OpenCV's
GaussianBlur computes 8-bit images with 8-bit weights: faster, but up to 1.4 levels off
and so another result; its sepFilter2D rounds float32 sums, as ours.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING, Any

import cv2
import numba
import numpy as np
from scipy.ndimage import gaussian_filter

from hetkernels.gaussian_blur.cpu import blur_rows
from hetkernels.gaussian_blur.weights import half_weights, radius

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

SIDE = 4096
SCIPY_SIDE = 1024
"""SciPy takes a part of the image: it is about ten times slower."""
SIGMAS = (1.0, 2.0, 5.0, 10.0)
TYPES = ("uint8", "uint16", "float32")
TRUNCATE = 4.0
ROUNDS = 9
THREADS = len(os.sched_getaffinity(0))


def an_image(dtype: str) -> NDArray[Any]:
    scale = {"uint8": 255, "uint16": 65535}.get(dtype, 1)
    random = np.random.default_rng(0).random((SIDE, SIDE), dtype=np.float32)
    return (random * scale).astype(dtype)


def calls(image: NDArray[Any], sigma: float) -> dict[str, Callable[[], object]]:
    """Name the blurs of `image`; "ours" among them."""
    weights = half_weights(sigma, TRUNCATE)
    out = np.empty_like(image)
    taps = np.concatenate([weights[:0:-1], weights])
    size, border = (len(taps), len(taps)), cv2.BORDER_REFLECT
    part = np.ascontiguousarray(image[:SCIPY_SIDE, :SCIPY_SIDE])
    return {
        "ours": lambda: blur_rows(image[None], out[None], weights, range(len(image))),
        "opencv, sepFilter2D": lambda: cv2.sepFilter2D(
            image, -1, taps, taps, borderType=border
        ),
        "opencv, GaussianBlur": lambda: cv2.GaussianBlur(
            image, size, sigma, borderType=border
        ),
        "scipy, gaussian_filter": lambda: gaussian_filter(
            part, sigma, mode="reflect", truncate=TRUNCATE
        ),
    }


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(dtype: str, sigma: float) -> list[dict[str, Any]]:
    named = calls(an_image(dtype), sigma)
    seconds: dict[str, list[float]] = {name: [] for name in named}
    for _ in range(ROUNDS + 1):
        for name, call in named.items():
            seconds[name].append(timed(call))
    # The first round compiles and fills caches.
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    medians["scipy, gaussian_filter"] *= (SIDE / SCIPY_SIDE) ** 2
    mine = medians.pop("ours")
    return [row(dtype, sigma, mine, other) for other in medians.items()]


def row(
    dtype: str, sigma: float, mine: float, other: tuple[str, float]
) -> dict[str, Any]:
    baseline, theirs = other
    fast = f"ours {SIDE * SIDE / mine / 1e6:.0f} Mpixel/s"
    return {
        "kernel": "gaussian-blur",
        "size": f"{SIDE} x {SIDE} {dtype}, sigma {sigma:g}",
        "ours_s": round(mine, 6),
        "baseline": baseline,
        "baseline_s": round(theirs, 6),
        "ratio": round(theirs / mine, 2),
        "threads": THREADS,
        "note": f"radius {radius(sigma, TRUNCATE)}; {fast}",
    }


def run() -> list[dict[str, Any]]:
    numba.set_num_threads(THREADS)
    cv2.setNumThreads(THREADS)
    return [line for dtype in TYPES for s in SIGMAS for line in compare(dtype, s)]
