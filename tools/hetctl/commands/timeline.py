"""`hetctl gantt`, `trace`, `events`: what ran where and when, as pictures, files and lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec

from hetctl.options import connect, lacking, optional_selectors, shared
from hetctl.output import (
    date_and_time,
    emit,
    moment,
    now,
    say,
    say_json,
    short_type,
)
from hetctl.selectors import (
    MOST,
    RECENT,
    lately,
    listed,
    of_newest,
    selected,
    since_option,
)
from hetctl.views.places import emulated_names, marked
from hetctl.views.users import shown_owner
from libtask.client.client import Selection
from libtask.errors import InputError, NotFoundError
from libtask.messages import ENDED, Note, TaskChanged
from libtask.plaintext import one_line
from libtask.results import told

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hetctl.documents.tasks import EventLine
    from hetctl.export.lanes import Bar, Lane
    from libtask.client.client import Client
    from libtask.messages import TaskInfo, TaskState


# ------------------------------------------------------------ gantt

PAGE = ".html"
SUFFIXES = (".png", ".svg", ".pdf", PAGE)


@click.command("gantt")
@optional_selectors
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="gantt.png",
    show_default=True,
    help="File to write: .png, .svg, .pdf, or .html for an interactive page.",
)
@since_option
@shared
def gantt_command(
    *,
    selectors: tuple[str, ...],
    output: Path,
    since: float | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Draw a Gantt chart of tasks, by default of those since the last idle hour."""
    check_output(output)
    with connect(socket) as client:
        tasks = lately(client, selectors, since)
        devices = client.devices()
    ran = [info for info in tasks if info.segments]
    if not ran:
        raise NotFoundError("none of these tasks has run yet")
    from hetctl.export.lanes import laid_out

    lanes, bars = laid_out(ran, devices, now())
    if output.suffix == PAGE:
        write_page(lanes, bars, output)
    else:
        draw_chart(lanes, bars, output)
    if as_json:
        emit(
            {
                "format": "hetctl/gantt-1",
                "file": str(output),
                "tasks": [i.id for i in ran],
            }
        )
    else:
        say(f"{output}: {len(ran)} tasks drawn")


def check_output(output: Path) -> None:
    """Check the name of a picture's file.

    Raises:
        InputError: another suffix, or no such folder.

    """
    if output.suffix not in SUFFIXES:
        raise InputError(
            f"{output}: expected a name that ends in {', '.join(SUFFIXES)}"
        )
    if not output.absolute().parent.is_dir():
        raise InputError(f"{output}: no such folder")


def write_page(lanes: list[Lane], bars: list[Bar], output: Path) -> None:
    """Write the interactive page.

    Raises:
        InputError: the file cannot be written.

    """
    from hetctl.export.page import write_page as write

    try:
        write(lanes, bars, output)
    except OSError as error:
        raise InputError(f"{output}: {error.strerror}") from error


def draw_chart(lanes: list[Lane], bars: list[Bar], output: Path) -> None:
    """Draw the static picture.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.

    """
    try:
        from hetctl.export.chart import draw
    except ImportError as error:
        raise InputError(lacking("pictures need", "matplotlib", "plots")) from error
    try:
        draw(lanes, bars, output)
    except OSError as error:
        raise InputError(f"{output}: {error.strerror}") from error


# ------------------------------------------------------------ trace


