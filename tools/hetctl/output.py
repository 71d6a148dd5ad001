"""Output: JSON values, tables, times; the same forms in every command.

All that `hetctl` prints goes through `say` and `say_json`. Control characters in other
users' words cannot steer the terminal.
"""

from __future__ import annotations

import datetime as dt
import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec

from libtask.plaintext import CONTROLS, one_line, visible
from libtask.results import told

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hetctl.documents import tasks as documents
    from hetctl.documents.parts import Source
    from libtask.messages import LastOutput, Order, Segment, TaskInfo


_IN_JSON = {code: f"\\u{code:04x}" for code in CONTROLS if code > ord("~")}
"""JSON has escapes of its own for what is below."""


def say(text: str = "", *, err: bool = False) -> None:
    """Print for a person; to standard error with `err`."""
    click.echo(visible(text), err=err)


def say_json(document: bytes, *, err: bool = False) -> None:
    """Print a JSON document; it holds the same as before. To standard error with `err`."""
    click.echo(document.decode().translate(_IN_JSON), err=err)


# ------------------------------------------------------------ times, documents, tables

STYLES = {
    "running": "green",
    "preempted": "yellow",
    "completed": "dim",
    "failed": "bold red",
    "cancelled": "magenta",
    "dropped": "magenta",
    "lost": "bold red",
    "draining": "yellow",
}
"""Colours on a terminal, by the cell's text."""


def now() -> float:
    """Seconds since the epoch."""
    return time.time()  # noqa: TID251  a command is a shell: it owns its clock


def emit(value: Mapping[str, object], *, err: bool = False) -> None:
    """Print one JSON value on one line; numbers that JSON lacks become null."""
    say_json(msgspec.json.encode(value, enc_hook=str), err=err)


def on_terminal() -> bool:
    """Whether a person reads standard output."""
    return sys.stdout.isatty()


def iso(seconds: float | None) -> str | None:
    """Write a moment where there is one."""
    return None if seconds is None else moment(seconds)


def moment(seconds: float) -> str:
    """Write seconds since the epoch as UTC, e.g. `2026-01-02T03:04:05.678Z`."""
    at = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def clock_time(seconds: float | None) -> str:
    """Write a moment as local time, with its date where that is not today; `-`: none."""
    if seconds is None:
        return "-"
    local, today = time.localtime(seconds), time.localtime(now())
    same_day = local[:3] == today[:3]
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S", local)


def date_and_time(seconds: float | None) -> str:
    """Write a moment as local time with its date: a story may span days; `-`: none."""
    if seconds is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def task_document(
    info: TaskInfo, emulated: frozenset[str] = frozenset()
) -> documents.Task:
    """Write a task as formats.md section 5 has it; `emulated` names such resources."""
    age = None if info.checkpoint_at is None else max(0.0, now() - info.checkpoint_at)
    kept = info.snapshot
    return {
        "format": "hetctl/task-1",
        "id": info.id,
        "app": info.app,
        "type": info.type,
        "state": info.state,
        "owner": info.owner,
        "name": info.name,
        "resource": info.resource,
        "emulated": info.resource in emulated,
        "destination": info.destination,
        "progress": info.progress,
        "priority": info.priority,
        "submitted": moment(info.submitted),
        "started": iso(info.started),
        "finished": iso(info.finished),
        "deadline": iso(info.deadline),
        "migrations": info.migrations,
        "checkpoint_age_s": age,
        "snapshot_at": iso(None if kept is None else kept.at),
        "snapshot_progress": snapshot_progress(info),
        "snapshot_bytes": None if kept is None else kept.bytes,
        "snapshot_s": None if kept is None else kept.seconds,
        "snapshot_error": info.snapshot_error or None,
        "work_at_risk_s": info.at_risk,
        "exit_code": info.exit_code,
        "warnings": info.warnings,
        "trace": info.trace or None,
        "suspended": info.suspended,
        "attempts": info.attempts,
        "last_output": _last_output(info.last_output),
        "segments": [segment_document(each, emulated) for each in info.segments],
        "after": info.after,
        "kinds": info.kinds,
        "joules": info.joules,
        "energy_source": energy_source(info),
        "params": info.params,
        "reason": info.reason,
        "result": told(info.result),
        "submission": info.submission or None,
        "requeued": info.requeued or None,
        "orders": [order_document(each) for each in info.orders],
    }


