"""A Chrome trace of what really ran; chrome://tracing and ui.perfetto.dev show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetctl.lanes import laid_out
from hetctl.moves import moves

if TYPE_CHECKING:
    from hetctl.lanes import Lane, Stretch
    from libtask.messages import DeviceInfo, TaskInfo

MICROSECONDS = 1_000_000
PROCESS = 1
"""The format wants processes with threads: ours is the node, a thread a slot."""


def chrome_document(
    tasks: list[TaskInfo], devices: list[DeviceInfo], now: float
) -> dict[str, Any]:
    """Write stretches as complete events and moves as flow arrows."""
    lanes, stretches = laid_out(tasks, devices, now)
    origin = min((each.start for each in stretches), default=0.0)
    events = [_row_name(number, lane) for number, lane in enumerate(lanes)]
    events += [_complete(each, origin) for each in stretches]
    for number, (before, after) in enumerate(moves(stretches)):
        events.append(_flow("s", number, before.finish - origin, before))
        events.append(_flow("f", number, after.start - origin, after))
    return {"format": "hetctl/trace-1", "displayTimeUnit": "ms", "traceEvents": events}


def _row_name(number: int, lane: Lane) -> dict[str, Any]:
    name = lane.label.replace("\n", " ")
    return {
        "ph": "M",
        "name": "thread_name",
        "pid": PROCESS,
        "tid": number,
        "args": {"name": name},
    }


def _complete(each: Stretch, origin: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": f"{each.task.type} #{each.task.id}",
        "cat": each.task.app,
        "pid": PROCESS,
        "tid": each.lane,
        "ts": MICROSECONDS * (each.start - origin),
        "dur": MICROSECONDS * (each.finish - each.start),
        "args": {
            "task": each.task.id,
            "state": each.task.state,
            "strips": each.segment.strips,
            "transfer_in_s": each.segment.transfer_in,
            "transfer_out_s": each.segment.transfer_out,
        },
    }


def _flow(phase: str, number: int, at: float, each: Stretch) -> dict[str, Any]:
    return {
        "ph": phase,
        "name": "migration",
        "cat": "migration",
        "id": number,
        "bp": "e",
        "pid": PROCESS,
        "tid": each.lane,
        "ts": MICROSECONDS * at,
    }
