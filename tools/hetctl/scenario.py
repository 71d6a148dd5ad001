"""A scenario of what really ran, for `hetsim run` (formats.md section 1).

Every number is measured or configured: what a task took is told where the whole task
ran on one resource; what is not known is left out, and the simulator then takes what
the scheduler expects. Tasks of a type whose times are not known at all are left out.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from libtask.messages import DeviceInfo, Sample, TaskInfo

Measured = dict[tuple[str, str], list[float]]
"""(type, resource) -> seconds of each task that ran there from start to end."""


class ScenarioWriter:
    """Turns tasks, resources and models into a scenario document.

    Attributes:
        unknown: types that were left out, since no execution time of theirs is known.

    """

    def __init__(self, devices: list[DeviceInfo], models: list[Sample]) -> None:
        self._devices = devices
        self._models = {(each.type, each.resource): each.seconds for each in models}
        self.unknown: list[str] = []

    def document(self, tasks: list[TaskInfo]) -> dict[str, Any]:
        """Return the document."""
        ordered = sorted(tasks, key=lambda info: info.id)
        measured = whole_runs(ordered)
        by_type: dict[str, list[TaskInfo]] = {}
        for info in ordered:
            by_type.setdefault(info.type, []).append(info)
        types = [self._type(name, some, measured) for name, some in by_type.items()]
        self.unknown = [each["name"] for each in types if not _runs_anywhere(each)]
        kept = [info for info in ordered if info.type not in self.unknown]
        return {
            "format": "hetsim/scenario-1",
            "resources": [_resource(device) for device in self._devices],
            "types": [each for each in types if _runs_anywhere(each)],
            "tasks": _tasks(kept),
        }

    def _type(
        self, name: str, tasks: list[TaskInfo], measured: Measured
    ) -> dict[str, Any]:
        return {
            "name": name,
            "seconds": self._seconds(name, tasks[0], measured),
            "strips": max(_strips(info) for info in tasks),
            "input_bytes": max(info.input_bytes for info in tasks),
            "state_bytes": max(info.state_bytes for info in tasks),
            "migration_s": _migration_seconds(tasks),
            "overrun": "continue",
        }

    def _seconds(
        self, name: str, example: TaskInfo, measured: Measured
    ) -> dict[str, float | None]:
        """Expected seconds by resource; null where the task cannot run."""
        found: dict[str, float | None] = {}
        for device in self._devices:
            key = (name, device.spec.name)
            if device.spec.kind not in example.kinds:
                found[device.spec.name] = None
            elif key in self._models:
                found[device.spec.name] = self._models[key]
            elif key in measured:
                found[device.spec.name] = fmean(measured[key])
            else:
                found[device.spec.name] = None
        return found


def whole_runs(tasks: list[TaskInfo]) -> Measured:
    """Gather the times of tasks that ran on one resource from start to end."""
    found: Measured = {}
    for info in tasks:
        if info.state == "completed" and info.segments and _unmoved(info):
            seconds = sum(_length(segment) for segment in info.segments)
            found.setdefault((info.type, info.segments[0].resource), []).append(seconds)
    return found


def _runs_anywhere(kind: dict[str, Any]) -> bool:
    return any(seconds is not None for seconds in kind["seconds"].values())


def _unmoved(info: TaskInfo) -> bool:
    return len({segment.resource for segment in info.segments}) == 1


def _length(segment: Any) -> float:
    start: float = segment.start
    finish: float = segment.finish if segment.finish is not None else start
    return max(0.0, finish - start)


def _resource(device: DeviceInfo) -> dict[str, Any]:
    return {
        "name": device.spec.name,
        "kind": device.spec.kind,
        "slots": device.slots,
        "queue_limit": None,
        "busy_watts": device.busy_watts,
        "idle_watts": device.idle_watts,
        "link_bytes_per_s": device.link_bytes_per_s,
        "reconfigure_s": device.reconfigure_s,
        "emulated": device.spec.emulated,
    }


def _strips(info: TaskInfo) -> int:
    return max(1, sum(segment.strips for segment in info.segments))


def _migration_seconds(tasks: list[TaskInfo]) -> float:
    """Time from the end on one resource to the start on the next, without its queue.

    The shortest gap of each task is taken: longer ones hold waiting for a turn.
    """
    gaps: list[float] = []
    for info in tasks:
        own = [
            max(0.0, after.start - before.finish)
            for before, after in pairwise(info.segments)
            if before.finish is not None and before.resource != after.resource
        ]
        gaps += [min(own)] if own else []
    return median(gaps) if gaps else 0.0


def _tasks(kept: list[TaskInfo]) -> list[dict[str, Any]]:
    origin = min((info.submitted for info in kept), default=0.0)
    present = {info.id for info in kept}
    return [_task(info, origin, present) for info in kept]


def _task(info: TaskInfo, origin: float, present: set[int]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": str(info.id),
        "type": info.type,
        "arrival": info.submitted - origin,
        "deadline": None,
        "priority": info.priority,
        "after": [str(task) for task in info.after if task in present],
    }
    for (_, resource), seconds in whole_runs([info]).items():
        document["actual_seconds"] = {resource: seconds[0]}
    return document