def order_document(order: Order) -> documents.OrderPart:
    """Write what a user ordered of a task."""
    return {
        "at": moment(order.at),
        "what": order.what,
        "by": f"uid:{order.by}",
        "text": order.text,
    }


def snapshot_progress(info: TaskInfo) -> float | None:
    """Return the share done that the newest snapshot holds; None: not known."""
    found = info.snapshot
    return found.done / found.total if found is not None and found.total else None


def energy_source(of: TaskInfo | Segment) -> Source | None:
    """Say where figures of energy come from; None: there are none."""
    if of.joules is None:
        return None
    return "measured" if of.measured else "modelled"


def segment_document(
    segment: Segment, emulated: frozenset[str]
) -> documents.SegmentPart:
    """Write a stretch on one resource."""
    return {
        "resource": segment.resource,
        "emulated": segment.resource in emulated,
        "start": moment(segment.start),
        "finish": iso(segment.finish),
        "strips": segment.strips,
        "computing_s": segment.seconds,
        "transfer_in_s": segment.transfer_in,
        "transfer_out_s": segment.transfer_out,
        "set_up_s": segment.set_up,
        "rule": segment.rule or None,
        "stop_ordered": iso(segment.stop_ordered),
        "stop_rule": segment.stop_rule or None,
        "checkpoint_wait_s": checkpoint_wait(segment),
        "joules": segment.joules,
        "energy_source": energy_source(segment),
        "log": segment.log,
        "log_start": segment.log_start,
        "log_end": segment.log_end,
        "error": segment.error or None,
        "failed_attempt": segment.failed_attempt,
    }


def _last_output(last: LastOutput | None) -> documents.LastOutputPart | None:
    """Write what a worker wrote last."""
    if last is None:
        return None
    return {"phase": last.phase or None, "reason": last.reason, "lines": last.lines}


def checkpoint_wait(segment: Segment) -> float | None:
    """Return the seconds from an order to stop to the end of the last strip.

    None: no such order was given, or it has not been followed yet.
    """
    if segment.stop_ordered is None or segment.finish is None:
        return None
    end = segment.finish if segment.computed is None else segment.computed
    return max(0.0, end - segment.stop_ordered)


def tasks_document(
    found: Iterable[TaskInfo], emulated: frozenset[str], total: int | None = None
) -> documents.Tasks:
    """Write several tasks; `total`: how many there are, where some are left out."""
    tasks = [task_document(info, emulated) for info in found]
    every = len(tasks) if total is None else max(total, len(tasks))
    return {
        "format": "hetctl/tasks-1",
        "tasks": tasks,
        "total": every,
        "truncated": every > len(tasks),
    }


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    parsable: bool = False,
) -> None:
    """Print a table: coloured on a terminal, plain aligned columns elsewhere.

    Args:
        headings: of the columns.
        rows: their cells.
        parsable: separate the cells by a bar, and leave bars out of them.

    """
    kept = [[one_line(cell) for cell in row] for row in rows]
    if parsable:
        for row in [[heading.upper() for heading in headings], *kept]:
            say("|".join(cell.replace("|", "/") for cell in row))
    elif on_terminal():
        _rich_table(headings, kept)
    else:
        for line in plain_table(headings, kept):
            say(line)


def plain_table(headings: Sequence[str], rows: list[list[str]]) -> Iterator[str]:
    """Write a table in aligned columns, a line each."""
    every = [[heading.upper() for heading in headings], *rows]
    widths = [max(len(row[column]) for row in every) for column in range(len(headings))]
    for row in every:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()


def _rich_table(headings: Sequence[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for heading in headings:
        drawn.add_column(heading, overflow="fold")
    for row in rows:
        drawn.add_row(*[Text(cell, style=STYLES.get(cell, "")) for cell in row])
    Console().print(drawn)
