"""A scenario of what really ran, for `hetsim run` (formats.md section 1), and its bound.

All numbers but one are measured or configured. The inferred one is the time that a task
which moved would have taken in whole on one resource: its segments took some multiple of
their expected times, and the rest is assumed to take the same multiple. Unknown values
are left out, and the simulator then takes what the scheduler expects. Tasks of a type
whose times are not known at all are left out.
"""

from __future__ import annotations

import subprocess
import sys
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import msgspec

from hetctl.export.contention import jobs_of, known_type
from libtask.errors import HetError
from libtask.messages import ENDED, counted, migrations

if TYPE_CHECKING:
    from hetctl.export.contention import NodeContention
    from libtask.client.client import Client
    from libtask.messages import DeviceInfo, PolicyInfo, Sample, Segment, TaskInfo


REPORT_S = 0.1
"""Least seconds between two reports of a worker's progress."""

Measured = dict[tuple[str, str], list[float]]
"""(type, resource) -> seconds of each task that ran there from start to end."""


class ScenarioWriter:
    """Turns tasks, resources and models into a scenario document.

    Args:
        devices: the resources of the node.
        models: the times that the scheduler expects.
        policy: the policy in force.
        contention: what the resources share: the times are then those expected alone.
            None: the times are those measured, and nothing is shared.

    Attributes:
        unknown: types that were left out because no execution time is known.

    """

    def __init__(
        self,
        devices: list[DeviceInfo],
        models: list[Sample],
        policy: PolicyInfo,
        contention: NodeContention | None = None,
    ) -> None:
        self._contention = contention
        self._devices = devices
        self._links = {each.spec.name: each.link_bytes_per_s for each in devices}
        self._policy = policy
        self._models = {(each.type, each.resource): each.seconds for each in models}
        self.unknown: list[str] = []

    def document(self, tasks: list[TaskInfo]) -> dict[str, Any]:
        """Return the document."""
        recorded = sorted(tasks, key=lambda info: info.id)
        ordered = named_by_expectation(named_by_user(recorded))
        measured = whole_runs(ordered)
        by_type: dict[str, list[TaskInfo]] = {}
        for info in ordered:
            by_type.setdefault(info.type, []).append(info)
        types = [self._type(name, some, measured) for name, some in by_type.items()]
        self.unknown = [each["name"] for each in types if not _runs_anywhere(each)]
        kept = [info for info in ordered if info.type not in self.unknown]
        expected = {each["name"]: each["seconds"] for each in types}
        document = {
            "format": "hetsim/scenario-1",
            "policy": self._policy.name,
            "policy_parameters": self._policy.parameters,
            "measured_makespan": measured_makespan(kept),
            "report_s": REPORT_S,
            "resources": [_resource(device) for device in self._devices],
            "types": [each for each in types if _runs_anywhere(each)],
            "tasks": _tasks(kept, expected),
        }
        if self._contention is not None:
            _add_passed_data(document, kept)
            pairs = zip(ordered, recorded, strict=True)
            names = {named.type: known_type(info) for named, info in pairs}
            _add_contention(document, names, self._contention)
        return document

    def _type(
        self, name: str, tasks: list[TaskInfo], measured: Measured
    ) -> dict[str, Any]:
        return {
            "name": name,
            "seconds": self._seconds(name, tasks[0], measured),
            "spread": tasks[0].spread,
            "strips": max(_strips(info) for info in tasks),
            "input_bytes": max(info.input_bytes for info in tasks),
            "state_bytes": max(info.state_bytes for info in tasks),
            "migration_s": self._migration_seconds(tasks),
            "overrun": "continue",
        }

    def _seconds(
        self, name: str, example: TaskInfo, measured: Measured
    ) -> dict[str, float | None]:
        """Return the expected seconds by resource; None: the task cannot run there."""
        found: dict[str, float | None] = {}
        for device in self._devices:
            key = (name, device.spec.name)
            if example.expected or device.spec.kind not in example.kinds:
                found[device.spec.name] = example.expected.get(device.spec.name)
            elif key in self._models:
                found[device.spec.name] = self._models[key]
            elif key in measured:
                found[device.spec.name] = fmean(measured[key])
            else:
                found[device.spec.name] = None
        return found

    def _migration_seconds(self, tasks: list[TaskInfo]) -> float:
        """Return the median time of a move, without copies over the configured links."""
        costs = [
            max(
                0.0,
                _seconds_to_move(before, after) - self._copying(info, before, after),
            )
            for info in tasks
            for before, after in _moves(info)
            if before.finish is not None
        ]
        return median(costs) if costs else 0.0

    def _copying(self, info: TaskInfo, before: Segment, after: Segment) -> float:
        """Return the seconds that copying the state takes over the configured links."""
        rates = [self._links.get(each.resource) for each in (before, after)]
        return sum(info.state_bytes / rate for rate in rates if rate)


