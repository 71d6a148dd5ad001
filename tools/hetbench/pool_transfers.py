"""Transfers between nodes: a task that moves, files through capped links.

Parts of the bench `pool`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hetbench.pool_machines import LINK, BenchPool

if TYPE_CHECKING:
    from collections.abc import Iterator

FAST = 4 * LINK
SHARES = {"n1": 0.35, "n2": 0.7}
"""Caps by node, as shares of the link."""
PLANNED_SHARE = 0.95
"""Share of a link's rate at which a pool caps its files, by default."""
FILE_BYTES = 68 << 20
"""Larger than what Dask carries: the node pulls it, within its cap."""


def moves() -> Iterator[dict[str, Any]]:
    """Move a task that computes; compare its result with that of one which stayed."""
    with BenchPool(2, FAST, cpu="cpu") as pool:
        pool.start_pool()
        task = {"app": "heat", "params": {"n": 1024, "steps": 4000}, "on": "cpu0"}
        got = pool.client(["-m", "hetbench.pool_client", "move"], pool.request(**task))
    through_link = got["bytes"] / (0.93 * FAST)
    yield {
        "size": "a heat task of 1024 x 1024 moved between nodes, 100 Mbit/s",
        "load": os.getloadavg()[0],
        "equal": got["equal"],
        "moved_at": got["moved_at"],
        "bytes": got["bytes"],
        "idle_s": got["idle_s"],
        "bytes_over_goodput_s": through_link,
        "idle_beyond_transfer_s": got["idle_s"] - through_link,
    }


def paces() -> Iterator[dict[str, Any]]:
    """Send a file to each of two nodes whose links are capped."""
    targets = {name: share * FAST for name, share in SHARES.items()}
    planned = {name: target / PLANNED_SHARE for name, target in targets.items()}
    with BenchPool(len(SHARES), FAST, planned=planned) as pool:
        pool.start_pool()
        request = pool.request(size=FILE_BYTES)
        got = pool.client(["-m", "hetbench.pool_client", "pace"], request)
    for name, rate in got.items():
        yield {
            "size": f"{FILE_BYTES >> 20} MiB at {SHARES[name]:.0%} of 100 Mbit/s",
            "load": os.getloadavg()[0],
            "target": targets[name],
            "got_over_target": rate / targets[name],
        }
