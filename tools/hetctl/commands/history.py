"""`hetctl history` and `hetctl report`: past tasks, and the time and energy they took."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from hetctl.commands.jobs import HEADINGS as JOB_HEADINGS
from hetctl.commands.jobs import job_document, job_row
from hetctl.completing import applications
from hetctl.completing import resources as resources_there
from hetctl.export.scenario import lower_bound
from hetctl.options import connect, optional_selectors, shared
from hetctl.output import date_and_time, emit, iso, moment, now, say, table
from hetctl.output import moment as moment_text
from hetctl.selectors import MOST, lately, listed, since_option
from hetctl.units import Moment, Whole, readable_bytes, readable_duration
from hetctl.views.accounting import (
    account,
    energy_document,
    readable_energy,
    task_account,
)
from hetctl.views.columns import (
    Column,
    arranged,
    chosen,
    ordered,
    report_truncation,
    rows,
)
from hetctl.views.jobs import jobs_of
from hetctl.views.places import emulated_names, marked
from hetctl.views.users import owner_of, shown_owner
from libtask.apps import short_name
from libtask.client.client import Selection
from libtask.errors import NotFoundError
from libtask.messages import ENDED
from libtask.wording import suggestion

LOOKED_AT = 10
"""Tasks looked at for each that is shown, to find those that ended last."""

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hetctl.documents.accounts import (
        PastTaskPart,
        Report,
        ResourceAccountPart,
        TaskAccountPart,
        UsagePart,
    )
    from hetctl.documents.tasks import JobPart
    from hetctl.views.accounting import Account, ResourceAccount, TaskAccount
    from libtask.client.client import Client
    from libtask.messages import TaskInfo, UsageInfo


# ------------------------------------------------------------ history

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
"""The default columns."""


def account_columns(emulated: frozenset[str]) -> dict[str, Column[TaskAccount]]:
    """Return all columns by name."""
    return {
        "id": Column(lambda each: str(each.task.id), lambda each: each.task.id),
        "name": Column(
            lambda each: each.task.name or "-", lambda each: each.task.name or None
        ),
        "app": Column(
            lambda each: short_name(each.task.app), lambda each: each.task.app
        ),
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
@optional_selectors
@click.option(
    "--app",
    "apps",
    multiple=True,
    shell_complete=applications,
    help="Show only tasks of this application.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(sorted(ENDED)),
    help="Show only tasks in this state.",
)
@click.option("--mine", is_flag=True, help="Show only your own tasks.")
@click.option(
    "--user", "users", multiple=True, help="Show only this user's tasks (name or uid)."
)
@click.option(
    "--on",
    "resources",
    multiple=True,
    shell_complete=resources_there,
    help="Show only tasks that ran on this resource.",
)
@click.option(
    "--since",
    type=Moment(),
    help="Show only tasks that ended since this time (14:30) or duration ago (2h).",
)
@click.option(
    "--limit",
    type=Whole(1),
    default=100,
    show_default=True,
    help="Show at most this many tasks, the newest.",
)
@arranged
@shared
def history_command(
    *, selectors: tuple[str, ...], socket: Path | None, as_json: bool, **given: Any
) -> None:
    """List ended tasks, newest first.

    Columns for -o and --sort: id, name, app, type, state, where, submitted, started,
    finished, waited, ran, failed, moves, energy, user, note.
    """
    # report wrong column names before connecting to the daemon
    names = chosen(given["fields"], account_columns(frozenset()), SHOWN)
    ordered([], given["sort"], account_columns(frozenset()))
    with connect(socket) as client:
        found, total = _ended_tasks(client, selectors, given)
        found.sort(key=lambda info: (_end_of(info), info.id), reverse=True)
        accounts = _accounts_of(client, found[: given["limit"]])
        emulated = emulated_names(client)
    table_of = account_columns(emulated)
    accounts = ordered(accounts, given["sort"], table_of)
    if as_json:
        tasks = [_past_task_document(each, emulated) for each in accounts]
        emit(
            {
                "format": "hetctl/history-1",
                "tasks": tasks,
                "total": total,
                "truncated": total > len(tasks),
            }
        )
    else:
        lines = rows(accounts, names, table_of)
        table(names, lines, parsable=given["parsable"])
    report_truncation(len(accounts), total)


def _ended_tasks(
    client: Client, selectors: tuple[str, ...], given: Mapping[str, Any]
) -> tuple[list[TaskInfo], int]:
    """Return the ended tasks that match the options, at least the last ones, and their number."""
    states = given["states"] or tuple(ENDED)
    selection = Selection(mine=given["mine"], states=states, since=given["since"])
    if selectors or given["apps"] or given["users"] or given["resources"]:
        found = _filtered_tasks(client, selectors, given)
        return found, len(found)
    return _last_ended(client, selection, given["limit"])


def _last_ended(
    client: Client, selection: Selection, limit: int
) -> tuple[list[TaskInfo], int]:
    """Return at least the tasks of a selection that ended last, and the number of all.

    Those that ended since the `limit`-th of the newest tasks did are all that count: hetd
    finds them without reading the others.
    """
    size = LOOKED_AT * limit
    found = client.tasks(replace(selection, limit=size))
    if len(found) < size:
        return found, len(found)
    since = sorted(map(_end_of, found), reverse=True)[limit - 1]
    found = client.tasks(replace(selection, limit=MOST, since=since))
    return found, client.count(selection)


def _filtered_tasks(
    client: Client, selectors: tuple[str, ...], given: Mapping[str, Any]
) -> list[TaskInfo]:
    """Return all ended tasks that match the options."""
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
        and (since is None or _end_of(info) >= since)
    ]
    resources = given["resources"]
    return _been_on(client, found, resources) if resources else found


def _been_on(
    client: Client, tasks: list[TaskInfo], resources: tuple[str, ...]
) -> list[TaskInfo]:
    """Keep tasks that ran on one of these resources; this takes full records."""
    known = {device.spec.name for device in client.devices()}
    for name in set(resources) - known:
        offered = ", ".join(sorted(known))
        hint = suggestion(name, known)
        raise NotFoundError(f"no resource {name!r}{hint}; there are: {offered}")
    ids = tuple(info.id for info in tasks)
    full = client.tasks(Selection(ids=ids, detail=True)) if ids else []
    been = {i.id for i in full if {s.resource for s in i.segments} & set(resources)}
    return [info for info in tasks if info.id in been]


def _end_of(info: TaskInfo) -> float:
    return info.submitted if info.finished is None else info.finished


def _accounts_of(client: Client, chosen: list[TaskInfo]) -> list[TaskAccount]:
    """Return the accounts of the chosen tasks, in their order, from full records."""
    if not chosen:
        return []
    ids = tuple(info.id for info in chosen)
    full = {info.id: info for info in client.tasks(Selection(ids=ids, detail=True))}
    return [task_account(full[number], now()) for number in ids]


def _past_task_document(account: TaskAccount, emulated: frozenset[str]) -> PastTaskPart:
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


def _visit(name: str, failed: bool, emulated: frozenset[str]) -> str:  # noqa: FBT001  the two parts of a place
    shown = marked(name, emulated)
    return f"{shown} (failed)" if failed else shown


# ------------------------------------------------------------ report

RESOURCE_HEADINGS = (
    "resource",
    "slots",
    "computing",
    "wasted",
    "transferring",
    "stopping",
    "set-up",
    "other",
    "failed",
    "idle",
    "busy",
    "energy",
)
TASK_HEADINGS = ("id", "type", "state", "waited", "ran", "failed", "moves", "energy")


@click.command("report")
@optional_selectors
@click.option(
    "--bound/--no-bound",
    default=True,
    show_default=True,
    help="Compute a lower bound for the makespan of these tasks.",
)
@click.option(
    "--mine", is_flag=True, help="Report only your tasks, and the space that you use."
)
@since_option
@shared
def report_command(  # noqa: PLR0913  one argument an option
    *,
    selectors: tuple[str, ...],
    bound: bool,
    mine: bool,
    since: float | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Report the use of time and energy, by resource and task.

    By default, the tasks since the last idle hour are counted, of the newest 10,000.

    Times of a resource are summed over its slots, from the first submission to the last
    end. Set-up is the time before the first strip of a segment, without transfers. Other
    is time on the resource that the worker's reports do not explain. Failed is the time
    of attempts that an error ended before their first strip; they count neither as busy
    time nor as migrations, and have no energy. Idle is the time without any of these
    tasks; other tasks may have run then. Wasted is the computing of tasks that ended
    without a result (cancelled, failed or dropped). Stopping is the part of computing
    between an order to stop and the checkpoint. The bound is a makespan that no schedule
    of these tasks can beat, from measured times on the resources where they ran and
    expected times elsewhere. It is left out if the tasks did beat it, because the
    expected times were wrong then.

    --mine also reports the space that hetd uses for you, and the limits: beyond them the
    oldest ended tasks are removed.
    """
    with connect(socket) as client:
        tasks = lately(client, selectors, since, mine=mine)
        usage = client.usage() if mine else None
        devices = client.devices()
        emulated = emulated_names(client)
        if usage is not None and not as_json:
            _print_usage(usage)
        if not tasks:
            raise NotFoundError("there are no tasks to report")
        tasks.sort(key=lambda info: info.id)
        least = lower_bound(client, tasks) if bound else None
    found = account(tasks, devices, now())
    if least is not None and found.makespan is not None and least > found.makespan:
        least = None  # the schedule that ran beat it: the expected times must be wrong
    if as_json:
        kept = None if usage is None else _usage_document(usage)
        jobs = [job_document(each) for each in jobs_of(tasks, now())]
        emit(_report_document(found, least, emulated, kept, jobs))
    else:
        _print_report(found, least, emulated)
        _print_jobs(tasks)


