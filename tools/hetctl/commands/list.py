"""`hetctl list`: tasks as a table, newest last, as one reads a terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, get_args

import click

from hetctl.columns import Column, arranged, chosen, ordered, rows
from hetctl.completing import selectors as selectors_there
from hetctl.moments import Moment
from hetctl.options import connect, shared
from hetctl.output import clock_time, emit, now, table, tasks_document
from hetctl.places import elapsed, emulated_names, place_of, waited
from hetctl.selectors import MOST, listed
from hetctl.terminal import say
from hetctl.units import Whole, readable_duration, readable_joules
from hetctl.users import shown_owner, uid_of
from libtask.client.client import Selection
from libtask.messages import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from libtask.client.client import Client
    from libtask.messages import TaskInfo

DAY_S = 86_400.0
"""How long after their end tasks are listed, where nothing else is said."""
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
"""The columns that are shown where none are chosen."""


def columns(emulated: frozenset[str]) -> dict[str, Column[TaskInfo]]:
    """Return the columns that there are."""
    return {
        "id": Column(lambda info: str(info.id), lambda info: info.id),
        "name": Column(lambda info: info.name or "-", lambda info: info.name or None),
        "app": Column(lambda info: info.app, lambda info: info.app),
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
        "kinds": Column(lambda info: ",".join(info.kinds), lambda info: info.kinds),
        "energy": Column(
            lambda info: "-" if info.joules is None else readable_joules(info.joules),
            lambda info: info.joules,
        ),
        "note": Column(lambda info: info.reason or "", lambda info: info.reason),
    }


@click.command("list")
@click.argument(
    "selectors", nargs=-1, metavar="[SELECTOR]...", shell_complete=selectors_there
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(get_args(TaskState)),
    help="Only these.",
)
@click.option("--mine", is_flag=True, help="Only my own tasks.")
@click.option("--user", help="Only the tasks of a user: a name or a number.")
@click.option("--all", "every", is_flag=True, help="However long ago they ended.")
@click.option(
    "--since", type=Moment(), help="Ended since, if they have; 14:30, or 2h ago: 2h."
)
@click.option(
    "--limit",
    type=Whole(1),
    default=LIMIT,
    show_default=True,
    help="At most so many, the newest.",
)
@arranged
@shared
def list_command(
    *, selectors: tuple[str, ...], socket: Path | None, as_json: bool, **given: Any
) -> None:
    """List tasks that have not ended, and those that ended within a day.

    Columns for -o and --sort: id, name, app, type, state, where, done, moves, submitted,
    started, finished, waited, took, user, priority, deadline, kinds, energy, note.
    """
    # before the daemon is asked
    names = chosen(given["fields"], columns(frozenset()), SHOWN)
    ordered([], given["sort"], columns(frozenset()))
    with connect(socket) as client:
        found, total = _found(client, selectors, given)
        emulated = emulated_names(client)
    table_of = columns(emulated)
    found.sort(key=lambda info: info.id)
    kept = ordered(found, given["sort"], table_of)
    if as_json:
        emit(tasks_document(kept, emulated, total))
    else:
        lines = rows(kept, names, table_of)
        table(names, lines, parsable=given["parsable"])
    tell_rest(len(kept), total)


def _found(
    client: Client, selectors: tuple[str, ...], given: Mapping[str, Any]
) -> tuple[list[TaskInfo], int]:
    """Return the tasks to list, and how many there are in all."""
    states, limit = given["states"], given["limit"]
    user = None if given["user"] is None else uid_of(given["user"])
    if selectors and selectors != ("all",):
        found = [
            info
            for info in listed(client, Selection(limit=MOST), selectors)
            if not states or info.state in states
        ]
        found = _of_users(found, user, mine=given["mine"])
        return found, len(found)  # tasks that are named are listed, however many
    since = given["since"]
    if since is None and not given["every"] and selectors != ("all",):
        since = now() - DAY_S
    selection = Selection(
        mine=given["mine"], limit=limit, states=states, since=since, user=user
    )
    found = client.tasks(selection)
    total = client.count(selection) if len(found) == limit else len(found)
    return found, total


def _of_users(found: list[TaskInfo], user: int | None, *, mine: bool) -> list[TaskInfo]:
    owners = [f"uid:{user}"] if user is not None else []
    owners += [f"uid:{os.getuid()}"] if mine else []
    return [info for info in found if all(info.owner == owner for owner in owners)]


def tell_rest(shown: int, total: int) -> None:
    """Say on standard error that there are more than were listed."""
    if shown < total:
        say(
            f"hetctl: the newest {shown} of {total}; --limit {total} lists all",
            err=True,
        )
