"""`hetctl wait`: until tasks have ended; the exit status says how."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hetctl.completing import selectors as selectors_there
from hetctl.options import connect, shared
from hetctl.selectors import selected
from hetctl.units import Duration
from hetctl.waiting import Manner, wait_for

if TYPE_CHECKING:
    from pathlib import Path


@click.command("wait")
@click.argument(
    "selectors",
    nargs=-1,
    required=True,
    metavar="SELECTOR...",
    shell_complete=selectors_there,
)
@click.option(
    "--timeout", type=Duration(), help="Give up after so long, e.g. 90s or 15min."
)
@shared
def wait_command(
    *,
    selectors: tuple[str, ...],
    timeout: float | None,
    socket: Path | None,
    as_json: bool,
) -> int:
    """Wait for tasks to end.

    Exit status: 0 all completed, 10 some failed, 11 some cancelled or dropped,
    124 not ended in time.
    """
    with connect(socket) as client:
        handles = client.handles(
            selected(client, selectors, live=True, past_names=True)
        )
        return wait_for(client, handles, Manner(timeout, as_json=as_json))
