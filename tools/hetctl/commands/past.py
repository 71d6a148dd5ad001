"""`hetctl requeue` and `hetctl forget`: what is done with tasks that have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hetctl.completing import selectors as selectors_there
from hetctl.options import connect, shared, submitting
from hetctl.output import emit
from hetctl.selectors import listed, selected
from hetctl.terminal import say
from hetctl.waiting import Manner, ranges, wait_for
from libtask.client.client import Selection
from libtask.errors import InputError, NotFoundError
from libtask.messages import ENDED

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.client.client import Client
    from libtask.messages import TaskInfo

selectors_argument = click.argument(
    "selectors",
    nargs=-1,
    required=True,
    metavar="SELECTOR...",
    shell_complete=selectors_there,
)


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
        chosen = _chosen(client, selectors, failed=failed)
        old = sorted(info.id for info in chosen)
        handles = client.requeue(*old)
        waits = given["waiting"] or given["follow"] or given["timeout"] is not None
        _tell(old, [handle.id for handle in handles], given["as_json"], waits)
        if not waits:
            return 0
        manner = Manner(given["timeout"], given["follow"], given["as_json"])
        return wait_for(client, handles, manner)


def _tell(old: list[int], new: list[int], as_json: bool, waits: bool) -> None:  # noqa: FBT001  two options
    if not as_json:
        plural = "s" * (len(old) != 1)
        before, after = ",".join(ranges(old)), ",".join(ranges(new))
        say(f"task{plural} {before} submitted again as {after}")
    elif not waits:
        emit({"format": "hetctl/requeued-1", "ids": new, "old": old})


def _chosen(
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