def _print_jobs(tasks: list[TaskInfo]) -> None:
    """Print the jobs that the tasks belong to, if there are any."""
    jobs = jobs_of(tasks, now())
    if jobs:
        say("")
        table(JOB_HEADINGS, [job_row(job) for job in jobs])


def _print_usage(usage: UsageInfo) -> None:
    """Print a user's storage beside the limits."""
    stored = usage.unended_bytes + usage.history_bytes + usage.answer_bytes
    rows = [
        (
            "unfinished tasks",
            str(usage.unended_tasks),
            _limit(usage.unended_tasks_limit),
        ),
        (
            "records of unfinished tasks",
            readable_bytes(usage.unended_bytes),
            _limit_of_bytes(usage.unended_limit),
        ),
        ("records of ended tasks", readable_bytes(usage.history_bytes), ""),
        ("answers to requests", readable_bytes(usage.answer_bytes), ""),
        (
            "all stored data",
            readable_bytes(stored),
            _limit_of_bytes(usage.stored_limit),
        ),
        (
            "snapshots of unfinished tasks",
            readable_bytes(usage.snapshot_bytes),
            "yours",
        ),
        ("output of unfinished tasks", readable_bytes(usage.log_bytes), "yours"),
        (
            "priority",
            "",
            "any" if usage.priority_limit is None else f"±{usage.priority_limit}",
        ),
    ]
    table(("stored for you", "now", "limit"), rows)
    say("")


