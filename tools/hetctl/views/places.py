"""Places: where tasks are, with emulated resources marked wherever they are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetctl.output import now
from libtask.messages import ENDED

if TYPE_CHECKING:
    from libtask.client.client import Client
    from libtask.messages import TaskInfo


def emulated_names(client: Client) -> frozenset[str]:
    """Return the names of the resources that are emulated."""
    return frozenset(each.spec.name for each in client.devices() if each.spec.emulated)


def marked(resource: str, emulated: frozenset[str]) -> str:
    """Name a resource, saying so where it is emulated."""
    return f"{resource} (emulated)" if resource in emulated else resource


def place_of(info: TaskInfo, emulated: frozenset[str]) -> str:
    """Where the task is, and where it goes next."""
    here = marked(info.resource, emulated) if info.resource else "-"
    if info.suspended:
        return f"{here} (stopped)"
    if info.destination and info.destination != info.resource:
        return f"{here} → {marked(info.destination, emulated)}"
    return here


def waited(info: TaskInfo) -> float | None:
    """Seconds from submission to the first start; of one that never starts none."""
    if info.started is not None:
        return max(0.0, info.started - info.submitted)
    return None if info.state in ENDED else max(0.0, now() - info.submitted)


def elapsed(info: TaskInfo) -> float | None:
    """Seconds from start to end, or to now."""
    if info.started is None:
        return None
    until = info.finished if info.state in ENDED else now()
    # the time of day may have been put back
    return None if until is None else max(0.0, until - info.started)
