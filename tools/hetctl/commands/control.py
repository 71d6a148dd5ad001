"""`hetctl cancel`, `hold`, `release`, `snapshot`, `set`, `migrate`, `requeue`, `forget`.

Commands that change tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import click

from hetctl.completing import resources
from hetctl.options import connect, selectors_argument, shared, submitting
from hetctl.output import emit, say
from hetctl.selectors import listed, selected
from hetctl.units import parse_duration
from hetctl.waiting import Manner, ranges, wait_for
from libtask.client.client import Selection
from libtask.documents import LARGEST_WHOLE
from libtask.errors import InputError, NotFoundError
from libtask.messages import ENDED
from libtask.parameters import suggestion

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.client.client import Client
    from libtask.messages import TaskInfo


# ------------------------------------------------------------ cancel, hold, release, snapshot

LONGEST_REASON = 1000
PAGE = 10_000
"""Ids in one message."""

DONE = {
    "cancel": "cancelled",
    "hold": "held",
    "release": "released",
    "snapshot": "writes a snapshot at its next checkpoint",
}


@click.command("cancel")
@selectors_argument
@click.option("--reason", default="", help="Why; it is kept with the tasks.")
@shared
def cancel_command(
    *, selectors: tuple[str, ...], reason: str, socket: Path | None, as_json: bool
) -> None:
    """Cancel tasks; a running one ends at its next checkpoint."""
    if len(reason) > LONGEST_REASON:
        raise click.UsageError(f"--reason: at most {LONGEST_REASON} characters")
    _control("cancel", selectors, socket, as_json=as_json, reason=reason)


@click.command("hold")
@selectors_argument
@click.option(
    "--requeue", is_flag=True, help="Commands leave, too, and begin again later."
)
@shared
def hold_command(
    *, selectors: tuple[str, ...], requeue: bool, socket: Path | None, as_json: bool
) -> None:
    """Keep tasks from starting; running ones stop at their next checkpoint.

    A command that cannot save its state is stopped (SIGSTOP) where it runs, and keeps
    its place there; with --requeue it is ended, and begins again when it is released.
    """
    _control("hold", selectors, socket, as_json=as_json, requeue=requeue)


@click.command("release")
@selectors_argument
@shared
def release_command(
    *, selectors: tuple[str, ...], socket: Path | None, as_json: bool
) -> None:
    """Let held tasks start."""
    _control("release", selectors, socket, as_json=as_json)


@click.command("snapshot")
@selectors_argument
@shared
def snapshot_command(
    *, selectors: tuple[str, ...], socket: Path | None, as_json: bool
) -> None:
    """Have tasks that have begun write a snapshot, each at its next checkpoint.

    Does not wait for it: `hetctl show` tells when it is there, or why it is not.
    """
    _control("snapshot", selectors, socket, as_json=as_json)


def _control(
    verb: str,
    selectors: tuple[str, ...],
    socket: Path | None,
    *,
    as_json: bool,
    **how: Any,
) -> None:
    with connect(socket) as client:
        ask = getattr(client, verb)
        ids = selected(client, selectors, live=True)
        pages = [ids[start : start + PAGE] for start in range(0, len(ids), PAGE)]
        done = [task for page in pages for task in ask(*page, **how)]
    if as_json:
        emit({"format": "hetctl/control-1", "verb": verb, "ids": done})
        return
    _report(verb, done, set(ids) - set(done))


def _report(verb: str, done: list[int], left: set[int]) -> None:
    for task in done:
        say(f"task {task} {DONE[verb]}")
    for task in sorted(left):
        say(f"task {task} had ended", err=True)
    if not done and not left:
        say("no tasks", err=True)


# ------------------------------------------------------------ set

SETTABLE = ("priority", "deadline")
LONGEST_SHOWN = 40
"""Of a value that is repeated in a complaint."""


_UNCHANGED = {"priority": None, "deadline_s": None, "no_deadline": False}


class Wanted(TypedDict, total=False):
    """What is to be changed; what is absent stays."""

    priority: int
    deadline_s: float
    no_deadline: bool


@click.command("set")
@click.argument("words", nargs=-1, required=True, metavar="SELECTOR... KEY=VALUE...")
@shared
def set_command(*, words: tuple[str, ...], socket: Path | None, as_json: bool) -> None:
    """Change tasks that have not ended: priority=5 deadline=10min.

    A higher priority goes first within a queue, from now on. A deadline counts from
    now; deadline=none takes it away.
    """
    wanted = wishes([word for word in words if "=" in word])
    selectors = [word for word in words if "=" not in word]
    if not selectors:
        raise click.UsageError("say which tasks: hetctl set SELECTOR KEY=VALUE")
    with connect(socket) as client:
        ids = selected(client, selectors, live=True)
        pages = [ids[start : start + PAGE] for start in range(0, len(ids), PAGE)]
        done = [task for page in pages for task in client.amend(*page, **wanted)]
    if as_json:
        emit({"format": "hetctl/set-1", "ids": done, **_UNCHANGED, **wanted})
    else:
        _report_changes(ids, done, wanted)


def wishes(texts: list[str]) -> Wanted:
    """Read `priority=5 deadline=10s`.

    Raises:
        InputError: an unknown key or a value that does not fit it.

    """
    wanted = Wanted()
    for text in texts:
        key, _, value = text.partition("=")
        if key == "priority":
            wanted["priority"] = _priority_in(value)
        elif key == "deadline" and value == "none":
            wanted["no_deadline"] = True
        elif key == "deadline":
            wanted["deadline_s"] = _deadline_in(value)
        else:
            hint = suggestion(key, SETTABLE)
            raise InputError(f"no key {key!r}{hint}; there are: {', '.join(SETTABLE)}")
    if not wanted:
        raise click.UsageError("say what to change: priority=5 or deadline=10min")
    return wanted


def _priority_in(value: str) -> int:
    try:
        priority = int(value)
    except ValueError as error:
        text = f"priority: expected a whole number, got {value[:LONGEST_SHOWN]!r}"
        raise InputError(text) from error
    if abs(priority) > LARGEST_WHOLE:
        raise InputError("priority: expected a whole number of 64 bits at most")
    return priority


def _deadline_in(value: str) -> float:
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise InputError(f"deadline: {error}, or none") from error
    if seconds <= 0:
        raise InputError(f"deadline: expected a time above 0, got {value!r}")
    return seconds


def _report_changes(ids: list[int], done: list[int], wanted: Wanted) -> None:
    what = ", ".join(f"{key} {value}" for key, value in wanted.items())
    for task in done:
        say(f"task {task}: {what}")
    for task in sorted(set(ids) - set(done)):
        say(f"task {task} had ended", err=True)
    if not ids:
        say("no tasks", err=True)


# ------------------------------------------------------------ migrate


@click.command("migrate")
@selectors_argument
@click.option(
    "--to",
    "resource",
    required=True,
    shell_complete=resources,
    help="The resource to move to.",
)
@shared
def migrate_command(
    *,
    selectors: tuple[str, ...],
    resource: str,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Move tasks to RESOURCE; a running one moves at its next checkpoint."""
    with connect(socket) as client:
        ids = selected(client, selectors, live=True)
        for task in ids:
            client.migrate(task, resource)
    if as_json:
        emit({"format": "hetctl/migrate-1", "ids": ids, "resource": resource})
        return
    for task in ids:
        say(f"task {task} goes to {resource}")