def _limit(count: int | None) -> str:
    return "none" if count is None else str(count)


def _limit_of_bytes(size: int | None) -> str:
    return "none" if size is None else readable_bytes(size)


def _usage_document(usage: UsageInfo) -> UsagePart:
    return {
        "user": usage.user,
        "unended_tasks": usage.unended_tasks,
        "unended_tasks_limit": usage.unended_tasks_limit,
        "unended_bytes": usage.unended_bytes,
        "unended_limit": usage.unended_limit,
        "history_bytes": usage.history_bytes,
        "answer_bytes": usage.answer_bytes,
        "stored_limit": usage.stored_limit,
        "snapshot_bytes": usage.snapshot_bytes,
        "log_bytes": usage.log_bytes,
        "priority_limit": usage.priority_limit,
    }


def _print_report(
    found: Account, least: float | None, emulated: frozenset[str]
) -> None:
    say(_summary(found))
    if least:
        over = 100 * ((found.end - found.begin) / least - 1)
        say(f"no schedule takes less than {readable_duration(least)}: {over:+.0f} %")
    say("")
    table(
        RESOURCE_HEADINGS, [_resource_row(each, emulated) for each in found.resources]
    )
    say("")
    table(TASK_HEADINGS, [_task_row(each) for each in found.tasks])


