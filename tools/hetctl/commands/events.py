"""`hetctl events`: what happened to tasks, and with `-f` what happens next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from hetctl.completing import selectors as selectors_there
from hetctl.options import connect, shared
from hetctl.output import date_and_time, emit, moment
from hetctl.places import emulated_names, marked
from hetctl.selectors import MOST, listed, selected
from hetctl.terminal import say
from hetctl.users import shown_owner
from libtask.client.client import Selection
from libtask.messages import ENDED, Note, TaskChanged
from libtask.plaintext import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from hetctl.documents.tasks import EventLine
    from libtask.client.client import Client
    from libtask.messages import TaskInfo, TaskState


@click.command("events")
@click.argument(
    "selectors", nargs=-1, metavar="[SELECTOR]...", shell_complete=selectors_there
)
@click.option(
    "-f", "--follow", is_flag=True, help="Go on; with tasks named, until they end."
)
@click.option("--progress", is_flag=True, help="Progress too, when following.")
@shared
def events_command(
    *,
    selectors: tuple[str, ...],
    follow: bool,
    progress: bool,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Print what happened to tasks, in order of time; one JSON object a line with --json.

    Where none are named, what happened to the node is told as well: policies set,
    resources drained. Followed tasks that are named are told of from their submission.
    """
    with connect(socket) as client:
        emulated = emulated_names(client)
        changes: Iterator[TaskChanged | Note]
        if follow:
            changes = _live(client, selectors, progress=progress)
        else:
            changes = _all(client, selectors)
        for change in changes:
            _print(change, emulated, as_json=as_json)


def _all(client: Client, selectors: tuple[str, ...]) -> Iterator[TaskChanged | Note]:
    """Tell the story of tasks; where none are named, what happened to the node too."""
    tasks = listed(client, Selection(detail=True, limit=MOST), selectors)
    notes = [] if selectors else client.notes()
    story: list[TaskChanged | Note] = [*past(tasks), *notes]
    return iter(sorted(story, key=lambda each: each.at))


def past(tasks: list[TaskInfo]) -> Iterator[TaskChanged]:
    """Tell the story of tasks from their records."""
    yield from sorted(
        (change for info in tasks for change in _whole_story(info)),
        key=lambda each: each.at,
    )


def _whole_story(info: TaskInfo) -> Iterator[TaskChanged]:
    return _with_states(sorted(_story(info), key=lambda each: each.at))


def _story(info: TaskInfo) -> Iterator[TaskChanged]:
    def change(at: float, what: str, state: Any, **more: Any) -> TaskChanged:
        return TaskChanged(info.id, state, at, what=what, type=info.type, **more)

    held = any(each.what == "hold" for each in info.orders[:1])
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
    """Tell what users ordered of a task."""
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
    """Give orders the state that they led to, or left as it was, in a story in order."""
    before: TaskState = "queued"
    for change in story:
        told = change
        if change.by and (before == "running" or change.what not in _ORDERED):
            told = msgspec.structs.replace(change, state=before)
        before = told.state
        yield told


_ORDERED: dict[str, TaskState] = {
    "hold": "held",
    "release": "queued",
    "cancel": "cancelled",
}
"""What becomes by an order of a task that does not run; one that runs goes on to its next
checkpoint."""


def _live(
    client: Client, selectors: tuple[str, ...], *, progress: bool
) -> Iterator[TaskChanged]:
    ids = selected(client, selectors, live=True)
    with client.watch(*ids, progress=progress) as changes:
        infos = _now(client, ids)
        told = {info.id: _latest(info) for info in infos}
        yield from past(infos)
        ended = {info.id for info in infos if info.state in ENDED}
        while not ids or len(ended) < len(ids):
            change = next(changes)
            if change.at > told.get(change.id, 0.0):
                yield change
            if change.state in ENDED:
                ended.add(change.id)


def _now(client: Client, ids: list[int]) -> list[TaskInfo]:
    return client.tasks(Selection(ids=tuple(ids), detail=True)) if ids else []


def _latest(info: TaskInfo) -> float:
    """Return the time of the newest event that the record of a task tells of."""
    return max(change.at for change in _story(info))


def _print(
    change: TaskChanged | Note, emulated: frozenset[str], *, as_json: bool
) -> None:
    if as_json:
        emit(_document(change, emulated))
        return
    if isinstance(change, Note):
        say(one_line(f"{date_and_time(change.at)}  {change.what}: {change.text}"))
        return
    where = f" on {marked(change.resource, emulated)}" if change.resource else ""
    share = f" {100 * change.progress:.0f} %" if change.what == "progress" else ""
    state = f" ({change.state})" if change.what != change.state else ""
    reason = f": {change.reason}" if change.reason else ""
    by = f" by {shown_owner(change.by)}" if change.by else ""
    what = f"{change.type} {change.what}{where}{share}{state}{by}{reason}"
    say(one_line(f"{date_and_time(change.at)}  task {change.id} {what}"))


def _document(change: TaskChanged | Note, emulated: frozenset[str]) -> EventLine:
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
        "result": change.result,
        "by": change.by or None,
    }
