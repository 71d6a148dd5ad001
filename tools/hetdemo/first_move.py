"""The first thing that the demo shows: a running task moves, as `hetctl migrate` orders it.

It comes before the applications are measured, so that it is seen within seconds.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hetapps.heat import Heat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hetdemo.progress import Names
    from libtask.client.client import Client
    from libtask.messages import DeviceInfo, TaskInfo

SIZE = 512
STEPS = 10_000_000
"""More than any processor computes meanwhile: the task is cancelled once it has moved."""
ORDER = ("gpu", "fpga", "cpu")
"""Kinds, those first whose kernels are compiled fastest at first use."""
STRIPS = 5
"""Strips to wait for on each resource."""
PATIENCE_S = 60.0
LOOK_S = 0.05


def route(devices: Sequence[DeviceInfo]) -> list[str]:
    """Return the two resources between which the task moves; fewer: there are not two."""
    able = [each.spec for each in devices if each.spec.kind in Heat.implementations]
    ordered = sorted(able, key=lambda spec: ORDER.index(spec.kind))
    return [spec.name for spec in ordered[:2]]


def first_move(
    client: Client,
    devices: Sequence[DeviceInfo],
    names: Names,
    say: Callable[[str], None],
) -> None:
    """Run a task, move it in the middle, and cancel it once it computes there.

    Args:
        client: connected to the demo's daemon.
        devices: the resources in use.
        names: says what resources are called.
        say: prints a line.

    """
    places = route(devices)
    if len(places) < 2:  # noqa: PLR2004  a move needs two
        return
    here, there = places
    began = time.monotonic()
    task = client.submit(Heat(n=SIZE, steps=STEPS), name="first-move", resources=[here])
    info = _await_strips(client, task.id, here)
    if info is not None:
        say(f"  heat computes on {names(here)}")
        client.migrate(task.id, there)
        info = _await_strips(client, task.id, there)
    client.cancel(task.id, reason="it has moved")
    passed = f"{time.monotonic() - began:.1f} s after its submission"
    if info is None:
        say(f"  it has not moved {passed}; the demo goes on")
    else:
        strips = [segment.strips for segment in info.segments]
        say(
            f"  it moved to {names(there)} after {strips[0]} strips, {passed}; cancelled"
        )


def _await_strips(client: Client, task: int, resource: str) -> TaskInfo | None:
    """Wait until a task computes on a resource; None: it does not in time."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        info = client.show(task)
        if any(e.resource == resource and e.strips >= STRIPS for e in info.segments):
            return info
        time.sleep(LOOK_S)
    return None
