"""`hetctl list`, `show`, `explain`, `progress`: the state of tasks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from hetctl.options import connect, optional_selectors, selectors_argument, shared
from hetctl.output import (
    clock_time,
    emit,
    energy_source,
    iso,
    now,
    say,
    table,
    task_document,
    tasks_document,
)
from hetctl.selectors import MOST, listed, selected
from hetctl.units import Moment, Whole, readable_duration, readable_joules
from hetctl.views.columns import (
    Column,
    arranged,
    chosen,
    ordered,
    report_truncation,
    rows,
)
from hetctl.views.explanation import (
    PROSPECT_HEADINGS,
    prospect_documents,
    prospect_rows,
    reasons,
)
from hetctl.views.places import elapsed, emulated_names, marked, place_of, waited
from hetctl.views.program import program_facts
from hetctl.views.users import shown_owner, uid_of
from libtask.apps import is_value, readable_bytes, short_name
from libtask.client.client import Selection
from libtask.messages import ENDED, TaskState
from libtask.plaintext import one_line, visible
from libtask.results import told

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hetctl.documents.tasks import ProgressPart
    from libtask.client.client import Client
    from libtask.messages import Explained, Segment, TaskInfo


# ------------------------------------------------------------ list

DAY_S = 86_400.0
"""Seconds after their end for which tasks are listed by default."""
LIMIT = 1000
SHOWN = (
    "id",
    "name",
    "type",
    "state",
    "where",
    "done",
    "moves",
    "submitted",
    "took",
    "note",
)
"""The default columns."""


def task_columns(emulated: frozenset[str]) -> dict[str, Column[TaskInfo]]:
    """Return all columns by name."""
    return {
        "id": Column(lambda info: str(info.id), lambda info: info.id),
        "name": Column(lambda info: info.name or "-", lambda info: info.name or None),
        "app": Column(lambda info: short_name(info.app), lambda info: info.app),
        "type": Column(lambda info: info.type, lambda info: info.type),
        "state": Column(lambda info: info.state, lambda info: info.state),
        "where": Column(
            lambda info: place_of(info, emulated), lambda info: info.resource
        ),
        "done": Column(
            lambda info: f"{100 * info.progress:.0f} %", lambda info: info.progress
        ),
        "moves": Column(
            lambda info: str(info.migrations), lambda info: info.migrations
        ),
        "submitted": Column(
            lambda info: clock_time(info.submitted), lambda info: info.submitted
        ),
        "started": Column(
            lambda info: clock_time(info.started), lambda info: info.started
        ),
        "finished": Column(
            lambda info: clock_time(info.finished), lambda info: info.finished
        ),
        "waited": Column(lambda info: readable_duration(waited(info)), waited),
        "took": Column(lambda info: readable_duration(elapsed(info)), elapsed),
        "user": Column(lambda info: shown_owner(info.owner), lambda info: info.owner),
        "priority": Column(lambda info: str(info.priority), lambda info: info.priority),
        "deadline": Column(
            lambda info: clock_time(info.deadline), lambda info: info.deadline
        ),
        "job": Column(lambda info: info.job or "-", lambda info: info.job or None),
        "kinds": Column(lambda info: ",".join(info.kinds), lambda info: info.kinds),
        "energy": Column(
            lambda info: "-" if info.joules is None else readable_joules(info.joules),
            lambda info: info.joules,
        ),
        "note": Column(_note, lambda info: info.reason),
    }


def _note(info: TaskInfo) -> str:
    """Return why a task is where it is, with the instant that it waits for."""
    return ": ".join(text for text in (beginning(info), info.reason) if text)


def beginning(info: TaskInfo) -> str:
    """Say when a task begins that waits for an instant; empty: it does not."""
    if info.begins is None:
        return ""
    verb = "retries" if info.retried else "begins"
    return f"{verb} in {readable_duration(max(0.0, info.begins - now()))}"


@click.command("list")
@optional_selectors
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(get_args(TaskState)),
    help="Show only tasks in this state.",
)
@click.option("--jobs", is_flag=True, help="List jobs instead of tasks.")
@click.option("--mine", is_flag=True, help="Show only your own tasks.")
@click.option("--user", help="Show only this user's tasks (name or uid).")
@click.option(
    "--all", "every", is_flag=True, help="Include tasks that ended more than a day ago."
)
@click.option(
    "--since",
    type=Moment(),
    help="Leave out tasks that ended before this time (14:30) or duration ago (2h).",
)
@click.option(
    "--limit",
    type=Whole(1),
    default=LIMIT,
    show_default=True,
    help="Show at most this many tasks, the newest.",
)
@arranged
@shared
def list_command(
    *, selectors: tuple[str, ...], socket: Path | None, as_json: bool, **given: Any
) -> None:
    """List tasks that have not ended, and those that ended within a day.

    Columns for -o and --sort: id, name, app, type, state, where, done, moves, submitted,
    started, finished, waited, took, user, priority, deadline, job, kinds, energy, note.
    --jobs lists jobs instead: the number of tasks by state, the time from the first
    submission to the last end, the longest chain of tasks, and the one by the other.
    """
    if given["jobs"]:
        _list_jobs(selectors, socket, given, as_json=as_json)
        return
    # report wrong column names before connecting to the daemon
    names = chosen(given["fields"], task_columns(frozenset()), SHOWN)
    ordered([], given["sort"], task_columns(frozenset()))
    with connect(socket) as client:
        found, selection = _listed_tasks(client, selectors, given)
        more = selection is not None and len(found) == given["limit"]
        total = max(client.count(selection), len(found)) if more else len(found)
        emulated = emulated_names(client)
    table_of = task_columns(emulated)
    found.sort(key=lambda info: info.id)
    kept = ordered(found, given["sort"], table_of)
    if as_json:
        emit(tasks_document(kept, emulated, total))
    else:
        lines = rows(kept, names, table_of)
        table(names, lines, parsable=given["parsable"])
    report_truncation(len(kept), total)


def _list_jobs(
    selectors: tuple[str, ...],
    socket: Path | None,
    given: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    from hetctl.commands.jobs import list_jobs

    if selectors or given["states"] or given["user"]:
        raise click.UsageError("--jobs goes with --mine, --since and --all only")
    since = given["since"]
    if since is None and not given["every"]:
        since = now() - DAY_S
    with connect(socket) as client:
        list_jobs(client, mine=given["mine"], since=since, as_json=as_json)


def _listed_tasks(
    client: Client, selectors: tuple[str, ...], given: Mapping[str, Any]
) -> tuple[list[TaskInfo], Selection | None]:
    """Return the tasks to list, and the selection that was cut; None: tasks were named."""
    states, limit = given["states"], given["limit"]
    user = None if given["user"] is None else uid_of(given["user"])
    if selectors and selectors != ("all",):
        found = [
            info
            for info in listed(client, Selection(limit=MOST), selectors)
            if not states or info.state in states
        ]
        found = _owned_by(found, user, mine=given["mine"])
        return found, None  # named tasks are listed without a limit
    since = given["since"]
    if since is None and not given["every"] and selectors != ("all",):
        since = now() - DAY_S
    selection = Selection(
        mine=given["mine"], limit=limit, states=states, since=since, user=user
    )
    return client.tasks(selection), selection


def _owned_by(found: list[TaskInfo], user: int | None, *, mine: bool) -> list[TaskInfo]:
    owners = [f"uid:{user}"] if user is not None else []
    owners += [f"uid:{os.getuid()}"] if mine else []
    return [info for info in found if all(info.owner == owner for owner in owners)]


# ------------------------------------------------------------ show

NEXT_LINE = "\n" + 14 * " "
LONGEST = 200
"""Most characters of a parameter's or result's value; `--json` has them whole."""
LONGEST_END = 60
"""Most characters of the error that ended a segment."""


@click.command("show")
@selectors_argument
@shared
def show_command(
    *, selectors: tuple[str, ...], socket: Path | None, as_json: bool
) -> None:
    """Show the details of tasks."""
    with connect(socket) as client:
        ids = tuple(selected(client, selectors))
        found = sorted(
            client.tasks(Selection(ids=ids, detail=True)), key=lambda info: info.id
        )
        emulated = emulated_names(client)
    if not as_json:
        for info in found:
            _print_task(info, emulated)
    elif len(found) == 1:
        emit(task_document(found[0], emulated))
    else:
        emit(tasks_document(found, emulated))


def _print_task(info: TaskInfo, emulated: frozenset[str]) -> None:
    say(one_line(f"task {info.id}  {info.type}  {info.state}"))
    facts = [*_facts(info), ("where", place_of(info, emulated))]
    for name, value in [*facts, ("last output", _last_output(info))]:
        if value not in (None, "", "-", "[]", "{}", "null"):
            # indent every line of the value
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
        ("app", short_name(info.app) if is_value(info.app) else info.app),
        ("owner", info.owner),
        ("progress", f"{100 * info.progress:.1f} %"),
        ("priority", str(info.priority) if info.priority else ""),
        ("after", ", ".join(str(task) for task in info.after)),
        ("after any end of", ", ".join(str(task) for task in info.after_any)),
        ("after a failure of", ", ".join(str(task) for task in info.after_notok)),
        ("job", info.job),
        ("called by", str(info.caller) if info.caller else ""),
        ("part of", str(info.part_of) if info.part_of else ""),
        ("parts", ", ".join(str(task) for task in info.parts)),
        ("takes results of", ", ".join(str(each.task) for each in info.inputs)),
        ("kinds", ", ".join(info.kinds)),
        ("submitted", iso(info.submitted)),
        ("started", iso(info.started)),
        ("finished", iso(info.finished)),
        ("deadline", iso(info.deadline)),
        ("took", readable_duration(elapsed(info))),
        ("migrations", str(info.migrations)),
        ("energy", _energy_text(info)),
        ("snapshot", _snapshot_text(info)),
        ("lease", _lease_text(info)),
        *(program_facts(info) or [("params", _json_text(told(info.params)))]),
        ("exit code", None if info.exit_code is None else str(info.exit_code)),
        ("waits", beginning(info)),
        ("retries", f"{info.retried} of {info.retries}" if info.retries else ""),
        ("reason", info.reason),
        ("result", _json_text(told(info.result))),
        ("warnings", "\n".join(map(one_line, info.warnings))),
        ("traceback", _trace_text(info)),
    ]


def _trace_text(info: TaskInfo) -> str:
    """Return the traceback of a failed task."""
    return "\n".join(visible(line) for line in info.trace.rstrip().splitlines())


def _lease_text(info: TaskInfo) -> str | None:
    """Describe the lease of the task's submitter; None: it has none."""
    if not info.lease_s:
        return None
    name = f"{info.lease!r}, " if info.lease else ""
    period = f"{name}{info.lease_s:g} s"
    if info.fenced:
        return f"{period}: over, so the task is held until it is renewed"
    if info.lease_left_s is None:
        return period
    return f"{period}: held in {info.lease_left_s:.1f} s unless it is renewed"


