"""`hetctl show`: all that is known about tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from hetctl.completing import selectors as selectors_there
from hetctl.options import connect, shared
from hetctl.output import (
    emit,
    energy_source,
    iso,
    now,
    table,
    task_document,
    tasks_document,
)
from hetctl.places import elapsed, emulated_names, marked, place_of
from hetctl.selectors import selected
from hetctl.terminal import say
from hetctl.units import readable_duration, readable_joules
from libtask.apps import readable_bytes
from libtask.client.client import Selection
from libtask.messages import ENDED
from libtask.plaintext import one_line, visible
from libtask.results import told

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.messages import Segment, TaskInfo

NEXT_LINE = "\n" + 14 * " "
LONGEST = 200
"""Characters of a parameter's or result's value; `--json` has them whole."""
LONGEST_END = 60
"""Characters of what ended a stretch."""


@click.command("show")
@click.argument(
    "selectors",
    nargs=-1,
    required=True,
    metavar="SELECTOR...",
    shell_complete=selectors_there,
)
@shared
def show_command(
    *, selectors: tuple[str, ...], socket: Path | None, as_json: bool
) -> None:
    """Show all about tasks."""
    with connect(socket) as client:
        ids = tuple(selected(client, selectors))
        found = sorted(
            client.tasks(Selection(ids=ids, detail=True)), key=lambda info: info.id
        )
        emulated = emulated_names(client)
    if not as_json:
        for info in found:
            _print(info, emulated)
    elif len(found) == 1:
        emit(task_document(found[0], emulated))
    else:
        emit(tasks_document(found, emulated))


def _print(info: TaskInfo, emulated: frozenset[str]) -> None:
    say(one_line(f"task {info.id}  {info.type}  {info.state}"))
    facts = [*_facts(info), ("where", place_of(info, emulated))]
    for name, value in [*facts, ("last output", _last_output(info))]:
        if value not in (None, "", "-", "[]", "{}", "null"):
            # the lines of a reason stand below each other, and never at the margin
            say(f"  {name:<12}{(value or '').replace(chr(10), NEXT_LINE)}")
    if info.segments:
        say("")
        table(
            ("on", "start", "took", "strips", "copied in", "copied out", "ended by"),
            [_segment_row(segment, emulated) for segment in info.segments],
        )


def _facts(info: TaskInfo) -> list[tuple[str, str | None]]:
    return [
        ("name", info.name),
        ("app", info.app),
        ("owner", info.owner),
        ("progress", f"{100 * info.progress:.1f} %"),
        ("priority", str(info.priority) if info.priority else ""),
        ("after", ", ".join(str(task) for task in info.after)),
        ("kinds", ", ".join(info.kinds)),
        ("submitted", iso(info.submitted)),
        ("started", iso(info.started)),
        ("finished", iso(info.finished)),
        ("deadline", iso(info.deadline)),
        ("took", readable_duration(elapsed(info))),
        ("migrations", str(info.migrations)),
        ("energy", _energy(info)),
        ("snapshot", _snapshot(info)),
        ("params", _value(info.params)),
        ("exit code", None if info.exit_code is None else str(info.exit_code)),
        ("reason", info.reason),
        ("result", _value(told(info.result))),
        ("warnings", "\n".join(map(one_line, info.warnings))),
        ("traceback", _trace(info)),
    ]


def _trace(info: TaskInfo) -> str:
    """Return where in its Python code a task failed."""
    return "\n".join(visible(line) for line in info.trace.rstrip().splitlines())


def _snapshot(info: TaskInfo) -> str | None:
    """Say what a loss of the task's worker would cost; nothing of a task that ended."""
    if info.state in ENDED:
        return None
    kept, parts = info.snapshot, []
    if kept is not None:
        age = readable_duration(max(0.0, now() - kept.at))
        took = readable_duration(kept.seconds)
        parts.append(f"{age} old ({readable_bytes(kept.bytes)} in {took})")
    if info.at_risk > 0:
        parts.append(f"{readable_duration(info.at_risk)} of work at risk")
    if info.snapshot_error:
        parts.append(f"the last one failed: {info.snapshot_error}")
    return ", ".join(parts)


def _energy(info: TaskInfo) -> str | None:
    if info.joules is None:
        return None
    return f"{readable_joules(info.joules)} ({energy_source(info)})"


def _value(value: object) -> str:
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _segment_row(segment: Segment, emulated: frozenset[str]) -> tuple[str, ...]:
    took = None if segment.finish is None else segment.finish - segment.start
    return (
        marked(segment.resource, emulated),
        iso(segment.start) or "-",
        readable_duration(took),
        str(segment.strips),
        readable_duration(segment.transfer_in),
        readable_duration(segment.transfer_out),
        _end(segment),
    )


def _end(segment: Segment) -> str:
    """Say what ended a stretch, where that was an error."""
    if not segment.error:
        return ""
    text = one_line(segment.error)
    text = text if len(text) <= LONGEST_END else text[: LONGEST_END - 1] + "…"
    return f"failed attempt: {text}" if segment.failed_attempt else text


def _last_output(info: TaskInfo) -> str | None:
    """Show what the last worker that was lost wrote last, and in which phase."""
    last = info.last_output
    if last is None or not (last.lines or last.phase):
        return None
    return "\n".join([f"{last.phase or 'its end'}:", *map(one_line, last.lines)])