def _summary(found: Account) -> str:
    count = len(found.tasks)
    states = Counter(each.task.state for each in found.tasks)
    moves = sum(each.task.migrations for each in found.tasks)
    span = "makespan" if found.complete else "not all ended; so far"
    return ", ".join(
        [
            f"{count} task{'s' * (count != 1)}",
            *(f"{number} {state}" for state, number in sorted(states.items())),
            f"{span} {readable_duration(found.end - found.begin)}",
            f"{moves} migration{'s' * (moves != 1)}",
            f"energy {readable_energy(found.energy)}",
        ]
    )


def _resource_row(each: ResourceAccount, emulated: frozenset[str]) -> tuple[str, ...]:
    split = each.split
    return (
        marked(each.name, emulated),
        "-" if each.slots is None else str(each.slots),
        readable_duration(split.computing),
        readable_duration(split.wasted),
        readable_duration(split.transferring),
        readable_duration(split.checkpoint_wait),
        readable_duration(split.setting_up),
        readable_duration(split.other),
        readable_duration(split.failed),
        readable_duration(split.idle),
        "-" if each.busy is None else f"{100 * each.busy:.0f} %",
        readable_energy(each.energy),
    )


def _task_row(each: TaskAccount) -> tuple[str, ...]:
    return (
        str(each.task.id),
        each.task.type,
        each.task.state,
        readable_duration(each.waited),
        readable_duration(each.ran),
        readable_duration(each.failed),
        str(each.task.migrations),
        readable_energy(each.energy),
    )


def _report_document(
    found: Account,
    least: float | None,
    emulated: frozenset[str],
    usage: UsagePart | None,
    jobs: list[JobPart],
) -> Report:
    return {
        "format": "hetctl/report-1",
        "begin": moment(found.begin),
        "end": moment(found.end),
        "span_s": found.end - found.begin,
        "makespan_s": found.makespan,
        "lower_bound_s": least,
        **energy_document(found.energy),
        "resources": [_resource_document(each, emulated) for each in found.resources],
        "tasks": [_task_document(each) for each in found.tasks],
        "usage": usage,
        "jobs": jobs,
    }


def _resource_document(
    each: ResourceAccount, emulated: frozenset[str]
) -> ResourceAccountPart:
    return {
        "name": each.name,
        "emulated": each.name in emulated,
        "slots": each.slots,
        "computing_s": each.split.computing,
        "wasted_s": each.split.wasted,
        "transferring_s": each.split.transferring,
        "set_up_s": each.split.setting_up,
        "checkpoint_wait_s": each.split.checkpoint_wait,
        "other_s": each.split.other,
        "failed_s": each.split.failed,
        "idle_s": each.split.idle,
        "busy": each.busy,
        **energy_document(each.energy),
    }


def _task_document(each: TaskAccount) -> TaskAccountPart:
    return {
        "id": each.task.id,
        "app": each.task.app,
        "type": each.task.type,
        "state": each.task.state,
        "waited_s": each.waited,
        "ran_s": each.ran,
        "failed_s": each.failed,
        "migrations": each.task.migrations,
        **energy_document(each.energy),
    }