def named_by_user(tasks: list[TaskInfo]) -> list[TaskInfo]:
    """Give tasks of several users' own programs separate types where these have one name."""
    known: dict[str, set[str]] = {}
    for info in tasks:
        known.setdefault(info.type, set()).add(known_type(info))
    return [
        info
        if len(known[info.type]) == 1
        else msgspec.structs.replace(info, type=known_type(info))
        for info in tasks
    ]


def named_by_expectation(tasks: list[TaskInfo]) -> list[TaskInfo]:
    """Give tasks of one type with different expected times separate types.

    They differ in the amount of work, or in the resources that they may use.
    """
    variants: dict[str, list[dict[str, float]]] = {}
    renamed = []
    for info in tasks:
        known = variants.setdefault(info.type, [])
        if info.expected not in known:
            known.append(info.expected)
        number = known.index(info.expected)
        name = f"{info.type} #{number + 1}" if number else info.type
        renamed.append(msgspec.structs.replace(info, type=name))
    return renamed


def measured_makespan(tasks: list[TaskInfo]) -> float | None:
    """Return the seconds from first submission to last end; None: some have not ended."""
    ends = [segment.finish for info in tasks for segment in info.segments]
    finished = [end for end in ends if end is not None]
    going_on = any(info.state not in ENDED for info in tasks)
    if not ends or going_on or len(finished) < len(ends):
        return None
    return max(finished) - min(info.submitted for info in tasks)


def _moves(info: TaskInfo) -> list[tuple[Segment, Segment]]:
    pairs = migrations(info.segments)
    return [(info.segments[before], info.segments[after]) for before, after in pairs]


def _seconds_to_move(before: Segment, after: Segment) -> float:
    """Return the seconds between the last strip and the next one, without queueing.

    Without the worker's times, it is the gap between the segments.
    """
    if before.computed is None or before.finish is None:
        return max(0.0, after.start - (before.finish or after.start))
    leaving = before.finish - before.computed
    arriving = _first_strip(after) - after.start
    return max(0.0, leaving) + max(0.0, arriving)


def whole_runs(tasks: list[TaskInfo]) -> Measured:
    """Collect the times of tasks that ran on one resource from start to end."""
    found: Measured = {}
    for info in tasks:
        kept = counted(info.segments)
        if info.state == "completed" and len({each.resource for each in kept}) == 1:
            seconds = sum(_length(segment) for segment in kept)
            found.setdefault((info.type, kept[0].resource), []).append(seconds)
    return found


def _runs_anywhere(kind: dict[str, Any]) -> bool:
    return any(seconds is not None for seconds in kind["seconds"].values())


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
        "sharing": "processor" if device.shared else None,
        "emulated": device.spec.emulated,
    }


def _add_contention(
    document: dict[str, Any], names: dict[str, str], contention: NodeContention
) -> None:
    """Add what is shared and the loads of types, and leave out measured times.

    Args:
        document: the scenario.
        names: type there -> type of the tasks.
        contention: of the node.

    """
    document["shared"] = contention.document()
    for resource in document["resources"]:
        uses = contention.uses(resource["name"])
        if uses:
            # the cores are a shared resource: their slots need no sharing of their own
            resource.update({"uses": uses, "sharing": None})
    for kind in document["types"]:
        kind.update(contention.load(names[kind["name"]]))
    for task in document["tasks"]:
        task.pop("actual_seconds", None)


