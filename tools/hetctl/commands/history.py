"""`hetctl history`: tasks that ended, newest first, and what they took."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from hetctl.accounting import task_account
from hetctl.columns import Column, arranged, chosen, ordered, rows
from hetctl.commands.list import tell_rest
from hetctl.completing import applications
from hetctl.completing import resources as resources_there
from hetctl.completing import selectors as selectors_there
from hetctl.energy import energy_document, readable_energy
from hetctl.moments import Moment
from hetctl.options import connect, shared
from hetctl.output import date_and_time, emit, iso, now, table
from hetctl.output import moment as moment_text
from hetctl.places import emulated_names, marked
from hetctl.selectors import MOST, listed
from hetctl.units import Whole, readable_duration
from hetctl.users import owner_of, shown_owner
from libtask.client.client import Selection
from libtask.errors import NotFoundError
from libtask.messages import ENDED
from libtask.parameters import suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hetctl.accounting import TaskAccount
    from hetctl.documents.accounts import PastTaskPart
    from libtask.client.client import Client
    from libtask.messages import TaskInfo

SHOWN = (
    "id",
    "name",
    "app",
    "type",
    "state",
    "where",
    "started",
    "waited",
    "ran",
    "moves",
    "energy",
)
"""The columns that are shown where none are chosen."""


def columns(emulated: frozenset[str]) -> dict[str, Column[TaskAccount]]:
    """Return the columns that there are."""
    return {
        "id": Column(lambda each: str(each.task.id), lambda each: each.task.id),
        "name": Column(
            lambda each: each.task.name or "-", lambda each: each.task.name or None
        ),
        "app": Column(lambda each: each.task.app, lambda each: each.task.app),
        "type": Column(lambda each: each.task.type, lambda each: each.task.type),
        "state": Column(lambda each: each.task.state, lambda each: each.task.state),
        "where": Column(lambda each: _visits(each, emulated), lambda each: each.places),
        "submitted": Column(
            lambda each: date_and_time(each.task.submitted),
            lambda each: each.task.submitted,
        ),
        "started": Column(
            lambda each: date_and_time(each.task.started),
            lambda each: each.task.started,
        ),
        "finished": Column(
            lambda each: date_and_time(each.task.finished),
            lambda each: each.task.finished,
        ),
        "waited": Column(
            lambda each: readable_duration(each.waited), lambda each: each.waited
        ),
        "ran": Column(lambda each: readable_duration(each.ran), lambda each: each.ran),
        "failed": Column(
            lambda each: readable_duration(each.failed), lambda each: each.failed
        ),
        "moves": Column(
            lambda each: str(each.task.migrations), lambda each: each.task.migrations
        ),
        "energy": Column(
            lambda each: readable_energy(each.energy), lambda each: each.energy.joules
        ),
        "user": Column(
            lambda each: shown_owner(each.task.owner), lambda each: each.task.owner
        ),
        "note": Column(
            lambda each: each.task.reason or "", lambda each: each.task.reason
        ),
    }


@click.command("history")
@click.argument(
    "selectors", nargs=-1, metavar="[SELECTOR]...", shell_complete=selectors_there
)
@click.option(
    "--app",
    "apps",
    multiple=True,
    shell_complete=applications,
    help="Only this application.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(sorted(ENDED)),
    help="Only these.",
)
@click.option("--mine", is_flag=True, help="Only my own tasks.")
@click.option(
    "--user", "users", multiple=True, help="Only this user's: a name or a number."
)
@click.option(
    "--on",
    "resources",
    multiple=True,
    shell_complete=resources_there,
    help="Only what ran on this resource.",
)
@click.option("--since", type=Moment(), help="Only ended since; 14:30, or 2h ago: 2h.")
@click.option(
    "--limit",
    type=Whole(1),
    default=100,
    show_default=True,
    help="At most so many, the newest.",
)
@arranged
@shared
def history_command(
    *, selectors: tuple[str, ...], socket: Path | None, as_json: bool, **given: Any
) -> None:
    """List tasks that ended, newest first.

    Columns for -o and --sort: id, name, app, type, state, where, submitted, started,
    finished, waited, ran, failed, moves, energy, user, note.
    """
    # before the daemon is asked
    names = chosen(given["fields"], columns(frozenset()), SHOWN)
    ordered([], given["sort"], columns(frozenset()))
    with connect(socket) as client:
        found = _found(client, selectors, given)
        found.sort(key=lambda info: (_ended(info), info.id), reverse=True)
        accounts = _full(client, found[: given["limit"]])
        emulated = emulated_names(client)
    table_of = columns(emulated)
    accounts = ordered(accounts, given["sort"], table_of)
    if as_json:
        tasks = [_document(each, emulated) for each in accounts]
        emit(
            {
                "format": "hetctl/history-1",
                "tasks": tasks,
                "total": len(found),
                "truncated": len(found) > len(tasks),
            }
        )
    else:
        lines = rows(accounts, names, table_of)
        table(names, lines, parsable=given["parsable"])
    tell_rest(len(accounts), len(found))


def _found(
    client: Client, selectors: tuple[str, ...], given: Mapping[str, Any]
) -> list[TaskInfo]:
    """Return the ended tasks that fit what was asked for."""
    states, since, apps = given["states"], given["since"], given["apps"]
    owners = {owner_of(user) for user in given["users"]}
    if given["mine"]:
        owners.add(f"uid:{os.getuid()}")
    selection = Selection(limit=MOST, states=states or tuple(ENDED), since=since)
    found = [
        info
        for info in listed(client, selection, selectors)
        if info.state in (states or ENDED)
        and (not apps or info.app in apps)
        and (not owners or info.owner in owners)
        and (since is None or _ended(info) >= since)
    ]
    resources = given["resources"]
    return _been_on(client, found, resources) if resources else found


def _been_on(
    client: Client, tasks: list[TaskInfo], resources: tuple[str, ...]
) -> list[TaskInfo]:
    """Keep those that ever ran on one of these resources; only full records tell."""
    known = {device.spec.name for device in client.devices()}
    for name in set(resources) - known:
        offered = ", ".join(sorted(known))
        hint = suggestion(name, known)
        raise NotFoundError(f"no resource {name!r}{hint}; there are: {offered}")
    ids = tuple(info.id for info in tasks)
    full = client.tasks(Selection(ids=ids, detail=True)) if ids else []
    been = {i.id for i in full if {s.resource for s in i.segments} & set(resources)}
    return [info for info in tasks if info.id in been]


def _ended(info: TaskInfo) -> float:
    return info.submitted if info.finished is None else info.finished


def _full(client: Client, chosen: list[TaskInfo]) -> list[TaskAccount]:
    """Ask for the full records of those to show only, and keep their order."""
    if not chosen:
        return []
    ids = tuple(info.id for info in chosen)
    full = {info.id: info for info in client.tasks(Selection(ids=ids, detail=True))}
    return [task_account(full[number], now()) for number in ids]


def _document(account: TaskAccount, emulated: frozenset[str]) -> PastTaskPart:
    info = account.task
    return {
        "id": info.id,
        "app": info.app,
        "type": info.type,
        "state": info.state,
        "owner": info.owner,
        "name": info.name,
        "resources": [
            {"resource": name, "emulated": name in emulated, "failed": failed}
            for name, failed in account.places
        ],
        "submitted": moment_text(info.submitted),
        "started": iso(info.started),
        "finished": iso(info.finished),
        "waited_s": account.waited,
        "ran_s": account.ran,
        "failed_s": account.failed,
        "migrations": info.migrations,
        **energy_document(account.energy),
        "reason": info.reason,
    }


def _visits(account: TaskAccount, emulated: frozenset[str]) -> str:
    return " → ".join(_visit(*place, emulated) for place in account.places) or "-"


def _visit(name: str, failed: bool, emulated: frozenset[str]) -> str:  # noqa: FBT001  the two halves of a place
    shown = marked(name, emulated)
    return f"{shown} (failed)" if failed else shown
