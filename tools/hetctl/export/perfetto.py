"""A Chrome trace of past tasks, for ui.perfetto.dev and chrome://tracing.

Each slot is a thread, with a slice for each segment of a task, its computing inside and
the wait for a checkpoint inside that; arrows are migrations. A track of instants shows
decisions, and counters show the tasks that ran on and waited for each resource. Records
do not contain the queue in which a task waited; a wait counts for the resource where it
ended.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hetctl.export.lanes import laid_out, moves
from hetctl.output import moment
from libtask.messages import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hetctl.documents.accounts import Trace, TraceEventPart
    from hetctl.export.lanes import Bar, Lane
    from libtask.messages import DeviceInfo, Note, TaskInfo

MICROSECONDS = 1_000_000
PROCESS = 1
"""The format needs processes with threads; the node is the only process."""
DECISIONS = 0
"""Thread of the decisions; the threads of the slots follow."""
INSIDE = 1e-6
"""Seconds before a slice's end where an arrow leaves it; at its end it is closed."""


def chrome_document(
    tasks: list[TaskInfo],
    devices: list[DeviceInfo],
    now: float,
    notes: Sequence[Note] = (),
) -> Trace:
    """Return tasks and the node's events as a trace."""
    writer = _Writer(min((info.submitted for info in tasks), default=0.0), now)
    lanes, bars = laid_out(tasks, devices, now)
    events = [*writer.names(lanes)]
    for each in bars:
        events += writer.slices(each)
        events += writer.decisions(each)
    for number, (before, after) in enumerate(moves(bars)):
        events += writer.arrow(number, before, after)
    events += writer.counters(tasks)
    events += [writer.note(each) for each in notes]
    return {
        "format": "hetctl/trace-1",
        "displayTimeUnit": "ms",
        "otherData": {"origin": moment(writer.origin)},
        "traceEvents": events,
    }


