"""`hetctl set`: another priority or deadline for tasks that have not ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import click

from hetctl.commands.control import PAGE
from hetctl.options import connect, shared
from hetctl.output import emit
from hetctl.selectors import selected
from hetctl.terminal import say
from hetctl.units import parse_duration
from libtask.documents import LARGEST_WHOLE
from libtask.errors import InputError
from libtask.parameters import suggestion

if TYPE_CHECKING:
    from pathlib import Path

KEYS = ("priority", "deadline")
LONGEST = 40
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
        _report(ids, done, wanted)


def wishes(texts: list[str]) -> Wanted:
    """Read `priority=5 deadline=10s`.

    Raises:
        InputError: an unknown key or a value that does not fit it.

    """
    wanted = Wanted()
    for text in texts:
        key, _, value = text.partition("=")
        if key == "priority":
            wanted["priority"] = _priority(value)
        elif key == "deadline" and value == "none":
            wanted["no_deadline"] = True
        elif key == "deadline":
            wanted["deadline_s"] = _deadline(value)
        else:
            hint = suggestion(key, KEYS)
            raise InputError(f"no key {key!r}{hint}; there are: {', '.join(KEYS)}")
    if not wanted:
        raise click.UsageError("say what to change: priority=5 or deadline=10min")
    return wanted


def _priority(value: str) -> int:
    try:
        priority = int(value)
    except ValueError as error:
        text = f"priority: expected a whole number, got {value[:LONGEST]!r}"
        raise InputError(text) from error
    if abs(priority) > LARGEST_WHOLE:
        raise InputError("priority: expected a whole number of 64 bits at most")
    return priority


def _deadline(value: str) -> float:
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise InputError(f"deadline: {error}, or none") from error
    if seconds <= 0:
        raise InputError(f"deadline: expected a time above 0, got {value!r}")
    return seconds


def _report(ids: list[int], done: list[int], wanted: Wanted) -> None:
    what = ", ".join(f"{key} {value}" for key, value in wanted.items())
    for task in done:
        say(f"task {task}: {what}")
    for task in sorted(set(ids) - set(done)):
        say(f"task {task} had ended", err=True)
    if not ids:
        say("no tasks", err=True)
