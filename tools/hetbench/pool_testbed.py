"""The testbed of zhao-2018-tpds (section 5.1), live on network namespaces.

A part of the bench `pool`. Two nodes behind links of 500 and 1000 Mb/s, at a fortieth of that
and of the data, with an FPGA each that waits (null driver). The paper's four requesters, whose
links never are the limit, are one gateway.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hetbench.pool_machines import BenchPool

if TYPE_CHECKING:
    from collections.abc import Iterator

SCALE = 1 / 40
"""Of rates and data: transfers take as long as in the paper."""
LINKS = (500e6 / 8 * SCALE, 1000e6 / 8 * SCALE)
"""Rates into the nodes, bytes a second."""
WORDS = [
    {"seconds": {"fpga": 0.0}, "size": int(megabits * 1e6 / 8 * SCALE), "on": "fpga0"}
    for megabits in (2400, 2400, 2400, 7200)
]
"""Word counting (Fig. 2a): 300, 300, 300 and 900 MB, next to nothing to compute."""
NETWORKS = [
    {"seconds": {"fpga": seconds}, "size": 0, "on": "fpga0"} for seconds in (2, 2, 2, 6)
]
"""Neural networks (Fig. 2b), at a third of the time: nothing to send."""
FIGURES = {
    "word counting (Fig. 2a)": (WORDS, {"sjf": 12.0, "ljf": 14.4, "nim": 9.6}),
    "neural networks (Fig. 2b)": (NETWORKS, {"sjf": 8.0, "ljf": 6.0, "cim": 6.0}),
}
"""Jobs, and makespans of the paper's model by planner, seconds."""


def testbeds() -> Iterator[dict[str, Any]]:
    """Run both figures under each planner; every one has a pool of its own."""
    for planner in dict.fromkeys(p for _, by in FIGURES.values() for p in by):
        with BenchPool(2, LINKS, planner=planner) as pool:
            pool.start_pool()
            for name, (jobs, modelled) in FIGURES.items():
                if planner in modelled:
                    yield _row(pool, f"{name}, {planner}", jobs, modelled[planner])


def _row(
    pool: BenchPool, size: str, jobs: list[dict[str, Any]], modelled: float
) -> dict[str, Any]:
    request = pool.request(jobs=jobs, planner=pool.settings["planner"])
    got = pool.client(["-m", "hetbench.pool_client", "pool"], request)
    return {
        "size": size,
        "load": os.getloadavg()[0],
        "seconds": got["seconds"],
        "planned_s": got["planned"],
        "model_s": modelled,
    }
