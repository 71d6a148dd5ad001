"""The past tasks of a pool in the form that `hetctl gantt` and `trace` draw.

All attempts of a task become one task whose segments name `NODE/RESOURCE`, so that its
moves between nodes are arrows like those between resources. Transfers of files become
tasks of the lane of their node's link.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from libtask.messages import DeviceInfo, DeviceSpec, Segment, TaskInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetctl.pool.gathering import Gathered, TaskView

TRANSFER = "file transfer"
"""Name of transfers in the legend, in the place of an application's."""


def link_of(node: str) -> str:
    """Return the name of the lane of a node's link."""
    return f"→ {node}"


def merged(views: Sequence[TaskView]) -> list[TaskInfo]:
    """Return the tasks that have run, numbered from 1 by submission."""
    ran = [view for view in views if any(info.segments for _, info in view.attempts)]
    ordered = sorted(ran, key=lambda view: view.submitted or 0.0)
    return [_whole(view, number) for number, view in enumerate(ordered, 1)]


def _whole(view: TaskView, number: int) -> TaskInfo:
    last = view.attempts[-1][1]
    segments: list[Segment] = []
    limit = inf
    for node, info in reversed(view.attempts):
        segments += [_cut(each, node, limit) for each in info.segments]
        limit = min([limit, *(each.start for each in info.segments)])
    first = view.attempts[0][1]
    return replace(
        last,
        id=number,
        name="",
        submitted=first.submitted,
        started=first.started,
        segments=sorted(segments, key=lambda each: each.start),
    )


def _cut(segment: Segment, node: str, limit: float) -> Segment:
    """Return a segment with its node, which ends where the task began on the next one.

    The hetd of a node that was lost learns of the end of a segment when it is back.
    """
    end = segment.finish
    if limit < inf and (end is None or end > limit):
        end = max(segment.start, limit)
    return replace(segment, resource=f"{node}/{segment.resource}", finish=end)


def transfers(found: Gathered, first: int) -> list[TaskInfo]:
    """Return the transfers of files as tasks, numbered from `first`."""
    every = [(node, each) for node, some in found.transfers.items() for each in some]
    every.sort(key=lambda pair: pair[1].start)
    return [
        TaskInfo(
            id=number,
            app=TRANSFER,
            type=TRANSFER,
            state="completed",
            owner="",
            submitted=each.start,
            started=each.start,
            finished=each.finish,
            segments=[Segment(link_of(node), each.start, each.finish, strips=1)],
        )
        for number, (node, each) in enumerate(every, first)
    ]


def devices(found: Gathered) -> list[DeviceInfo]:
    """Return the devices of all nodes and, behind those of each, its link."""
    every = []
    for node, some in sorted(found.devices.items()):
        every += [
            replace(each, spec=replace(each.spec, name=f"{node}/{each.spec.name}"))
            for each in some
        ]
        if found.transfers.get(node):
            every.append(DeviceInfo(DeviceSpec(link_of(node), "cpu", "null")))
    return every
