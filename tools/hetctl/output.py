"""Output: JSON values, tables, times; the same forms in every command.

All that `hetctl` prints goes through `say` and `say_json`. Control characters in other
users' words cannot steer the terminal.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from libtask.errors import HetError
from libtask.plaintext import CONTROLS, one_line, visible
from libtask.results import told

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hetctl.documents import tasks as documents
    from hetctl.documents.parts import Source
    from libtask.messages import LastOutput, Order, Segment, TaskInfo


_IN_JSON = {code: f"\\u{code:04x}" for code in CONTROLS if code > ord("~")}
"""JSON escapes the control characters below."""


class OutputError(HetError):
    """Standard output cannot be written."""

    code = "output"


def say(text: str = "", *, err: bool = False) -> None:
    """Print text for people; to standard error with `err`."""
    _echo(visible(text), err=err)


def say_json(document: bytes, *, err: bool = False) -> None:
    """Print a JSON document with all control characters escaped; `err`: to standard error."""
    _echo(document.decode().translate(_IN_JSON), err=err)


def _echo(text: str, *, err: bool) -> None:
    if err:
        click.echo(text, err=True)
        return
    with writing_output():
        click.echo(text)


@contextlib.contextmanager
def writing_output() -> Iterator[None]:
    """Translate the errors of writing to standard output.

    A broken pipe is raised unchanged: it has an exit status of its own.

    Raises:
        OutputError: standard output cannot be written; the text has the reason.

    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"cannot write standard output: {reason}") from error


def replace_closed_streams() -> None:
    """Discard what is written to a standard stream that was closed before the start."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # Python's sign of a closed descriptor
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  the process keeps it


# ------------------------------------------------------------ times, documents, tables

LONGEST_TYPE, TYPE_END = 48, 16
"""Characters of a type of tasks in a table, and those of its end if it is longer."""
STYLES = {
    "running": "green",
    "preempted": "yellow",
    "completed": "dim",
    "failed": "bold red",
    "cancelled": "magenta",
    "dropped": "magenta",
    "lost": "bold red",
    "draining": "yellow",
    "drained": "yellow",
}
"""Colours on a terminal, by the cell's text."""


def now() -> float:
    """Return the seconds since the epoch."""
    return time.time()  # noqa: TID251  commands are the shell, which reads the clock


def emit(value: Mapping[str, object], *, err: bool = False) -> None:
    """Print one JSON value on one line; NaN and infinities become null."""
    say_json(msgspec.json.encode(value, enc_hook=str), err=err)


def on_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def iso(seconds: float | None) -> str | None:
    """Format a moment like `moment`; None stays None."""
    return None if seconds is None else moment(seconds)


def moment(seconds: float) -> str:
    """Format seconds since the epoch as UTC, e.g. `2026-01-02T03:04:05.678Z`."""
    at = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def clock_time(seconds: float | None) -> str:
    """Format a moment as local time, with its date unless that is today; `-` for None."""
    if seconds is None:
        return "-"
    local, today = time.localtime(seconds), time.localtime(now())
    same_day = local[:3] == today[:3]
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S", local)


def date_and_time(seconds: float | None) -> str:
    """Format a moment as local time with its date; `-` for None."""
    if seconds is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def task_document(
    info: TaskInfo, emulated: frozenset[str] = frozenset()
) -> documents.Task:
    """Return a task's document (formats.md section 5); `emulated` names such resources."""
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
        "job": info.job or None,
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
        "retries": info.retries,
        "retried": info.retried,
        "begins": iso(info.begins),
        "last_output": _last_output(info.last_output),
        "segments": [segment_document(each, emulated) for each in info.segments],
        "after": info.after,
        "after_any": info.after_any,
        "after_notok": info.after_notok,
        "inputs": [{"task": each.task, "bytes": each.bytes} for each in info.inputs],
        "kinds": info.kinds,
        "joules": info.joules,
        "energy_source": energy_source(info),
        "params": told(info.params),
        "reason": info.reason,
        "result": told(info.result),
        "submission": info.submission or None,
        "requeued": info.requeued or None,
        "lease": _lease(info),
        "caller": info.caller or None,
        "part_of": info.part_of or None,
        "parts": info.parts,
        "orders": [order_document(each) for each in info.orders],
    }


def _lease(info: TaskInfo) -> documents.LeasePart | None:
    """Return the document of a task's lease; None: it has none."""
    if not info.lease_s:
        return None
    return {
        "name": info.lease,
        "period_s": info.lease_s,
        "left_s": info.lease_left_s,
        "fenced": info.fenced,
    }


def order_document(order: Order) -> documents.OrderPart:
    """Return the document of a user's order about a task."""
    return {
        "at": moment(order.at),
        "what": order.what,
        "by": f"uid:{order.by}",
        "text": order.text,
    }


def snapshot_progress(info: TaskInfo) -> float | None:
    """Return the share of the task that its newest snapshot holds; None: not known."""
    found = info.snapshot
    return found.done / found.total if found is not None and found.total else None


def energy_source(of: TaskInfo | Segment) -> Source | None:
    """Return the source of an energy figure; None: there is no figure."""
    if of.joules is None:
        return None
    return "measured" if of.measured else "modelled"


def segment_document(
    segment: Segment, emulated: frozenset[str]
) -> documents.SegmentPart:
    """Return the document of a segment."""
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
    """Return the document of a worker's last output."""
    if last is None:
        return None
    return {"phase": last.phase or None, "reason": last.reason, "lines": last.lines}


def checkpoint_wait(segment: Segment) -> float | None:
    """Return the seconds from an order to stop to the end of the last strip.

    None: there was no such order, or the task has not stopped yet.
    """
    if segment.stop_ordered is None or segment.finish is None:
        return None
    end = segment.finish if segment.computed is None else segment.computed
    return max(0.0, end - segment.stop_ordered)


def tasks_document(
    found: Iterable[TaskInfo], emulated: frozenset[str], total: int | None = None
) -> documents.Tasks:
    """Return the document of several tasks; `total`: their number before `--limit`."""
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
        headings: the names of the columns; types of tasks under `type` are shortened.
        rows: the cells of each row.
        parsable: separate the cells with bars; bars within cells become slashes.

    """
    kept = [[one_line(cell) for cell in row] for row in rows]
    if parsable:
        for row in [[heading.upper() for heading in headings], *kept]:
            say("|".join(cell.replace("|", "/") for cell in row))
        return
    for column, heading in enumerate(headings):
        if heading == "type":
            for row in kept:
                row[column] = short_type(row[column])
    if on_terminal():
        _rich_table(headings, kept)
    else:
        for line in plain_table(headings, kept):
            say(line)


def short_type(task_type: str) -> str:
    """Return a type of tasks as a column of a table shows it: a size may have any length.

    Its begin tells the application, and sizes often differ in their ends.
    """
    if len(task_type) <= LONGEST_TYPE:
        return task_type
    return f"{task_type[: LONGEST_TYPE - TYPE_END - 1]}…{task_type[-TYPE_END:]}"


def plain_table(headings: Sequence[str], rows: list[list[str]]) -> Iterator[str]:
    """Format a table in aligned columns; yield its lines."""
    every = [[heading.upper() for heading in headings], *rows]
    widths = [
        max(_width(row[column]) for row in every) for column in range(len(headings))
    ]
    for row in every:
        cells = [
            cell + " " * (width - _width(cell))
            for cell, width in zip(row, widths, strict=True)
        ]
        yield "  ".join(cells).rstrip()


def _width(text: str) -> int:
    """Return the columns that a text takes: East Asian characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


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