def _add_passed_data(document: dict[str, Any], kept: list[TaskInfo]) -> None:
    """Add which results tasks read; a type's output is the largest that was read of it."""
    present = {info.id: info.type for info in kept}
    output = dict.fromkeys(present.values(), 0)
    for info, task in zip(kept, document["tasks"], strict=True):
        read = [each for each in info.inputs if each.task in present]
        task["inputs"] = [{"from": str(x.task), "bytes": x.bytes} for x in read]
        for each in read:
            source = present[each.task]
            output[source] = max(output[source], each.bytes)
    for kind in document["types"]:
        kind["output_bytes"] = output[kind["name"]]


def _strips(info: TaskInfo) -> int:
    return max(1, sum(segment.strips for segment in info.segments))


def _tasks(
    kept: list[TaskInfo], expected: dict[str, dict[str, float | None]]
) -> list[dict[str, Any]]:
    origin = min((info.submitted for info in kept), default=0.0)
    present = {info.id for info in kept}
    jobs = jobs_of(kept)
    found = [_task(info, origin, present, expected[info.type]) for info in kept]
    for info, task in zip(kept, found, strict=True):
        if info.id in jobs:
            task["job"] = jobs[info.id]
    return found


def _task(
    info: TaskInfo,
    origin: float,
    present: set[int],
    expected: dict[str, float | None],
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": str(info.id),
        "type": info.type,
        "arrival": info.submitted - origin,
        "deadline": None if info.deadline is None else info.deadline - origin,
        "priority": info.priority,
        "after": [str(task) for task in info.after if task in present],
    }
    actual = _actual_seconds(info, expected)
    if actual:
        document["actual_seconds"] = actual
        document["set_up_s"] = _set_up(info)
    return document


def _actual_seconds(
    info: TaskInfo, expected: dict[str, float | None]
) -> dict[str, float]:
    """Return the seconds of the whole task on its resources; empty: not known.

    The time before its first strip is left out: during this time it makes no progress.
    """
    whole = whole_runs([info])
    if whole:
        (((_, resource), (seconds,)),) = whole.items()
        return {resource: max(0.0, seconds - _set_up(info))}
    kept = counted(info.segments)
    known = {each.resource: expected.get(each.resource) or 0.0 for each in kept}
    if info.state != "completed" or not all(known.values()):
        return {}
    slower = sum(_computing(each) / known[each.resource] for each in kept)
    return {resource: slower * seconds for resource, seconds in known.items()}


def _set_up(info: TaskInfo) -> float:
    """Return the seconds from the start of a task until its first strip."""
    first = counted(info.segments)[0]
    return max(0.0, _first_strip(first) - first.start)


def _computing(segment: Segment) -> float:
    """Return the seconds of a segment from its first strip."""
    begin = _first_strip(segment)
    end = segment.finish if segment.computed is None else segment.computed
    return max(0.0, (end or begin) - begin)


def _first_strip(segment: Segment) -> float:
    """Return when the first strip began, also of a segment that ended before a report."""
    if segment.computing is not None:
        return segment.computing
    return segment.start + segment.set_up + segment.transfer_in


# ------------------------------------------------------------ lower bound

COMMAND = (sys.executable, "-m", "hetsim", "bound", "/dev/stdin", "--json")


def lower_bound(client: Client, tasks: list[TaskInfo]) -> float | None:
    """Return the least makespan by `hetsim bound`, in seconds; None: not known.

    The bound uses measured times on the resources where tasks ran, and expected times
    elsewhere. The simulator is a separate program; it gets the scenario of `hetctl trace`.

    Raises:
        HetError: the simulator failed.

    """
    if any(info.state != "completed" for info in tasks):
        return None  # a task that did not complete needs no time in any schedule
    writer = ScenarioWriter(client.devices(), client.models(), client.policy())
    document = writer.document(tasks)
    return None if writer.unknown else _bound_of(msgspec.json.encode(document))


def _bound_of(scenario: bytes) -> float:
    done = subprocess.run(COMMAND, input=scenario, capture_output=True, check=False)  # noqa: S603  our own interpreter and module
    if done.returncode != 0:
        raise HetError(f"hetsim bound: {done.stderr.decode(errors='replace').strip()}")
    bound: float = msgspec.json.decode(done.stdout)["lower_bound"]
    return bound
