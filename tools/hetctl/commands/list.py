"""`hetctl list`: tasks as a table, newest last, as one reads a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import click

from hetctl.options import connect, shared
from hetctl.output import clock_time, emit, table, tasks_document
from hetctl.places import elapsed, emulated_names, place_of
from hetctl.selectors import MOST, listed
from hetctl.units import Whole, readable_duration
from libtask.client.client import Selection
from libtask.messages import TaskState

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.messages import TaskInfo

HEADINGS = (
    "id",
    "type",
    "state",
    "where",
    "done",
    "moves",
    "submitted",
    "took",
    "note",
)


@click.command("list")
@click.argument("selectors", nargs=-1, metavar="[SELECTOR]...")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(get_args(TaskState)),
    help="Only these.",
)
@click.option("--mine", is_flag=True, help="Only my own tasks.")
@click.option(
    "--limit",
    type=Whole(1),
    default=1000,
    show_default=True,
    help="At most so many, the newest.",
)
@shared
def list_command(  # noqa: PLR0913  one argument an option
    *,
    selectors: tuple[str, ...],
    states: tuple[str, ...],
    mine: bool,
    limit: int,
    socket: Path | None,
    as_json: bool,
) -> None:
    """List tasks."""
    with connect(socket) as client:
        # what matches may be older than any number of tasks that do not
        reach = MOST if states else limit
        found = listed(client, Selection(mine=mine, limit=reach), selectors)
        emulated = emulated_names(client)
    kept = [info for info in found if not states or info.state in states]
    kept.sort(key=lambda info: info.id)
    if not selectors:  # tasks that are named are listed, however many
        kept = kept[-limit:]
    if as_json:
        emit(tasks_document(kept, emulated))
    else:
        table(HEADINGS, [_row(info, emulated) for info in kept])


def _row(info: TaskInfo, emulated: frozenset[str]) -> tuple[str, ...]:
    return (
        str(info.id),
        info.type,
        info.state,
        place_of(info, emulated),
        f"{100 * info.progress:.0f} %",
        str(info.migrations),
        clock_time(info.submitted),
        readable_duration(elapsed(info)),
        info.reason or info.name,
    )
