"""`hetctl cancel`, `hold`, `release`, `snapshot`, `drain`, `resume`: one word to the daemon each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hetctl.completing import resources
from hetctl.completing import selectors as selectors_there
from hetctl.options import connect, shared
from hetctl.output import emit
from hetctl.selectors import selected
from hetctl.terminal import say

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_REASON = 1000
PAGE = 10_000
"""Ids in one message."""

selectors_argument = click.argument(
    "selectors",
    nargs=-1,
    required=True,
    metavar="SELECTOR...",
    shell_complete=selectors_there,
)
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


@click.command("drain")
@click.argument("resource", shell_complete=resources)
@shared
def drain_command(*, resource: str, socket: Path | None, as_json: bool) -> None:
    """Keep a resource free of tasks; running ones leave at their next checkpoint.

    It stays drained, over restarts too, until `hetctl resume`.
    """
    with connect(socket) as client:
        client.drain(resource)
    _report_resource(resource, "draining", as_json=as_json)


@click.command("resume")
@click.argument("resource", shell_complete=resources)
@shared
def resume_command(*, resource: str, socket: Path | None, as_json: bool) -> None:
    """Give a drained resource back to the scheduler.

    Also one that is not there any more: when it is back, it takes tasks.
    """
    with connect(socket) as client:
        client.resume(resource)
    _report_resource(resource, "up", as_json=as_json)


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


def _report_resource(resource: str, state: str, *, as_json: bool) -> None:
    if as_json:
        emit({"format": "hetctl/resource-1", "name": resource, "state": state})
    else:
        say(f"{resource} is {state}")
