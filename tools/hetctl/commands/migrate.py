"""`hetctl migrate`: move a task to another resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hetctl.completing import resources
from hetctl.completing import selectors as selectors_there
from hetctl.options import connect, shared
from hetctl.output import emit
from hetctl.selectors import selected
from hetctl.terminal import say

if TYPE_CHECKING:
    from pathlib import Path


@click.command("migrate")
@click.argument(
    "selectors",
    nargs=-1,
    required=True,
    metavar="SELECTOR...",
    shell_complete=selectors_there,
)
@click.option(
    "--to",
    "resource",
    required=True,
    shell_complete=resources,
    help="The resource to move to.",
)
@shared
def migrate_command(
    *,
    selectors: tuple[str, ...],
    resource: str,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Move tasks to RESOURCE; a running one moves at its next checkpoint."""
    with connect(socket) as client:
        ids = selected(client, selectors, live=True)
        for task in ids:
            client.migrate(task, resource)
    if as_json:
        emit({"format": "hetctl/migrate-1", "ids": ids, "resource": resource})
        return
    for task in ids:
        say(f"task {task} goes to {resource}")
