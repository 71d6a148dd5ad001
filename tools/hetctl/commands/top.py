"""`hetctl top`: the node, live on the whole terminal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hetctl.options import lacking, shared
from hetctl.output import emit, now, table, task_document
from hetctl.terminal import say
from hetctl.units import Duration
from libtask.errors import HetError

if TYPE_CHECKING:
    from hetctl.top.app import Top
    from hetctl.top.picture import Picture

SIZE = (120, 32)
"""Columns and lines of a picture that is written to a file."""
FIRST_LOOKS = 2
"""Looks before a picture is written: rates take two."""


@click.command("top")
@click.option(
    "--every", type=Duration(), default="1s", show_default=True, help="Between looks."
)
@click.option("--once", is_flag=True, help="Print what there is, and end.")
@click.option(
    "--screenshot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the screen as SVG, and end.",
)
@shared
def top_command(
    *,
    every: float,
    once: bool,
    screenshot: Path | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Watch resources and tasks, and steer them by keys.

    A star marks emulated resources; power is modelled where it says mod. "Left" is
    the computing that is left on each resource where the application was measured,
    that where the task is first.
    """
    if once or as_json:
        _print(socket, as_json=as_json)
        return
    try:
        from hetctl.top.app import Top
    except ModuleNotFoundError as error:
        if error.name not in ("textual", "rich"):
            raise
        raise HetError(lacking("top needs", "textual")) from error
    app = Top(socket, every)
    if screenshot is None:
        app.run()
    else:
        screenshot.write_text(asyncio.run(_drawn(app)), encoding="utf-8")


def _print(socket: Path | None, *, as_json: bool) -> None:
    from hetctl.top.feed import Feed
    from hetctl.top.picture import (
        RESOURCE_HEADINGS,
        TASK_HEADINGS,
        Picture,
        task_row,
    )

    picture = Picture()
    Feed(socket, picture).once()
    if as_json:
        emit(_document(picture))
        return
    say(picture.headline())
    table(RESOURCE_HEADINGS, [picture.resource_row(d) for d in picture.devices])
    rows = [task_row(info, now()) for info in picture.shown("not ended", "", 100)]
    if rows:
        say("")
        table(TASK_HEADINGS, rows)


def _document(picture: Picture) -> dict[str, object]:
    emulated = frozenset(d.spec.name for d in picture.devices if d.spec.emulated)
    status = picture.status
    return {
        "format": "hetctl/top-1",
        "policy": status.policy if status else None,
        "counts": dict(status.tasks) if status else {},
        "resources": [
            {
                "name": device.spec.name,
                "emulated": device.spec.emulated,
                "state": device.state,
                "running": device.running,
                "queued": device.queued,
            }
            for device in picture.devices
        ],
        "tasks": [
            task_document(info, emulated)
            for info in picture.shown("not ended", "", len(picture.tasks))
        ],
    }


async def _drawn(app: Top) -> str:
    """Run without a terminal until there is something to see; return it as SVG."""
    async with app.run_test(size=SIZE) as pilot:
        while app.picture.status is None and not app.picture.problem:
            await pilot.pause(0.1)
        for _ in range(FIRST_LOOKS):
            await pilot.pause(app.feed.interval)
        drawn = app.export_screenshot()
    if app.picture.problem:
        raise HetError(app.picture.problem)
    return drawn
