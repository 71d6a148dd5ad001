"""Times a step of the power iteration beside the libraries' matrix-vector product.

Our step also sums the L1 change and checks convergence; the libraries' product does
not. Both take turns, so that a busy machine disturbs both alike.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from hetapps.chains import generate_chain
from hetbench.machine import await_quiet
from hetkernels.markov.cpu import CpuWalk
from hetkernels.markov.layout import scratch, start
from libtask.devices import open_device
from libtask.messages import DeviceSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetkernels.markov.layout import Chain

ROUNDS = 7
THREADS = len(os.sched_getaffinity(0))
ROUND_SECONDS = 0.25
WARM_SECONDS = 0.1

NEVER = -1.0
"""A tolerance that no change reaches."""

CHAINS = [
    (1000, 1.0, "float32"),
    (4096, 1.0, "float32"),
    (8192, 1.0, "float32"),
    (4096, 1.0, "float64"),
    (100_000, 1e-4, "float32"),
    (1_000_000, 8e-6, "float32"),
]


def seconds_per_call(call: Callable[[], Any]) -> float:
    """Call for a while, after a while that does not count; return the mean time."""
    await_quiet()
    warm = time.perf_counter() + WARM_SECONDS
    while time.perf_counter() < warm:
        call()
    began = time.perf_counter()
    calls = 0
    while time.perf_counter() - began < ROUND_SECONDS:
        call()
        calls += 1
    return (time.perf_counter() - began) / calls


def baseline_product(chain: Chain) -> tuple[str, Callable[[], Any]]:
    """Return the fastest library call for x P in the same precision."""
    x = np.full(chain.n, 1.0 / chain.n, chain.real)
    if chain.form == "dense":
        matrix = chain.arrays[0]
        return "numpy x @ P (OpenBLAS gemv)", lambda: x @ matrix
    offsets, rows, values = (array.copy() for array in chain.arrays)
    parts = (values, rows.astype(np.int32), offsets.astype(np.int32))
    by_columns = scipy.sparse.csr_array(parts, shape=(chain.n, chain.n))
    return "scipy csr @ x", lambda: by_columns @ x


def measure(n: int, density: float, dtype: str) -> dict[str, Any]:
    chain = generate_chain(n, density, 0.5, 0, np.dtype(dtype))
    walker = CpuWalk(chain, start(chain), scratch(chain), tolerance=NEVER)
    baseline, product = baseline_product(chain)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(seconds_per_call(lambda: walker.steps(1)))
        theirs.append(seconds_per_call(product))
    ours_s, baseline_s = statistics.median(ours), statistics.median(theirs)
    return {
        "kernel": f"markov-{chain.form}",
        "size": f"{n} states, {chain.arrays[-1].size} entries, {dtype}",
        "ours_s": ours_s,
        "baseline": baseline,
        "baseline_s": baseline_s,
        "ratio": baseline_s / ours_s,
        "threads": THREADS,
        "note": "one step; ours includes the convergence check",
    }


def run() -> list[dict[str, Any]]:
    device = open_device(DeviceSpec(name="cpu", kind="cpu", threads=THREADS))
    device.mark()()
    return [measure(*chain) for chain in CHAINS]