@click.command("trace")
@optional_selectors
@click.option(
    "--format",
    "form",
    type=click.Choice(["scenario", "chrome"]),
    default="scenario",
    show_default=True,
    help="Output format: scenario for `hetsim run`, chrome for ui.perfetto.dev.",
)
@click.option(
    "--contention",
    is_flag=True,
    help="With what the resources share, and the times that tasks are expected to take "
    "alone instead of the measured ones.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write to this file instead of standard output.",
)
@since_option
@shared
def trace_command(  # noqa: PLR0913  one argument an option
    *,
    selectors: tuple[str, ...],
    form: Literal["scenario", "chrome"],
    contention: bool,
    output: Path | None,
    since: float | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Write past tasks as a scenario or a trace, by default those since the last idle hour.

    The output is always JSON.
    """
    if contention and form == "chrome":
        raise InputError("--contention is for scenarios, not for --format chrome")
    with connect(socket) as client:
        tasks = lately(client, selectors, since)
        document = (
            _chrome_document(client, tasks)
            if form == "chrome"
            else _scenario_document(client, tasks, contended=contention)
        )
    text = msgspec.json.format(
        msgspec.json.encode(document), indent=0 if as_json else 2
    )
    if output is None:
        say_json(text)
        return
    write_trace(output, text)
    if not as_json:
        say(f"{output}: {_written(tasks, document)} written")


def _chrome_document(client: Client, tasks: list[TaskInfo]) -> Mapping[str, Any]:
    from hetctl.export.perfetto import chrome_document

    since = min((info.submitted for info in tasks), default=now())
    return chrome_document(tasks, client.devices(), now(), client.notes(since))


def _scenario_document(
    client: Client, tasks: list[TaskInfo], *, contended: bool
) -> Mapping[str, Any]:
    from hetctl.export.contention import contention_of
    from hetctl.export.scenario import ScenarioWriter

    found = contention_of(client, tasks) if contended else None
    if found is not None and not found.shared:
        text = "nothing is declared to be shared; see [contention] in hetd.toml"
        raise InputError(f"--contention: {text}")
    writer = ScenarioWriter(client.devices(), client.models(), client.policy(), found)
    document = writer.document(tasks)
    for name in writer.unknown:
        say(f"left out {name}: none of its tasks completed without a move", err=True)
    return document


def _written(tasks: list[TaskInfo], document: Mapping[str, Any]) -> str:
    """Say how many of the tasks a document contains; a scenario leaves some out."""
    count = len(document["tasks"]) if "tasks" in document else len(tasks)
    of = f" of {len(tasks)}" if count < len(tasks) else ""
    return f"{count}{of} task{'s' * (len(tasks) != 1)}"


def write_trace(output: Path, text: bytes) -> None:
    """Write a trace.

    Raises:
        InputError: the file cannot be written.

    """
    try:
        output.write_bytes(text + b"\n")
    except OSError as error:
        raise InputError(f"{output}: {error.strerror}") from error


# ------------------------------------------------------------ events


@click.command("events")
@optional_selectors
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Follow new events; with selectors, until the tasks end.",
)
@click.option("--progress", is_flag=True, help="Also print progress when following.")
@shared
def events_command(
    *,
    selectors: tuple[str, ...],
    follow: bool,
    progress: bool,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Print the events of tasks in order of time; with --json, one object per line.

    Without selectors, events of the node are included: policies set, resources drained.
    With selectors and -f, the events start with each task's submission.
    """
    with connect(socket) as client:
        emulated = emulated_names(client)
        changes: Iterator[TaskChanged | Note]
        if follow:
            changes = _live_events(client, selectors, progress=progress)
        else:
            changes = _recorded_events(client, selectors)
        for change in changes:
            _print_event(change, emulated, as_json=as_json)


def _recorded_events(
    client: Client, selectors: tuple[str, ...]
) -> Iterator[TaskChanged | Note]:
    """Return the recorded events of tasks; without selectors, those of the node too."""
    limit = MOST if selectors else RECENT + 1
    found = listed(client, Selection(detail=True, limit=limit), selectors)
    tasks = found if selectors else list(of_newest(found))
    notes = [] if selectors else client.notes()
    story: list[TaskChanged | Note] = [*past(tasks), *notes]
    return iter(sorted(story, key=lambda each: each.at))


def past(tasks: list[TaskInfo]) -> Iterator[TaskChanged]:
    """Yield the events of tasks from their records, in order of time."""
    yield from sorted(
        (change for info in tasks for change in _whole_story(info)),
        key=lambda each: each.at,
    )


def _whole_story(info: TaskInfo) -> Iterator[TaskChanged]:
    return _with_states(sorted(_story(info), key=lambda each: each.at))


def _story(info: TaskInfo) -> Iterator[TaskChanged]:
    def change(at: float, what: str, state: Any, **more: Any) -> TaskChanged:
        return TaskChanged(info.id, state, at, what=what, type=info.type, **more)

    held = any(
        each.what == "hold" and each.at <= info.submitted for each in info.orders[:1]
    )
    first = "held" if held else "waiting" if info.after else "queued"
    yield change(info.submitted, "submitted", first)
    yield from _orders(info)
    for number, segment in enumerate(info.segments):
        what = "started" if number == 0 else "continued"
        yield change(segment.start, what, "running", resource=segment.resource)
        if segment.finish is None or number + 1 == len(info.segments):
            continue
        if segment.error:
            yield change(
                segment.finish,
                "retried",
                "queued",
                resource=segment.resource,
                reason=segment.error,
            )
        else:
            yield change(
                segment.finish, "yielded", "preempted", resource=segment.resource
            )
    if info.finished is not None:
        yield change(
            info.finished,
            "ended",
            info.state,
            resource=info.resource,
            progress=info.progress,
            reason=info.reason,
        )


def _orders(info: TaskInfo) -> Iterator[TaskChanged]:
    """Yield the users' orders about a task as events."""
    for order in info.orders:
        yield TaskChanged(
            info.id,
            _ORDERED.get(order.what, "queued"),
            order.at,
            what=order.what,
            type=info.type,
            reason=order.text or None,
            by=f"uid:{order.by}",
        )


def _with_states(story: Iterable[TaskChanged]) -> Iterator[TaskChanged]:
    """Set the state after each order, in events in order of time."""
    before: TaskState = "queued"
    for change in story:
        event = change
        if change.by and (before == "running" or change.what not in _ORDERED):
            event = msgspec.structs.replace(change, state=before)
        before = event.state
        yield event


_ORDERED: dict[str, TaskState] = {
    "hold": "held",
    "release": "queued",
    "cancel": "cancelled",
}
"""State of a task that does not run after an order; a running one goes on to its next
checkpoint."""


def _live_events(
    client: Client, selectors: tuple[str, ...], *, progress: bool
) -> Iterator[TaskChanged]:
    ids = selected(client, selectors, live=True)
    with client.watch(*ids, progress=progress) as changes:
        infos = _current_records(client, ids)
        printed = {info.id: _latest(info) for info in infos}
        yield from past(infos)
        ended = {info.id for info in infos if info.state in ENDED}
        while not ids or len(ended) < len(ids):
            change = next(changes)
            if change.at > printed.get(change.id, 0.0):
                yield change
            if change.state in ENDED:
                ended.add(change.id)


def _current_records(client: Client, ids: list[int]) -> list[TaskInfo]:
    return client.tasks(Selection(ids=tuple(ids), detail=True)) if ids else []


def _latest(info: TaskInfo) -> float:
    """Return the time of the newest event in the record of a task."""
    return max(change.at for change in _story(info))


def _print_event(
    change: TaskChanged | Note, emulated: frozenset[str], *, as_json: bool
) -> None:
    if as_json:
        emit(_event_document(change, emulated))
        return
    if isinstance(change, Note):
        say(one_line(f"{date_and_time(change.at)}  {change.what}: {change.text}"))
        return
    where = f" on {marked(change.resource, emulated)}" if change.resource else ""
    share = f" {100 * change.progress:.0f} %" if change.what == "progress" else ""
    state = f" ({change.state})" if change.what != change.state else ""
    reason = f": {change.reason}" if change.reason else ""
    by = f" by {shown_owner(change.by)}" if change.by else ""
    what = f"{short_type(change.type)} {change.what}{where}{share}{state}{by}{reason}"
    say(one_line(f"{date_and_time(change.at)}  task {change.id} {what}"))


def _event_document(change: TaskChanged | Note, emulated: frozenset[str]) -> EventLine:
    if isinstance(change, Note):
        return {
            "format": "hetctl/event-1",
            "at": moment(change.at),
            "id": None,
            "type": "",
            "what": change.what,
            "state": None,
            "resource": change.resource,
            "emulated": change.resource in emulated,
            "progress": 0.0,
            "reason": change.text,
            "result": None,
            "by": None,
        }
    return _of_task(change, emulated)


def _of_task(change: TaskChanged, emulated: frozenset[str]) -> EventLine:
    return {
        "format": "hetctl/event-1",
        "at": moment(change.at),
        "id": change.id,
        "type": change.type,
        "what": change.what,
        "state": change.state,
        "resource": change.resource,
        "emulated": change.resource in emulated,
        "progress": change.progress,
        "reason": change.reason,
        "result": told(change.result),
        "by": change.by or None,
    }