# ------------------------------------------------------------ requeue, forget


@click.command("requeue")
@selectors_argument
@click.option("--failed", is_flag=True, help="Only those that failed.")
@submitting
def requeue_command(*, selectors: tuple[str, ...], failed: bool, **given: Any) -> int:
    """Submit tasks that have ended again, as new ones that begin anew.

    Parameters, name, priority and all other options are as they were; they are not held.
    Tasks after each other stay so. Of several tasks those that have not ended, or with
    --failed those that did not fail, are left alone. `hetctl show` says of each which task
    it repeats. The environment of a program is kept for two weeks after its last use.
    """
    with connect(given["socket"], start=given["start"]) as client:
        chosen = _ended_tasks(client, selectors, failed=failed)
        old = sorted(info.id for info in chosen)
        handles = client.requeue(*old)
        waits = given["waiting"] or given["follow"] or given["timeout"] is not None
        _report_requeued(
            old,
            [handle.id for handle in handles],
            as_json=given["as_json"],
            waits=waits,
        )
        if not waits:
            return 0
        manner = Manner(given["timeout"], given["follow"], given["as_json"])
        return wait_for(client, handles, manner)


def _report_requeued(
    old: list[int], new: list[int], *, as_json: bool, waits: bool
) -> None:
    if not as_json:
        plural = "s" * (len(old) != 1)
        before, after = ",".join(ranges(old)), ",".join(ranges(new))
        say(f"task{plural} {before} submitted again as {after}")
    elif not waits:
        emit({"format": "hetctl/requeued-1", "ids": new, "old": old})


def _ended_tasks(
    client: Client, selectors: tuple[str, ...], *, failed: bool
) -> list[TaskInfo]:
    """Return the ended tasks to submit again; of one that is named alone, complain."""
    found = listed(client, Selection(limit=1), selectors)
    if len(found) == 1 and found[0].state not in ENDED:
        (only,) = found
        raise InputError(
            f"task {only.id} is {only.state}: only what has ended is submitted again; "
            f"`hetctl cancel {only.id}` first"
        )
    wanted = {"failed"} if failed else ENDED
    chosen = [info for info in found if info.state in wanted]
    if not chosen:
        what = "failed" if failed else "has ended"
        raise NotFoundError(f"none of these tasks {what}; nothing is submitted")
    return chosen


@click.command("forget")
@selectors_argument
@shared
def forget_command(
    *, selectors: tuple[str, ...], socket: Path | None, as_json: bool
) -> None:
    """Remove tasks that have ended from history: what they were, and their results.

    Those that have not ended stay. Measured times stay, too: `hetctl models forget`.
    """
    with connect(socket) as client:
        ids = selected(client, selectors)
        found = client.tasks(Selection(ids=tuple(ids))) if ids else []
        live = [info for info in found if info.state not in ENDED]
        if len(found) == len(live) == 1:
            text = f"task {live[0].id} is {live[0].state}: only what has ended is forgotten"
            raise InputError(text)
        ended = sorted(info.id for info in found if info.state in ENDED)
        gone = client.forget_tasks(*ended) if ended else []
    if as_json:
        emit({"format": "hetctl/tasks-forgotten-1", "ids": gone})
        return
    for info in sorted(live, key=lambda info: info.id):
        say(f"task {info.id} is {info.state}, and stays", err=True)
    say(f"{len(gone)} task{'s' * (len(gone) != 1)} forgotten")
