"""`hetctl cancel`, `hold`, `release`, `snapshot`, `set`, `migrate`, `requeue`, `forget`.

Commands that change tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import click
import msgspec

from hetctl.completing import resources
from hetctl.options import connect, selectors_argument, shared, submitting
from hetctl.output import emit, say
from hetctl.selectors import JOB, MOST, listed, selected, split
from hetctl.units import parse_duration, readable_bytes
from hetctl.views.jobs import unfinished_work
from hetctl.waiting import Manner, ranges, wait_for
from libtask.client.client import Selection
from libtask.documents import LARGEST_WHOLE
from libtask.errors import InputError, NotFoundError
from libtask.messages import ENDED
from libtask.plaintext import one_line
from libtask.wording import suggestion

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.client.client import Client
    from libtask.messages import ParkedTask, TaskInfo, TaskState


# ------------------------------------------------------------ cancel, hold, release, snapshot

LONGEST_REASON = 1000
PAGE = 10_000
"""Most ids in one message."""

DONE = {
    "cancel": "cancelled",
    "hold": "held",
    "release": "released",
    "snapshot": "writes a snapshot at its next checkpoint",
}


@click.command("cancel")
@selectors_argument
@click.option("--reason", default="", help="Reason, recorded with the tasks.")
@shared
def cancel_command(
    *, selectors: tuple[str, ...], reason: str, socket: Path | None, as_json: bool
) -> None:
    """Cancel tasks; running ones end at their next checkpoint."""
    if len(reason) > LONGEST_REASON:
        raise click.UsageError(f"--reason: at most {LONGEST_REASON} characters")
    _control("cancel", selectors, socket, as_json=as_json, reason=reason)


@click.command("hold")
@selectors_argument
@click.option(
    "--requeue",
    is_flag=True,
    help="Also end commands that cannot save their state, and restart them later.",
)
@click.option(
    "--park",
    is_flag=True,
    help="Also write a snapshot of each, wait for it and print its path.",
)
@shared
def hold_command(
    *,
    selectors: tuple[str, ...],
    requeue: bool,
    park: bool,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Keep tasks from starting; running ones stop at their next checkpoint.

    A command that cannot save its state is stopped (SIGSTOP) where it runs and keeps
    its slot; with --requeue it is ended, and restarts from the beginning on release.
    With --park the progress of each task is on disk when hetctl returns; commands are
    refused, and a task that cannot be saved is held and reported (exit status 1).
    """
    if requeue and park:
        raise click.UsageError("--park and --requeue exclude each other")
    if park:
        _park(selectors, socket, as_json=as_json)
    else:
        _control("hold", selectors, socket, as_json=as_json, requeue=requeue)


def _park(selectors: tuple[str, ...], socket: Path | None, *, as_json: bool) -> None:
    """Hold tasks with their progress on disk, and print where it is."""
    with connect(socket) as client:
        parked = client.park(*selected(client, selectors, live=True))
    if as_json:
        held = [each.id for each in parked if not each.error]
        each_one = [msgspec.structs.asdict(each) for each in parked]
        document = {"format": "hetctl/control-1", "verb": "hold", "ids": held}
        emit({**document, "parked": each_one})
    else:
        for each in parked:
            _say_parked(each)
        if not parked:
            say("no tasks", err=True)
    if any(each.error for each in parked):
        raise click.exceptions.Exit(1)


def _say_parked(each: ParkedTask) -> None:
    if each.error:
        say(f"task {each.id}: nothing was saved: {each.error}", err=True)
    elif each.path:
        size = readable_bytes(each.size_bytes)
        say(f"task {each.id} held at {each.progress:.1%}, {size} in {each.path}")
    else:
        say(f"task {each.id} held; it has not begun")


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
    """Make started tasks write a snapshot, each at its next checkpoint.

    The command does not wait: `hetctl show` shows the time of the snapshot, or the
    reason why there is none.
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
        say(f"task {task} has already ended", err=True)
    if not done and not left:
        say("no tasks", err=True)


# ------------------------------------------------------------ set

SETTABLE = ("priority", "deadline")
LONGEST_SHOWN = 40
"""Most characters of a value in an error message."""


_UNCHANGED = {"priority": None, "deadline_s": None, "no_deadline": False}


class Changes(TypedDict, total=False):
    """Values to change; absent keys stay unchanged."""

    priority: int
    deadline_s: float
    no_deadline: bool


@click.command("set")
@click.argument("words", nargs=-1, required=True, metavar="SELECTOR... KEY=VALUE...")
@shared
def set_command(*, words: tuple[str, ...], socket: Path | None, as_json: bool) -> None:
    """Change tasks that have not ended: priority=5 deadline=10min.

    Tasks of higher priority run first within a queue. A deadline counts from now;
    deadline=none removes it.
    """
    texts = [word for word in words if "=" in word]
    wanted = parse_changes(texts)
    selectors = [word for word in words if "=" not in word]
    if not selectors:
        raise click.UsageError("no tasks selected: hetctl set SELECTOR KEY=VALUE")
    with connect(socket) as client:
        ids = selected(client, selectors, live=True)
        pages = [ids[start : start + PAGE] for start in range(0, len(ids), PAGE)]
        done = [task for page in pages for task in client.amend(*page, **wanted)]
    if as_json:
        emit({"format": "hetctl/set-1", "ids": done, **_UNCHANGED, **wanted})
    else:
        _report_changes(ids, done, texts)


def parse_changes(texts: list[str]) -> Changes:
    """Parse `priority=5 deadline=10s`.

    Raises:
        InputError: an unknown or repeated key, or a value of the wrong form.

    """
    wanted = Changes()
    seen: set[str] = set()
    for text in texts:
        key, _, value = text.partition("=")
        if key in seen:
            raise InputError(f"{key} is given twice")
        seen.add(key)
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
        raise click.UsageError("nothing to change: give priority=5 or deadline=10min")
    return wanted


def _priority_in(value: str) -> int:
    try:
        priority = int(value)
    except ValueError as error:
        text = f"priority: expected a whole number, got {value[:LONGEST_SHOWN]!r}"
        raise InputError(text) from error
    if abs(priority) > LARGEST_WHOLE:
        raise InputError("priority: expected a whole number of at most 64 bits")
    return priority


def _deadline_in(value: str) -> float:
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise InputError(f"deadline: {error}, or none") from error
    if seconds <= 0:
        raise InputError(f"deadline: expected a time above 0, got {value!r}")
    return seconds


def _report_changes(ids: list[int], done: list[int], texts: list[str]) -> None:
    for task in done:
        say(one_line(f"task {task}: {', '.join(texts)}"))
    for task in sorted(set(ids) - set(done)):
        say(f"task {task} has already ended", err=True)
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
    help="Resource to move to.",
)
@shared
def migrate_command(
    *,
    selectors: tuple[str, ...],
    resource: str,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Move tasks to another resource; running ones move at their next checkpoint."""
    with connect(socket) as client:
        ids = selected(client, selectors, live=True)
        before = client.tasks(Selection(ids=tuple(ids)))
        for task in ids:
            client.migrate(task, resource)
    if as_json:
        emit({"format": "hetctl/migrate-1", "ids": ids, "resource": resource})
        return
    for info in reversed(before):
        say(f"task {info.id} {_migration(info, resource)}")
    if not before:
        say("no tasks", err=True)


