"""`hetctl history`: tasks that ended, newest first, and what they took."""

from __future__ import annotations

import datetime as dt
import pwd
import re
import time
from typing import TYPE_CHECKING, Any

import click

from hetctl.accounting import task_account
from hetctl.energy import energy_document, readable_energy
from hetctl.options import connect, shared
from hetctl.output import emit, iso, now, table
from hetctl.output import moment as moment_text
from hetctl.places import emulated_names, marked
from hetctl.selectors import MOST, listed
from hetctl.units import Whole, parse_duration, readable_duration
from libtask.client.client import Selection
from libtask.errors import InputError, NotFoundError
from libtask.messages import ENDED
from libtask.parameters import suggestion

if TYPE_CHECKING:
    from pathlib import Path

    from hetctl.accounting import TaskAccount
    from hetctl.documents.accounts import PastTaskPart
    from libtask.client.client import Client
    from libtask.messages import TaskInfo

HEADINGS = (
    "id",
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
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")


class Moment(click.ParamType[float]):
    """A time, or how long ago it was; in seconds since the epoch."""

    name = "time|duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return moment(value, now())
        except (ValueError, OverflowError):
            expected = "a time such as 2026-01-02T03:04 or 14:30, or a duration as 2h"
            self.fail(f"expected {expected}, got {value!r}", param, ctx)


def moment(text: str, now_s: float) -> float:
    """Read a time (of day: today's; without a zone: local), or a duration before now.

    Raises:
        ValueError: neither.

    """
    try:
        return now_s - parse_duration(text)
    except ValueError:
        pass  # then it is a time
    if _TIME_OF_DAY.fullmatch(text.strip()):
        today = dt.datetime.fromtimestamp(now_s, dt.UTC).astimezone().date()
        hour, _, rest = text.strip().partition(":")
        text = f"{today}T{hour.zfill(2)}:{rest}"
    return dt.datetime.fromisoformat(text).timestamp()


@click.command("history")
@click.argument("selectors", nargs=-1, metavar="[SELECTOR]...")
@click.option("--app", "apps", multiple=True, help="Only this application.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(sorted(ENDED)),
    help="Only these.",
)
@click.option("--user", "users", multiple=True, help="Only his: a name or a number.")
@click.option(
    "--on", "resources", multiple=True, help="Only what ran on this resource."
)
@click.option("--since", type=Moment(), help="Only ended since; 14:30, or 2h ago: 2h.")
@click.option(
    "--limit",
    type=Whole(1),
    default=100,
    show_default=True,
    help="At most so many, the newest.",
)
@shared
def history_command(  # noqa: PLR0913  one argument an option
    *,
    selectors: tuple[str, ...],
    apps: tuple[str, ...],
    states: tuple[str, ...],
    users: tuple[str, ...],
    resources: tuple[str, ...],
    since: float | None,
    limit: int,
    socket: Path | None,
    as_json: bool,
) -> None:
    """List tasks that ended, newest first."""
    owners = {owner_of(user) for user in users}
    with connect(socket) as client:
        found = [
            info
            for info in listed(client, Selection(limit=MOST), selectors)
            if info.state in (states or ENDED)
            and (not apps or info.app in apps)
            and (not owners or info.owner in owners)
            and (since is None or _ended(info) >= since)
        ]
        found = _been_on(client, found, resources) if resources else found
        found.sort(key=lambda info: (_ended(info), info.id), reverse=True)
        accounts = _full(client, found[:limit])
        emulated = emulated_names(client)
    if as_json:
        tasks = [_document(each, emulated) for each in accounts]
        emit({"format": "hetctl/history-1", "tasks": tasks})
    else:
        table(HEADINGS, [_row(each, emulated) for each in accounts])


def owner_of(user: str) -> str:
    """Return a user, named or numbered, in the form in which tasks name their owners.

    Raises:
        InputError: no such user on this machine.

    """
    if user.isdigit():
        return f"uid:{user}"
    try:
        return f"uid:{pwd.getpwnam(user).pw_uid}"
    except KeyError as error:
        raise InputError(f"--user: no user {user!r} on this machine") from error


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


def _row(account: TaskAccount, emulated: frozenset[str]) -> tuple[str, ...]:
    info = account.task
    return (
        str(info.id),
        info.app,
        info.type,
        info.state,
        " → ".join(_visit(*place, emulated) for place in account.places) or "-",
        _date_and_time(info.started),
        readable_duration(account.waited),
        readable_duration(account.ran),
        str(info.migrations),
        readable_energy(account.energy),
    )


def _visit(name: str, failed: bool, emulated: frozenset[str]) -> str:  # noqa: FBT001  the two halves of a place
    shown = marked(name, emulated)
    return f"{shown} (failed)" if failed else shown


def _date_and_time(seconds: float | None) -> str:
    """Write a moment as local time, with its date: a history spans days."""
    if seconds is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