def _snapshot_text(info: TaskInfo) -> str | None:
    """Describe what a loss of the worker would cost; None for an ended task."""
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


def _energy_text(info: TaskInfo) -> str | None:
    if info.joules is None:
        return None
    return f"{readable_joules(info.joules)} ({energy_source(info)})"


def _json_text(value: object) -> str:
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
        _segment_end(segment),
    )


def _segment_end(segment: Segment) -> str:
    """Return the error that ended a segment; empty if there was none."""
    if not segment.error:
        return ""
    text = one_line(segment.error)
    text = text if len(text) <= LONGEST_END else text[: LONGEST_END - 1] + "…"
    return f"failed attempt: {text}" if segment.failed_attempt else text


def _last_output(info: TaskInfo) -> str | None:
    """Return the last output of the last lost worker, with its phase; no traceback again."""
    last = info.last_output
    if last is None:
        return None
    lines, trace = [*last.lines], info.trace.splitlines()
    while lines and trace and lines[-1] == trace[-1]:
        lines.pop()
        trace.pop()
    if not lines:
        return None
    return "\n".join([f"{last.phase or 'its end'}:", *map(one_line, lines)])


# ------------------------------------------------------------ explain


@click.command("explain")
@selectors_argument
@shared
def explain_command(
    *, selectors: tuple[str, ...], socket: Path | None, as_json: bool
) -> None:
    """Explain why a task waits or runs where it does.

    For every resource: when the task would be done there if nothing else changed, what
    it would wait for, what moving it costs, and how reliable these figures are. An arrow
    marks the resource of the task.
    """
    with connect(socket) as client:
        emulated = emulated_names(client)
        found = [client.explain(task) for task in selected(client, selectors)]
    documents = [_explanation_document(each, emulated) for each in found]
    if not as_json:
        for each in found:
            _print_explanation(each, emulated)
    elif len(documents) == 1:
        emit({"format": "hetctl/explanation-1", **documents[0]})
    else:
        emit({"format": "hetctl/explanations-1", "explanations": documents})


