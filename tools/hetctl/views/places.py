"""Places and times of tasks, for listings; emulated resources are always marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetctl.output import now
from libtask.messages import ENDED

if TYPE_CHECKING:
    from libtask.client.client import Client
    from libtask.messages import TaskInfo


def emulated_names(client: Client) -> frozenset[str]:
    """Return the names of the emulated resources."""
    return frozenset(each.spec.name for each in client.devices() if each.spec.emulated)


def marked(resource: str, emulated: frozenset[str]) -> str:
    """Return the name of a resource, with a mark if it is emulated."""
    return f"{resource} (emulated)" if resource in emulated else resource


def place_of(info: TaskInfo, emulated: frozenset[str]) -> str:
    """Return the resource of a task, and its destination."""
    here = marked(info.resource, emulated) if info.resource else "-"
    if info.suspended:
        return f"{here} (stopped)"
    if info.destination and info.destination != info.resource:
        return f"{here} → {marked(info.destination, emulated)}"
    return here


def waited(info: TaskInfo) -> float | None:
    """Return the seconds from submission to the first start; None: it never started."""
    if info.started is not None:
        return max(0.0, info.started - info.submitted)
    return None if info.state in ENDED else max(0.0, now() - info.submitted)


def elapsed(info: TaskInfo) -> float | None:
    """Return the seconds from start to end, or until now."""
    if info.started is None:
        return None
    until = info.finished if info.state in ENDED else now()
    # the clock may have been set back
    return None if until is None else max(0.0, until - info.started)
