"""The picture: the known state of the node, and its rows on the screen.

It does no I/O: the feed fills it, the screen shows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from rich.cells import cell_len, set_cell_size

from hetctl.output import short_type
from hetctl.units import readable_duration
from hetctl.views.rates import Rates
from libtask.messages import ENDED
from libtask.plaintext import one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

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
DISPENSABLE = (
    "checkpoint",
    "at risk",
    "used",
    "left",
    "moves",
    "progress",
    "note",
    "power",
    "where",
    "queue",
)
"""Columns that a narrow screen leaves out, in this order."""
CUT = {"left": 14, "runs": 16, "note": 12}
"""Columns whose ends may be cut -> cells to keep of them."""
PADDING = 2
"""Cells between two columns."""
ORDER = {
    state: place
    for place, state in enumerate(("running", "preempted", "queued", "waiting", "held"))
}
"""Order of unfinished tasks. Ended ones follow, newest first in any state, so that many
old failures do not hide recent ends."""
FILTERS = ("all", "not ended", "running", "failed")
BAR = 10
"""Cells of a progress bar."""


@dataclass(slots=True)
class Picture:
    """The known state of the node.

    Attributes:
        status: the daemon's status; None: not received yet.
        tasks: the newest tasks by id.
        rates: the present rates of the resources.
        problem: the reason why there are no updates; empty: no problem.

    """

    status: StatusInfo | None = None
    devices: list[DeviceInfo] = field(default_factory=list)
    tasks: dict[int, TaskInfo] = field(default_factory=dict)
    rates: Rates = field(default_factory=Rates)
    problem: str = ""

    def read(self, status: StatusInfo, devices: list[DeviceInfo]) -> None:
        """Set the state of the daemon and the resources."""
        self.rates.read(devices)
        self.status, self.devices = status, devices

    def enter(self, infos: Iterable[TaskInfo]) -> None:
        """Add full records of tasks."""
        self.tasks.update({info.id: info for info in infos})

    def change(self, changed: TaskChanged) -> bool:
        """Apply a change; False: the task is not known yet."""
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
        """Return the tasks to show: unfinished ones, then the newest ended ones.

        Args:
            only: one of `FILTERS`.
            text: a text that type, name, owner or state must contain.
            most: the limit of their number.

        """
        found = [
            info
            for info in self.tasks.values()
            if _passes(info, only) and (not text or text in _searched(info))
        ]
        found.sort(key=_rank)
        return found[:most]

    def headline(self) -> str:
        """Return a line with the policy and the numbers of tasks."""
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
        """Return the row of a resource under `RESOURCE_HEADINGS`."""
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
    """Return the row of a task under `TASK_HEADINGS`."""
    cells = (
        str(info.id),
        short_type(info.type),
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


def fitting(
    headings: tuple[str, ...], rows: Collection[tuple[str, ...]], width: int
) -> dict[str, int]:
    """Choose the columns that fit into a width, in cells.

    Returns:
        The headings, each with the cells for the contents of its column.

    """
    longest = {
        column[0]: max(map(cell_len, column))
        for column in zip(headings, *rows, strict=True)
    }
    cells = {
        heading: max(len(heading), min(most, CUT.get(heading, most)))
        for heading, most in longest.items()
    }
    for heading in DISPENSABLE:
        if _width(cells) <= width:
            break
        cells.pop(heading, None)
    for heading in CUT:
        if heading in cells:
            room = cells[heading] + max(0, width - _width(cells))
            cells[heading] = min(room, longest[heading])
    return cells


def _width(cells: dict[str, int]) -> int:
    return sum(cells.values()) + PADDING * len(cells)


def cut(text: str, cells: int) -> str:
    """Cut a text that is longer than a number of cells."""
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, cells - 1).rstrip() + "…"


def bar(share: float) -> str:
    """Return a progress bar with its percentage."""
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
    # unfinished tasks in order of arrival, ended ones newest first
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
    """Return the remaining time by resource, the task's own first, then the fastest."""
    if info.state in ENDED or not info.expected:
        return "-"
    left = {name: (1 - info.progress) * s for name, s in info.expected.items()}
    parts = sorted(left.items(), key=lambda pair: (pair[0] != info.resource, pair[1]))
    return " ".join(f"{name} {readable_duration(seconds)}" for name, seconds in parts)


def _watts(watts: float | None, *, measured: bool) -> str:
    if watts is None:
        return "-"
    return f"{watts:.0f} W" + ("" if measured else " mod.")
