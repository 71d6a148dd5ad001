"""`hetctl web`: the node as a page, for people who would rather look."""

from __future__ import annotations

import webbrowser
from typing import TYPE_CHECKING

import click

from hetctl.options import connect, shared
from hetctl.output import emit
from hetctl.terminal import say

if TYPE_CHECKING:
    from pathlib import Path


@click.command("web")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port on 127.0.0.1.  [default: any free one]",
)
@click.option("--control", is_flag=True, help="Let the page steer, not only look.")
@click.option("--open", "opened", is_flag=True, help="Open it in a browser.")
@shared
def web_command(
    *, port: int, control: bool, opened: bool, socket: Path | None, as_json: bool
) -> None:
    """Serve a page with a live Gantt chart, resources and tasks, until interrupted.

    It listens on 127.0.0.1 only. The address that is printed holds a secret: whoever
    knows it sees what you may see, and with --control does what you may do.
    """
    from hetctl.web.server import PageServer

    connect(socket).close()  # an absent daemon is told of here, not on the page
    with PageServer(socket, port, control=control) as server:
        if as_json:
            emit({"format": "hetctl/web-1", "address": server.address})
        else:
            say(server.address)
        if opened:
            webbrowser.open(server.address)
        server.serve_forever()
