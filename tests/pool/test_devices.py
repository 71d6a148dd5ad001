"""A device of a node that is lost or drained: what waits for it runs elsewhere, at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pool.private_pool import PATIENCE
from system.private_daemon import eventually

if TYPE_CHECKING:
    from hetpool import Pool
    from pool.private_pool import PrivatePool

pytestmark = pytest.mark.timeout(300)


def on_gpu(seconds: float) -> dict[str, Any]:
    return {"seconds": {"gpu": seconds}, "strips": 40}


def offered(pool: Pool, node: str) -> set[str]:
    """Return the resources that a node offers."""
    (found,) = (each for each in pool.nodes() if each.name == node)
    return {slot.resource for slot in found.slots}


def test_what_waits_for_a_device_that_goes_runs_on_another_node(
    pool: Pool, shared_pool: PrivatePool
) -> None:
    daemon = shared_pool.nodes["n1"].daemon
    assert daemon is not None
    tasks = pool.map("synthetic", *zip(*[({"gpu": 2.0},)] * 6, strict=True))
    eventually(lambda: {t.node for t in tasks} == {"n1", "n2"}, "both", PATIENCE)

    daemon.client.drain("gpu0")
    try:
        eventually(lambda: "gpu0" not in offered(pool, "n1"), "known", PATIENCE)
        assert pool.submit("synthetic", on_gpu(0.1)).result(PATIENCE)["strips"] == 40
        ends = [task.result(PATIENCE) for task in tasks]
        assert len(ends) == len(tasks)
    finally:
        daemon.client.resume("gpu0")

    eventually(lambda: "gpu0" in offered(pool, "n1"), "back", PATIENCE)
