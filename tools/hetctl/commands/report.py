"""`hetctl report`: where the time and the energy of tasks went, by resource and task."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from hetctl.accounting import account
from hetctl.bound import lower_bound
from hetctl.completing import selectors as selectors_there
from hetctl.energy import energy_document, readable_energy
from hetctl.options import connect, shared
from hetctl.output import emit, moment, now, table
from hetctl.places import emulated_names, marked
from hetctl.recent import lately, since_option
from hetctl.terminal import say
from hetctl.units import readable_bytes, readable_duration
from libtask.errors import NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from hetctl.accounting import Account, ResourceAccount, TaskAccount
    from hetctl.documents.accounts import (
        Report,
        ResourceAccountPart,
        TaskAccountPart,
        UsagePart,
    )
    from libtask.messages import UsageInfo

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
@click.argument(
    "selectors", nargs=-1, metavar="[SELECTOR]...", shell_complete=selectors_there
)
@click.option(
    "--bound/--no-bound",
    default=True,
    show_default=True,
    help="Work out the least makespan that these tasks could have had.",
)
@click.option("--mine", is_flag=True, help="My tasks only, and what is kept of me.")
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
    """Say where time and energy went, by resource and task.

    None named: all tasks since the last idle hour.

    Times of a resource are added up over its slots, from the first submission to the
    last end. Set-up is what passes before a first strip, without transfers; other is
    what a task held the resource for that no report of its worker explains. Failed is the
    time of attempts that an error ended before their first strip: they are no busy time,
    no migrations, and have no energy. It is idle where none of these tasks is on it;
    others may be. Wasted is the computing of tasks that ended without a result, as they
    were cancelled, failed or dropped. Stopping is the part of computing
    between an order to stop and the checkpoint. The bound is what no schedule of these
    tasks beats, by measured times where they ran and expected ones elsewhere; where
    expected times contradict what happened, it is not told.

    --mine tells, too, what hetd keeps of you, and how much it may be: beyond the limit
    the oldest tasks that have ended leave.
    """
    with connect(socket) as client:
        tasks = lately(client, selectors, since, mine=mine)
        usage = client.usage() if mine else None
        devices = client.devices()
        emulated = emulated_names(client)
        if usage is not None and not as_json:
            _print_usage(usage)
        if not tasks:
            raise NotFoundError("there are no tasks; there is nothing to report")
        tasks.sort(key=lambda info: info.id)
        least = lower_bound(client, tasks) if bound else None
    found = account(tasks, devices, now())
    if least is not None and found.makespan is not None and least > found.makespan:
        least = None  # what happened is a schedule: the expected times must be off
    if as_json:
        kept = None if usage is None else _usage_document(usage)
        emit(_document(found, least, emulated, kept))
    else:
        _print(found, least, emulated)


def _print_usage(usage: UsageInfo) -> None:
    """Print what is kept of a user beside the limits."""
    stored = usage.unended_bytes + usage.history_bytes + usage.answer_bytes
    rows = [
        ("unended tasks", str(usage.unended_tasks), _limit(usage.unended_tasks_limit)),
        (
            "records of unended tasks",
            readable_bytes(usage.unended_bytes),
            _limit_of_bytes(usage.unended_limit),
        ),
        ("records of ended tasks", readable_bytes(usage.history_bytes), ""),
        ("answers to requests", readable_bytes(usage.answer_bytes), ""),
        (
            "all that is stored",
            readable_bytes(stored),
            _limit_of_bytes(usage.stored_limit),
        ),
        ("snapshots of unended tasks", readable_bytes(usage.snapshot_bytes), "yours"),
        ("output of unended tasks", readable_bytes(usage.log_bytes), "yours"),
        (
            "priority",
            "",
            "any" if usage.priority_limit is None else f"±{usage.priority_limit}",
        ),
    ]
    table(("kept of you", "now", "limit"), rows)
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


def _print(found: Account, least: float | None, emulated: frozenset[str]) -> None:
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


def _document(
    found: Account,
    least: float | None,
    emulated: frozenset[str],
    usage: UsagePart | None,
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
