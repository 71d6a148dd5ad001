"""`hetctl logs`: what a task printed, from all the workers it ran in, in order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hetctl.options import connect, shared
from hetctl.output import emit, on_terminal
from hetctl.selectors import selected
from libtask.errors import InputError
from libtask.messages import ENDED, Segment
from libtask.plaintext import visible
from libtask.worker.logs import opened, read

if TYPE_CHECKING:
    from libtask.client.client import Client
    from libtask.messages import TaskInfo

NO_SEGMENT = -1
"""Stands for the position of output that no segment tells of."""


@click.command("logs")
@click.argument("selector")
@click.option("-f", "--follow", is_flag=True, help="Go on until the task ends.")
@shared
def logs_command(
    *, selector: str, follow: bool, socket: Path | None, as_json: bool
) -> None:
    """Print what a task printed, on all the resources where it ran."""
    with connect(socket) as client:
        task = _only(client, selector)
        if follow:
            _follow(client, task, as_json=as_json)
        else:
            _Printer(as_json=as_json).print_new(client.show(task))


def _only(client: Client, selector: str) -> int:
    ids = selected(client, [selector])
    if len(ids) != 1:
        raise InputError(
            f"selector {selector!r}: logs are of one task, that names {len(ids)}"
        )
    return ids[0]


def _follow(client: Client, task: int, *, as_json: bool) -> None:
    printer = _Printer(as_json=as_json)
    with client.watch(task) as changes:
        info = client.show(task)
        printer.print_new(info)
        while info.state not in ENDED:
            next(changes)
            info = client.show(task)
            printer.print_new(info)


class _Printer:
    """Prints each part of a task's output once."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._printed: dict[int, int] = {}
        """Bytes printed of each segment, by its position."""

    def print_new(self, info: TaskInfo) -> None:
        for position, segment in enumerate(info.segments):
            # the log of a worker to which nothing was written is not kept
            if segment.log and segment.log_end != segment.log_start:
                self._print_segment(info, position, segment)
        unrun = _before_running(info)
        if unrun is not None:
            self._print_segment(info, NO_SEGMENT, unrun)

    def _print_segment(self, info: TaskInfo, position: int, segment: Segment) -> None:
        printed = self._printed.get(position, 0)
        data, stop = _read(info.owner, segment, printed)
        if segment.log_end is None:
            # A running task may be in the middle of a line, or of a character.
            whole = data.rfind(b"\n") + 1
            stop -= len(data) - whole
            data = data[:whole]
        self._printed[position] = stop - segment.log_start
        text = data.decode("utf-8", "replace")
        if self._as_json and text:
            head = {"format": "hetctl/log-1", "id": info.id}
            emit(head | {"resource": segment.resource, "text": text})
        elif text:
            # what one's own task printed may colour one's own terminal
            own = info.owner == f"uid:{os.getuid()}" or not on_terminal()
            click.echo(text if own else visible(text), nl=False)


def _before_running(info: TaskInfo) -> Segment | None:
    """Return the output of a task that failed, or lost its worker, while it waited.

    It was loaded ahead, and no stretch on a resource tells of it.
    """
    last = info.last_output
    if last is None or not last.log:
        return None
    place = (last.log, last.log_start)
    if any((each.log, each.log_start) == place for each in info.segments):
        return None
    return Segment(
        info.resource or "",
        0.0,
        log=last.log,
        log_start=last.log_start,
        log_end=last.log_end,
    )


def _read(owner: str, segment: Segment, skip: int) -> tuple[bytes, int]:
    """Read a segment's part of its worker's log; of a running one what is there.

    Where it lies is the worker's word: an administrator must not be made to read what
    is another's.

    Returns:
        What to show, with a line for what was dropped; and where in the log it ends.

    Raises:
        InputError: the log is gone, or another user's.

    """
    try:
        with opened(Path(segment.log), int(owner.removeprefix("uid:"))) as log:
            return read(log, segment.log_start + skip, segment.log_end)
    except OSError as error:
        raise InputError(f"log {segment.log}: {error.strerror}") from error