class _Writer:
    """Writes events; times are seconds since the epoch, `ts` counts from the origin."""

    def __init__(self, origin: float, now: float) -> None:
        self.origin = origin
        self._now = now

    def names(self, lanes: list[Lane]) -> Iterator[TraceEventPart]:
        """Name the process and its threads, in their order."""
        yield _meta("process_name", {"name": "hetd"})
        labels = ["decisions", *(lane.label.replace("\n", " ") for lane in lanes)]
        for number, label in enumerate(labels):
            yield _meta("thread_name", {"name": label}, number)
            yield _meta("thread_sort_index", {"sort_index": number}, number)

    def slices(self, each: Bar) -> Iterator[TraceEventPart]:
        """Yield the slices of a segment and of its phases, one inside the other."""
        name = f"{each.task.type} #{each.task.id}"
        segment = each.segment
        if segment.failed_attempt:
            name += " failed attempt"
        yield self._slice(each, name, "task", (each.start, each.finish))
        if segment.computing is None:
            return
        begin = min(max(segment.computing, each.start), each.finish)
        end = min(max(segment.computed or each.finish, begin), each.finish)
        yield self._slice(each, "computing", "phase", (begin, end))
        if segment.stop_ordered is not None and segment.stop_ordered < end:
            asked = max(segment.stop_ordered, begin)
            yield self._slice(each, "ordered to stop", "phase", (asked, end))

    def decisions(self, each: Bar) -> Iterator[TraceEventPart]:
        """Yield the decisions that placed a task, and that ordered it to stop."""
        segment = each.segment
        where = f"task {each.task.id} on {segment.resource}"
        yield self._instant(f"{where}: {segment.rule or 'run'}", each.start, each)
        if segment.stop_ordered is not None:
            why = segment.stop_rule or "ordered to stop"
            yield self._instant(
                f"{where} is to stop: {why}", segment.stop_ordered, each
            )

    def note(self, note: Note) -> TraceEventPart:
        """Return an event of the node on the track of decisions."""
        head = self._head("i", note.text, note.at)
        args = {"what": note.what, "resource": note.resource}
        return {**head, "tid": DECISIONS, "s": "p", "args": args}

    def arrow(self, number: int, before: Bar, after: Bar) -> Iterator[TraceEventPart]:
        leaving = max(before.start, before.finish - INSIDE)
        yield self._flow("s", number, leaving, before)
        yield self._flow("f", number, after.start, after)

    def counters(self, tasks: list[TaskInfo]) -> Iterator[TraceEventPart]:
        """Yield the numbers of tasks that run on each resource and wait for it."""
        changes: dict[str, list[tuple[float, int]]] = {}
        for info in tasks:
            for segment in counted(info.segments):
                spans = changes.setdefault(f"running on {segment.resource}", [])
                spans += self._span(segment.start, segment.finish)
            for begin, end, resource in self._waits(info):
                changes.setdefault(f"waiting for {resource}", []).extend(
                    self._span(begin, end)
                )
        for name, some in sorted(changes.items()):
            yield from self._counter(name, some)

    def _waits(self, info: TaskInfo) -> Iterator[tuple[float, float | None, str]]:
        """Yield the times in which a task was on no resource, or failed on one."""
        kept = counted(info.segments)
        if kept:
            first = kept[0]
            yield info.submitted, first.start, first.resource
        for before, after in pairwise(kept):
            if before.finish is not None:
                yield before.finish, after.start, after.resource
        if info.finished is None and info.state != "running":
            since = kept[-1].finish if kept else info.submitted
            yield since or self._now, None, info.resource or "any resource"

    def _span(self, begin: float, end: float | None) -> list[tuple[float, int]]:
        return [(begin, 1), (self._now if end is None else end, -1)]

    def _counter(
        self, name: str, changes: list[tuple[float, int]]
    ) -> Iterator[TraceEventPart]:
        """Yield the sum at each instant of change."""
        steps: dict[float, int] = {}
        for at, change in changes:
            steps[at] = steps.get(at, 0) + change
        total = 0
        for at, change in sorted(steps.items()):
            total += change
            yield {**self._head("C", name, at), "args": {"tasks": total}}

    def _slice(
        self, each: Bar, name: str, category: str, span: tuple[float, float]
    ) -> TraceEventPart:
        return {
            **self._head("X", name, span[0]),
            "tid": each.lane + 1,
            "dur": MICROSECONDS * max(0.0, span[1] - span[0]),
            "cat": category,
            "args": _facts(each) if category == "task" else {},
        }

    def _instant(self, name: str, at: float, each: Bar) -> TraceEventPart:
        head = self._head("i", name, at)
        args = {"task": each.task.id, "resource": each.segment.resource}
        return {**head, "tid": DECISIONS, "s": "t", "args": args}

    def _flow(self, phase: Any, number: int, at: float, each: Bar) -> TraceEventPart:
        head = self._head(phase, "migration", at)
        extra: TraceEventPart = {**head, "tid": each.lane + 1, "cat": "migration"}
        return {**extra, "id": number, "bp": "e"}

    def _head(self, phase: Any, name: str, at: float) -> TraceEventPart:
        since = MICROSECONDS * (at - self.origin)
        return {"ph": phase, "name": name, "pid": PROCESS, "ts": since}


def _meta(name: str, args: dict[str, Any], thread: int | None = None) -> TraceEventPart:
    head: TraceEventPart = {"ph": "M", "name": name, "pid": PROCESS, "args": args}
    return head if thread is None else {**head, "tid": thread}


def _facts(each: Bar) -> dict[str, Any]:
    segment = each.segment
    return {
        "task": each.task.id,
        "app": each.task.app,
        "name": each.task.name,
        "state": each.task.state,
        "resource": segment.resource,
        "rule": segment.rule,
        "strips": segment.strips,
        "computing_s": segment.seconds,
        "transfer_in_s": segment.transfer_in,
        "transfer_out_s": segment.transfer_out,
        "set_up_s": segment.set_up,
        "joules": segment.joules,
        "error": segment.error,
    }
