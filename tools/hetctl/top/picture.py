"""The picture: what is known of the node, and the rows that show it.

Pure: the feed fills it, the screen shows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from hetctl.units import readable_duration
from hetctl.views.rates import Rates
from libtask.messages import ENDED
from libtask.plaintext import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from libtask.messages import DeviceInfo, StatusInfo, TaskChanged, TaskInfo

RESOURCE_HEADINGS = ("resource", "state", "runs", "progress", "queue", "power", "used")
TASK_HEADINGS = (
    "id",
    "type",
    "state",
    "where",
    "done",
    "moves",
    "checkpoint",
    "at risk",
    "left",
    "note",
)
ORDER = {
    state: place
    for place, state in enumerate(("running", "preempted", "queued", "waiting", "held"))
}
"""How tasks are sorted; after these the ended ones, the newest first, however they
ended: many that failed long ago must not hide what ends now."""
FILTERS = ("all", "not ended", "running", "failed")
BAR = 10
"""Cells of a progress bar."""


@dataclass(slots=True)
class Picture:
    """What is known of the node.

    Attributes:
        status: None: not heard from the daemon yet.
        tasks: by id; the newest ones.
        rates: what the resources do now.
        problem: why nothing new is heard; empty: all is well.

    """

    status: StatusInfo | None = None
    devices: list[DeviceInfo] = field(default_factory=list)
    tasks: dict[int, TaskInfo] = field(default_factory=dict)
    rates: Rates = field(default_factory=Rates)
    problem: str = ""

    def read(self, status: StatusInfo, devices: list[DeviceInfo]) -> None:
        """Take in how daemon and resources are."""
        self.rates.read(devices)
        self.status, self.devices = status, devices

    def enter(self, infos: Iterable[TaskInfo]) -> None:
        """Take in whole records of tasks."""
        self.tasks.update({info.id: info for info in infos})

    def change(self, changed: TaskChanged) -> bool:
        """Take in a change; False: the task is not known yet."""
        known = self.tasks.get(changed.id)
        if known is None:
            return False
        self.tasks[changed.id] = msgspec.structs.replace(
            known,
            state=changed.state,
            resource=changed.resource,
            progress=changed.progress,
            reason=changed.reason,
            finished=changed.at if changed.state in ENDED else None,
        )
        return True

    def shown(self, only: str, text: str, most: int) -> list[TaskInfo]:
        """List the tasks to show: the live ones, then the newest that ended.

        Args:
            only: one of `FILTERS`.
            text: what type, name, owner, or state must hold.
            most: so many at most.

        """
        found = [
            info
            for info in self.tasks.values()
            if _passes(info, only) and (not text or text in _searched(info))
        ]
        found.sort(key=_rank)
        return found[:most]

    def headline(self) -> str:
        """Sum the node up in a line."""
        if self.status is None:
            return "waiting for the daemon"
        tasks = self.status.tasks
        live = ("running", "preempted", "queued", "waiting", "held")
        parts = [f"{tasks[state]} {state}" for state in live if tasks.get(state)]
        ended = ("completed", "failed", "cancelled", "dropped")
        parts += [f"{tasks[state]} {state}" for state in ended if tasks.get(state)]
        return f"policy {self.status.policy} · {', '.join(parts) or 'no tasks'}"

    # ------------------------------------------------------------ rows

    def resource_row(self, device: DeviceInfo) -> tuple[str, ...]:
        """Show a resource in a row of `RESOURCE_HEADINGS`."""
        mark = "*" if device.spec.emulated else ""
        rate = self.rates.of(device.spec.name)
        running = [self.tasks[each] for each in device.running if each in self.tasks]
        share = sum(each.progress for each in running) / max(len(running), 1)
        return (
            device.spec.name + mark,
            device.state,
            _names(running) or "-",
            bar(share) if running else "",
            str(device.queued),
            _watts(rate.watts, measured=device.measured),
            "-" if rate.used is None else f"{100 * rate.used:.0f} %",
        )


def task_row(info: TaskInfo, now: float) -> tuple[str, ...]:
    """Show a task in a row of `TASK_HEADINGS`."""
    cells = (
        str(info.id),
        info.type,
        info.state,
        _place(info),
        f"{100 * info.progress:3.0f} %",
        str(info.migrations),
        _age(info, now),
        readable_duration(info.at_risk) if info.at_risk else "-",
        _left(info),
        info.reason or info.name,
    )
    return tuple(map(one_line, cells))


def bar(share: float) -> str:
    """Draw a share of one."""
    full = round(BAR * min(max(share, 0.0), 1.0))
    return "█" * full + "░" * (BAR - full) + f" {100 * share:3.0f} %"


def _passes(info: TaskInfo, only: str) -> bool:
    match only:
        case "not ended":
            return info.state not in ENDED
        case "running" | "failed":
            return info.state == only
        case _:
            return True


def _searched(info: TaskInfo) -> str:
    return f"{info.id} {info.type} {info.name} {info.owner} {info.state}"


def _rank(info: TaskInfo) -> tuple[int, int]:
    place = ORDER.get(info.state, len(ORDER))
    # waiting ones in the order of arrival, the others newest first
    return place, info.id if info.state not in ENDED else -info.id


def _names(running: list[TaskInfo]) -> str:
    return ", ".join(f"{info.id} {info.app}" for info in running)


def _place(info: TaskInfo) -> str:
    going = f"→{info.destination}" if info.destination else ""
    return f"{info.resource or ''}{going}" or "-"


def _age(info: TaskInfo, now: float) -> str:
    if info.state in ENDED or info.checkpoint_at is None:
        return "-"
    return readable_duration(max(0.0, now - info.checkpoint_at))


def _left(info: TaskInfo) -> str:
    """What is left, on the resource where it is, and where it would take less."""
    if info.state in ENDED or not info.expected:
        return "-"
    left = {name: (1 - info.progress) * s for name, s in info.expected.items()}
    parts = sorted(left.items(), key=lambda pair: (pair[0] != info.resource, pair[1]))
    return " ".join(f"{name} {readable_duration(seconds)}" for name, seconds in parts)


def _watts(watts: float | None, *, measured: bool) -> str:
    if watts is None:
        return "-"
    return f"{watts:.0f} W" + ("" if measured else " mod.")
