"""Time of a migration: from the last strip on A to the first strip on B, by bytes moved.

Heat on real OpenCL devices (here emulated ones where the row says so). The aim is
bytes / link bandwidth + 5 ms; the link is what a copy to and from the device was seen
to do in the same run, so the row gives the transfers and what came on top of them.
"""

from __future__ import annotations

import itertools
import statistics
import time
from typing import TYPE_CHECKING, Any

from hetapps.heat import Heat
from libtask.daemon.private import private_daemon

if TYPE_CHECKING:
    from libtask.client.client import Client
    from libtask.client.handles import TaskHandle
    from libtask.messages import Segment

SIDES = (512, 1024, 2048, 4096)
MOVES = 6
PATIENCE_S = 60.0


def run() -> list[dict[str, Any]]:
    """Move a task to and fro between each pair of resources."""
    with private_daemon() as client:
        devices = {device.spec.name: device.spec for device in client.devices()}
        names = list(devices)
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
        rows = []
        for side in SIDES:
            for pair in pairs:
                found = _move(client, side, pair)
                rows.append(
                    {
                        "between": " - ".join(pair),
                        "devices": [devices[name].device or name for name in pair],
                        "emulated": any(devices[name].emulated for name in pair),
                        **found,
                    }
                )
    return rows


def _move(client: Client, side: int, pair: tuple[str, str]) -> dict[str, Any]:
    """Let one long task change places `MOVES` times."""
    task = client.submit(Heat(n=side, steps=10_000_000), resources=list(pair))
    try:
        _await_strips(task, 1)
        for count in range(MOVES):
            here = task.info().resource
            client.migrate(task.id, pair[0] if here == pair[1] else pair[1])
            _await_strips(task, count + 2)
        segments = task.info().segments
    finally:
        task.cancel()
        task.wait(60)
    gaps = [_gap(a, b) for a, b in itertools.pairwise(segments)]
    copies = [a.transfer_out + b.transfer_in for a, b in itertools.pairwise(segments)]
    over = [gap - copy for gap, copy in zip(gaps, copies, strict=True)]
    return {
        "state_bytes": 4 * side * side,
        "median_ms": round(1e3 * statistics.median(gaps), 2),
        "transfers_ms": round(1e3 * statistics.median(copies), 2),
        "besides_ms": round(1e3 * statistics.median(over), 2),
        "worst_besides_ms": round(1e3 * max(over), 2),
    }


def _gap(before: Segment, after: Segment) -> float:
    if before.computed is None or after.computing is None:
        raise RuntimeError(f"a segment without strips: {before} {after}")
    return after.computing - before.computed


def _await_strips(task: TaskHandle, segments: int) -> None:
    """Wait until the task has computed in its `segments`-th segment."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        info = task.info()
        if len(info.segments) >= segments and info.segments[-1].computing is not None:
            return
        time.sleep(0.02)
    raise TimeoutError(f"task {task.id} does not compute: {task.info()}")