def _explanation_document(found: Explained, emulated: frozenset[str]) -> dict[str, Any]:
    return {
        "id": found.id,
        "state": found.state,
        "why": found.why,
        "policy": found.policy or None,
        "rule": found.rule or None,
        "objective": found.objective,
        "resource": found.resource,
        "prospects": prospect_documents(found.prospects, emulated),
    }


def _print_explanation(found: Explained, emulated: frozenset[str]) -> None:
    for line in reasons(found):
        say(line)
    if found.prospects:
        say("")
        rows = prospect_rows(found.prospects, emulated, found.resource)
        table(PROSPECT_HEADINGS, rows)


# ------------------------------------------------------------ progress

WIDTH = 20
ACTIVE = ("running", "preempted")


@click.command("progress")
@optional_selectors
@shared
def progress_command(
    *, selectors: tuple[str, ...], socket: Path | None, as_json: bool
) -> None:
    """Show the progress of tasks, by default of all running ones."""
    with connect(socket) as client:
        found = listed(client, Selection(), selectors)
        emulated = emulated_names(client)
    kept = [info for info in reversed(found) if selectors or info.state in ACTIVE]
    if as_json:
        emit(
            {
                "format": "hetctl/progress-1",
                "tasks": [_progress_document(info) for info in kept],
            }
        )
        return
    headings = ("id", "type", "progress", "", "state", "where", "ran", "about left")
    table(headings, [_progress_row(info, emulated) for info in kept])


def estimated_left(info: TaskInfo) -> float | None:
    """Estimate the remaining seconds from the time so far; None: no progress yet."""
    taken = elapsed(info)
    if info.state in ENDED or taken is None or info.progress <= 0:
        return None
    return taken * (1 - info.progress) / info.progress


def _progress_document(info: TaskInfo) -> ProgressPart:
    return {
        "id": info.id,
        "state": info.state,
        "resource": info.resource,
        "progress": info.progress,
        "elapsed_s": elapsed(info),
        "left_s": estimated_left(info),
    }


def _progress_row(info: TaskInfo, emulated: frozenset[str]) -> tuple[str, ...]:
    filled = round(WIDTH * info.progress)
    return (
        str(info.id),
        info.type,
        "█" * filled + "░" * (WIDTH - filled),
        f"{100 * info.progress:.0f} %",
        info.state,
        place_of(info, emulated),
        readable_duration(elapsed(info)),
        readable_duration(estimated_left(info)),
    )
