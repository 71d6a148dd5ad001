"""A real daemon for the time of a block, with null devices named as in a scenario.

It is started as a user would start it, as a process of its own, and spoken to through
`libtask` only: nothing of its shell is imported here.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tomli_w

from libtask.daemon.private import private_daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsim.scenario import ResourceModel
    from libtask.client.client import Client

START_S = 30.0
"""Seconds that the daemon may take to serve; it asks no drivers."""


@contextmanager
def real_node(resources: list[ResourceModel], migration_s: float) -> Iterator[Client]:
    """Run a daemon with these resources, in null devices; its tasks end with the block.

    Args:
        resources: those of a scenario; a processor that is shared cannot be had, since
            tasks that only wait do not slow each other down.
        migration_s: the expected time of a move without copying, for its scheduler.

    Raises:
        DaemonUnreachableError: it does not start; ends with what it said last.

    """
    config = {
        "migration_ms": 1e3 * migration_s,
        "resource": [_table(resource) for resource in resources],
    }
    with private_daemon(tomli_w.dumps(config), patience=START_S) as client:
        yield client


def _table(resource: ResourceModel) -> dict[str, Any]:
    table = {
        "name": resource.name,
        "kind": resource.kind,
        "driver": "null",
        "slots": resource.slots,
        "emulated": True,
        "busy_watts": resource.busy_watts,
        "idle_watts": resource.idle_watts,
        "link_bytes_per_s": resource.link_bytes_per_s,
    }
    return {key: value for key, value in table.items() if value is not None}
