"""`hetctl config show`: the daemon's configuration, and where each value comes from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from hetctl.columns import parsable_option
from hetctl.options import connect, shared
from hetctl.output import emit, table
from hetctl.terminal import say

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.messages import ConfigValue

HEADINGS = ("key", "value", "from", "")


@click.group("config")
def config_command() -> None:
    """Show how the daemon is configured."""


@config_command.command("show")
@click.option("--changed", is_flag=True, help="Only what is not the default.")
@parsable_option
@shared
def show(*, changed: bool, parsable: bool, socket: Path | None, as_json: bool) -> None:
    """Show every value in force, and where it comes from.

    default; file: hetd.toml; command line; operator: hetctl policy set; start: the file
    says something else by now, which counts from the next start on. Limits of other users
    are for administrators.
    """
    with connect(socket) as client:
        found = client.config()
    values = [each for each in found.values if not changed or each.source != "default"]
    if as_json:
        emit(
            {
                "format": "hetctl/config-1",
                "file": found.file or None,
                "values": [_document(each) for each in values],
            }
        )
        return
    if not parsable:
        say(f"read from {found.file}" if found.file else "there is no hetd.toml")
    rows = [
        (each.key, json.dumps(each.value), each.source, each.text) for each in values
    ]
    table(HEADINGS, rows, parsable=parsable)


def _document(each: ConfigValue) -> dict[str, object]:
    text = each.text or None
    return {"key": each.key, "value": each.value, "source": each.source, "text": text}