def _migration(before: TaskInfo, resource: str) -> str:
    """Return what becomes of a task that was ordered to a resource."""
    if before.state == "held":
        return f"is held; it goes to {resource} when it is released"
    if before.state == "running" and before.resource == resource:
        return f"is on {resource} already, and stays there"
    return f"moves to {resource}"


# ------------------------------------------------------------ requeue, forget


@click.command("requeue")
@selectors_argument
@click.option(
    "--failed",
    is_flag=True,
    help="Submit only those that failed; of a job: all that did not complete.",
)
@click.option(
    "--from-snapshot",
    is_flag=True,
    help="Continue failed or cancelled tasks from their last snapshots.",
)
@submitting
def requeue_command(
    *, selectors: tuple[str, ...], failed: bool, from_snapshot: bool, **given: Any
) -> int:
    """Submit ended tasks again, as new tasks that start from the beginning.

    With --from-snapshot they continue from the last snapshots of the old ones, which are
    kept for a day ([snapshots] kept_s); it is an error if one has none.

    The new tasks have the same parameters, name, priority and options, and are not held.
    Dependencies among them are kept. If several tasks are selected, those that have not
    ended (with --failed: those that did not fail) are skipped. `hetctl show` shows which
    task a task repeats. `requeue job:NAME --failed` continues a job from where it failed:
    it submits what failed or was cancelled, and keeps completed tasks and their results. A program's environment is kept for two weeks after its last use.
    """
    with connect(given["socket"], start=given["start"]) as client:
        chosen = _ended_tasks(client, selectors, failed=failed)
        old = sorted(info.id for info in chosen)
        handles = client.requeue(*old, from_snapshot=from_snapshot)
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
    """Return the ended tasks to submit again; a single task that has not ended is an error."""
    states: tuple[TaskState, ...] = ("failed",) if failed else ()
    found = listed(client, Selection(limit=MOST, states=states), selectors)
    if len(found) == 1 and found[0].state not in ENDED:
        (only,) = found
        raise InputError(
            f"task {only.id} is {only.state}: only ended tasks can be submitted again; "
            f"`hetctl cancel {only.id}` first"
        )
    if failed and any(word.startswith(JOB) for word in split(selectors)):
        chosen = unfinished_work(found)
    else:
        wanted = {"failed"} if failed else ENDED
        chosen = [info for info in found if info.state in wanted]
    if not chosen:
        what = "failed" if failed else "has ended"
        raise NotFoundError(f"none of these tasks {what}; nothing was submitted")
    return chosen


@click.command("forget")
@selectors_argument
@shared
def forget_command(
    *, selectors: tuple[str, ...], socket: Path | None, as_json: bool
) -> None:
    """Remove ended tasks and their results from the history.

    Tasks that have not ended are kept. Measured times are kept too; `hetctl models forget`
    removes those.
    """
    with connect(socket) as client:
        ids = selected(client, selectors)
        found = client.tasks(Selection(ids=tuple(ids))) if ids else []
        live = [info for info in found if info.state not in ENDED]
        if len(found) == len(live) == 1:
            text = f"task {live[0].id} is {live[0].state}: only ended tasks can be forgotten"
            raise InputError(text)
        ended = sorted(info.id for info in found if info.state in ENDED)
        gone = client.forget_tasks(*ended) if ended else []
    if as_json:
        emit({"format": "hetctl/tasks-forgotten-1", "ids": gone})
        return
    for info in sorted(live, key=lambda info: info.id):
        say(f"task {info.id} is {info.state} and was kept", err=True)
    say(f"{len(gone)} task{'s' * (len(gone) != 1)} forgotten")
