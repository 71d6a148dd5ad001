"""`hetctl logs`: what a task printed, from all the workers it ran in, in order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hetctl.options import connect, shared
from hetctl.output import emit
from hetctl.selectors import selected
from libtask.errors import InputError
from libtask.messages import ENDED

if TYPE_CHECKING:
    from libtask.client import Client
    from libtask.messages import Segment, TaskInfo


@click.command("logs")
@click.argument("selector")
@click.option("-f", "--follow", is_flag=True, help="Go on until the task ends.")
@shared
def logs_command(
    *, selector: str, follow: bool, socket: Path | None, as_json: bool
) -> None:
    """Print what a task printed.

    The output of a stretch on one resource is known when the stretch ends.
    """
    with connect(socket) as client:
        task = _only(client, selector)
        if follow:
            _follow(client, task, as_json=as_json)
        else:
            _print_new(client.show(task), 0, as_json=as_json)


def _only(client: Client, selector: str) -> int:
    ids = selected(client, [selector])
    if len(ids) != 1:
        raise InputError(
            f"selector {selector!r}: logs are of one task, that names {len(ids)}"
        )
    return ids[0]


def _follow(client: Client, task: int, *, as_json: bool) -> None:
    with client.watch(task, progress=False) as changes:
        info = client.show(task)
        printed = _print_new(info, 0, as_json=as_json)
        while info.state not in ENDED:
            next(changes)
            info = client.show(task)
            printed = _print_new(info, printed, as_json=as_json)


def _print_new(info: TaskInfo, printed: int, *, as_json: bool) -> int:
    """Print the stretches after the first `printed`; return how many are printed now."""
    ready = [
        segment
        for segment in info.segments
        if segment.log and segment.log_end is not None
    ]
    for segment in ready[printed:]:
        text = _text(segment)
        if as_json:
            document = {
                "format": "hetctl/log-1",
                "id": info.id,
                "resource": segment.resource,
            }
            emit(document | {"text": text})
        else:
            click.echo(text, nl=False)
    return len(ready)


def _text(segment: Segment) -> str:
    """Read a stretch's part of its worker's log.

    Raises:
        InputError: the log is gone, or another user's.

    """
    end = segment.log_end or 0
    try:
        with Path(segment.log).open("rb") as file:
            file.seek(segment.log_start)
            data = file.read(max(0, end - segment.log_start))
    except OSError as error:
        raise InputError(f"log {segment.log}: {error.strerror}") from error
    return data.decode("utf-8", "replace")
