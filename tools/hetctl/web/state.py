"""The page's data: the node as one JSON document, read again at each update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetctl.export.lanes import laid_out, moves
from hetctl.output import now, task_document
from hetctl.views.rates import Rates
from libtask.client.client import Selection

if TYPE_CHECKING:
    from hetctl.export.lanes import Bar
    from libtask.client.client import Client
    from libtask.messages import DeviceInfo, TaskInfo

NEWEST = 400
"""Number of newest tasks on the page; it also shows all tasks on a resource."""
WINDOW_S = 600.0
"""Seconds that the chart covers."""


class State:
    """Describes the node; it keeps the last reading, because rates need two."""

    def __init__(self) -> None:
        self._rates = Rates()

    def read(self, client: Client) -> dict[str, Any]:
        """Read the node; return its document.

        Raises:
            HetError: the daemon does not answer.

        """
        at = now()
        status, devices = client.status(), client.devices()
        self._rates.read(devices)
        tasks = _tasks(client, devices)
        emulated = frozenset(d.spec.name for d in devices if d.spec.emulated)
        return {
            "now": at,
            "version": status.version,
            "policy": status.policy,
            "counts": status.tasks,
            "migrations": status.migrations,
            "resources": [self._resource(each) for each in devices],
            "chart": _chart(tasks, devices, at),
            "tasks": [
                task_document(info, emulated) | {"segments": []}
                for info in reversed(tasks)
            ],
        }

    def _resource(self, device: DeviceInfo) -> dict[str, Any]:
        rate = self._rates.of(device.spec.name)
        return {
            "name": device.spec.name,
            "kind": device.spec.kind,
            "emulated": device.spec.emulated,
            "state": device.state,
            "slots": device.slots,
            "running": device.running,
            "queued": device.queued,
            "watts": rate.watts,
            "measured": device.measured,
            "used": rate.used,
        }


def _tasks(client: Client, devices: list[DeviceInfo]) -> list[TaskInfo]:
    """Return the tasks to show, by id."""
    newest = client.tasks(Selection(detail=True, limit=NEWEST))
    known = {info.id: info for info in newest}
    older = {task for each in devices for task in each.running} - known.keys()
    if older:
        ids = tuple(older)
        found = client.tasks(Selection(ids=ids, detail=True, limit=len(ids)))
        known.update({info.id: info for info in found})
    return [known[task] for task in sorted(known)]


def _chart(
    tasks: list[TaskInfo], devices: list[DeviceInfo], at: float
) -> dict[str, Any]:
    """Return the chart of the last minutes; times are negative seconds relative to `at`."""
    lanes, bars = laid_out(tasks, devices, at)
    seen = [each for each in bars if each.finish > at - WINDOW_S]
    index = {id(each): number for number, each in enumerate(seen)}
    moved = [
        (index[id(one)], index[id(other)])
        for one, other in moves(bars)
        if id(one) in index and id(other) in index
    ]
    return {
        "window": WINDOW_S,
        "lanes": [lane.label.replace("\n", " ") for lane in lanes],
        "bars": [_bar(each, at) for each in seen],
        "moves": moved,
    }


def _bar(each: Bar, at: float) -> dict[str, Any]:
    return {
        "task": each.task.id,
        "app": each.task.app,
        "type": each.task.type,
        "lane": each.lane,
        "start": each.start - at,
        "finish": each.finish - at,
        "runs": each.segment.finish is None,
        "failed": each.segment.failed_attempt,
    }
