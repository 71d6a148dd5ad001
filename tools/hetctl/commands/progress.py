"""`hetctl progress`: how far running tasks are, and how long they may still take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hetctl.completing import selectors as selectors_there
from hetctl.options import connect, shared
from hetctl.output import emit, table
from hetctl.places import elapsed, emulated_names, place_of
from hetctl.selectors import listed
from hetctl.units import readable_duration
from libtask.client.client import Selection
from libtask.messages import ENDED

if TYPE_CHECKING:
    from pathlib import Path

    from hetctl.documents.tasks import ProgressPart
    from libtask.messages import TaskInfo

WIDTH = 20
ACTIVE = ("running", "preempted")


@click.command("progress")
@click.argument(
    "selectors", nargs=-1, metavar="[SELECTOR]...", shell_complete=selectors_there
)
@shared
def progress_command(
    *, selectors: tuple[str, ...], socket: Path | None, as_json: bool
) -> None:
    """Show how far tasks are; none named: those that run."""
    with connect(socket) as client:
        found = listed(client, Selection(), selectors)
        emulated = emulated_names(client)
    kept = [info for info in reversed(found) if selectors or info.state in ACTIVE]
    if as_json:
        emit(
            {"format": "hetctl/progress-1", "tasks": [_document(info) for info in kept]}
        )
        return
    headings = ("id", "type", "progress", "", "state", "where", "ran", "about left")
    table(headings, [_row(info, emulated) for info in kept])


def left(info: TaskInfo) -> float | None:
    """Estimate the seconds to the end from the time so far; None: nothing to go by."""
    taken = elapsed(info)
    if info.state in ENDED or taken is None or info.progress <= 0:
        return None
    return taken * (1 - info.progress) / info.progress


def _document(info: TaskInfo) -> ProgressPart:
    return {
        "id": info.id,
        "state": info.state,
        "resource": info.resource,
        "progress": info.progress,
        "elapsed_s": elapsed(info),
        "left_s": left(info),
    }


def _row(info: TaskInfo, emulated: frozenset[str]) -> tuple[str, ...]:
    filled = round(WIDTH * info.progress)
    return (
        str(info.id),
        info.type,
        "█" * filled + "░" * (WIDTH - filled),
        f"{100 * info.progress:.0f} %",
        info.state,
        place_of(info, emulated),
        readable_duration(elapsed(info)),
        readable_duration(left(info)),
    )
