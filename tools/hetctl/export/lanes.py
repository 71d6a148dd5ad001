"""Lanes and moves: which slot of its resource each segment of a task took, for pictures.

hetd counts slots and does not number them; a segment takes the first lane that is free
when it starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from libtask.messages import migrations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from libtask.messages import DeviceInfo, Segment, TaskInfo


@dataclass(frozen=True, slots=True)
class Bar:
    """A segment drawn in its lane. Times are seconds since the epoch."""

    task: TaskInfo
    segment: Segment
    number: int
    """Position among the task's segments."""
    start: float
    finish: float
    lane: int


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the chart."""

    resource: str
    slot: int
    of: int
    """Number of lanes of this resource."""
    emulated: bool

    @property
    def label(self) -> str:
        slot = f" #{self.slot + 1}" if self.of > 1 else ""
        return f"{self.resource}{slot}" + ("\n(emulated)" if self.emulated else "")


def laid_out(
    tasks: Iterable[TaskInfo], devices: list[DeviceInfo], now: float
) -> tuple[list[Lane], list[Bar]]:
    """Give each segment a lane; running ones last until `now`."""
    pieces = sorted(
        (
            (info, number, segment)
            for info in tasks
            for number, segment in enumerate(info.segments)
        ),
        key=lambda piece: piece[2].start,
    )
    free_at = {device.spec.name: [0.0] * device.slots for device in devices}
    taken: list[tuple[TaskInfo, int, Segment, int]] = []
    for info, number, segment in pieces:
        ends = free_at.setdefault(segment.resource, [0.0])
        slot = _first_free(ends, segment.start)
        ends[slot] = _end(segment, now)
        taken.append((info, number, segment, slot))
    lanes = _lanes(free_at, devices)
    index = {
        (lane.resource, lane.slot): position for position, lane in enumerate(lanes)
    }
    return lanes, [
        Bar(
            info,
            segment,
            number,
            segment.start,
            _end(segment, now),
            index[segment.resource, slot],
        )
        for info, number, segment, slot in taken
    ]


def _first_free(ends: list[float], start: float) -> int:
    for slot, end in enumerate(ends):
        if end <= start:
            return slot
    ends.append(0.0)  # hand-overs may overlap; the chart must not hide that
    return len(ends) - 1


def _lanes(free_at: dict[str, list[float]], devices: list[DeviceInfo]) -> list[Lane]:
    emulated = {device.spec.name for device in devices if device.spec.emulated}
    return [
        Lane(name, slot, len(ends), name in emulated)
        for name, ends in free_at.items()
        for slot in range(len(ends))
    ]


def _end(segment: Segment, now: float) -> float:
    """Return the end of a segment, or `now`; the clock may have been set back."""
    return max(now, segment.start) if segment.finish is None else segment.finish


# ------------------------------------------------------------ moves


def moves(bars: Iterable[Bar]) -> list[tuple[Bar, Bar]]:
    """Return the two bars of each migration; all bars of a task must be given."""
    found = {(each.task.id, each.number): each for each in bars}
    tasks = {each.task.id: each.task for each in found.values()}
    return [
        (found[number, before], found[number, after])
        for number, info in sorted(tasks.items())
        for before, after in migrations(info.segments)
    ]
