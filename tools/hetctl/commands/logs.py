"""`hetctl logs`: what tasks printed, from all the workers it ran in, in order."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from hetctl.completing import selectors as selectors_there
from hetctl.options import connect, shared
from hetctl.output import emit, on_terminal
from hetctl.selectors import selected
from hetctl.tasklog import before_running, read_stretch
from hetctl.terminal import say
from hetctl.units import Whole
from libtask.errors import NotFoundError
from libtask.messages import ENDED, Segment
from libtask.plaintext import one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from libtask.client.client import Client
    from libtask.messages import TaskInfo

NO_SEGMENT = -1
"""Stands for the position of output that no segment tells of."""


@click.command("logs")
@click.argument(
    "selectors",
    nargs=-1,
    required=True,
    metavar="SELECTOR...",
    shell_complete=selectors_there,
)
@click.option("-f", "--follow", is_flag=True, help="Go on until the tasks end.")
@click.option("-n", "--lines", type=Whole(0), help="The last so many of each task.")
@click.option(
    "--err", is_flag=True, help="Only why tasks failed, and what they wrote last."
)
@shared
def logs_command(
    *, selectors: tuple[str, ...], socket: Path | None, as_json: bool, **given: Any
) -> None:
    """Print what tasks printed, on all the resources where they ran.

    Of several tasks, each one's output has a line with its number above it; with -f the
    number stands before each line.
    """
    if given["err"] and given["follow"]:
        raise click.UsageError("--err, --follow: expected one of them")
    with connect(socket) as client:
        ids = selected(client, selectors)
        if not ids:
            raise NotFoundError("there is no such task; there is nothing to print")
        manner = _Manner(as_json, len(ids) > 1, given["lines"])
        if given["err"]:
            _print_failures(client, ids, manner)
        elif given["follow"]:
            _follow(client, ids, manner)
        else:
            for task in ids:
                _Printer(manner).print_whole(client.show(task))


def _follow(client: Client, ids: list[int], manner: _Manner) -> None:
    printers = {task: _Printer(manner, prefixed=manner.several) for task in ids}
    with client.watch(*ids) as changes:
        left = set(ids)
        for task in ids:
            info = client.show(task)
            printers[task].print_whole(info)
            left -= {task} if info.state in ENDED else set()
        while left:
            task = next(changes).id
            info = client.show(task)
            printers[task].print_new(info)
            left -= {task} if info.state in ENDED else set()


def _print_failures(client: Client, ids: list[int], manner: _Manner) -> None:
    """Print of each failed task why it failed, and what its last worker wrote last."""
    for task in ids:
        info = client.show(task)
        last = info.last_output
        if info.state != "failed" and last is None:
            continue
        lines = [info.reason or "", *(last.lines if last is not None else [])]
        text = "".join(f"{line}\n" for line in lines if line)
        if manner.as_json:
            head = {"format": "hetctl/log-1", "id": task}
            emit(head | {"resource": info.resource or "", "text": text})
        else:
            if manner.several:
                say(_heading(info))
            say(text.rstrip("\n"))


def _heading(info: TaskInfo) -> str:
    name = f" {info.name}" if info.name else ""
    return one_line(f"==> task {info.id}{name} ({info.state}) <==")


@dataclass(frozen=True, slots=True)
class _Manner:
    """How to print.

    Attributes:
        as_json: an object for each piece.
        several: there are several tasks, and each is named.
        lines: only so many of the last of each; None: all.

    """

    as_json: bool
    several: bool
    lines: int | None


class _Printer:
    """Prints each part of a task's output once."""

    def __init__(self, manner: _Manner, *, prefixed: bool = False) -> None:
        self._manner = manner
        self._prefixed = prefixed
        self._printed: dict[int, int] = {}
        """Bytes printed of each segment, by its position."""

    def print_whole(self, info: TaskInfo) -> None:
        """Print what there is, or the last lines of it, with a heading for each task."""
        manner = self._manner
        if manner.several and not manner.as_json and not self._prefixed:
            say(_heading(info))
        if manner.lines is None:
            self.print_new(info)
            return
        for resource, text in self._last(list(self._new(info))):
            self._print(info, resource, text)

    def print_new(self, info: TaskInfo) -> None:
        """Print what has come since the last call."""
        for resource, text in self._new(info):
            self._print(info, resource, text)

    def _last(self, pieces: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Keep the last lines."""
        left, kept = self._manner.lines or 0, []
        for resource, text in reversed(pieces):
            lines = text.splitlines(keepends=True)
            some = lines[max(0, len(lines) - left) :]
            left -= len(some)
            kept.append((resource, "".join(some)))
        return [(resource, text) for resource, text in reversed(kept) if text]

    def _new(self, info: TaskInfo) -> Iterator[tuple[str, str]]:
        """Read (resource, text) of what was not printed yet."""
        for position, segment in enumerate(info.segments):
            # the log of a worker to which nothing was written is not kept
            if segment.log and segment.log_end != segment.log_start:
                yield from self._piece(info, position, segment)
        unrun = before_running(info)
        if unrun is not None:
            yield from self._piece(info, NO_SEGMENT, unrun)

    def _piece(
        self, info: TaskInfo, position: int, segment: Segment
    ) -> Iterator[tuple[str, str]]:
        printed = self._printed.get(position, 0)
        data, stop = read_stretch(info.owner, segment, printed)
        if segment.log_end is None:
            # A running task may be in the middle of a line, or of a character.
            whole = data.rfind(b"\n") + 1
            stop -= len(data) - whole
            data = data[:whole]
        self._printed[position] = stop - segment.log_start
        if data:
            yield segment.resource, data.decode("utf-8", "replace")

    def _print(self, info: TaskInfo, resource: str, text: str) -> None:
        if self._manner.as_json:
            head = {"format": "hetctl/log-1", "id": info.id}
            emit(head | {"resource": resource, "text": text})
            return
        # what one's own task printed may colour one's own terminal
        own = info.owner == f"uid:{os.getuid()}" or not on_terminal()
        shown = text if own else visible(text)
        if self._prefixed:
            lines = shown.splitlines(keepends=True)
            shown = "".join(f"{info.id}: {line}" for line in lines)
        click.echo(shown, nl=False)
