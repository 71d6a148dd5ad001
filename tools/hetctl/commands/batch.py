"""`hetctl batch`: submit the tasks of a TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hetctl.commands.submit import finish
from hetctl.options import connect, shared
from hetctl.output import emit
from hetctl.units import Duration


@click.command("batch")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Check the file; submit nothing.")
@click.option(
    "--wait", "waiting", is_flag=True, help="Wait for the end; a line tells each."
)
@click.option("--follow", is_flag=True, help="Wait, with live progress on a terminal.")
@click.option("--timeout", type=Duration(), help="Wait no longer, e.g. 90s or 15min.")
@shared
def batch_command(file: Path, *, check: bool, **given: Any) -> int:
    """Submit the tasks of FILE, a TOML list; - is standard input.

    \b
    [[task]]
    app = "heat"
    name = "first"
    params = { n = 4096, steps = 100 }

    \b
    [[task]]
    app = "correlation"
    after = ["first"]

    Further keys: priority, count, hold, on (resources), strip, deadline ("5s"),
    overrun ("continue" or "stop").
    """  # noqa: D301  click reads the backspaces
    from hetctl.batchfile import BatchFile

    specs = BatchFile(file).read()
    if check:
        return _checked(file, len(specs), as_json=given["as_json"])
    with connect(given["socket"]) as client:
        return finish(client, client.submit_specs(specs), given)


def _checked(file: Path, count: int, *, as_json: bool) -> int:
    if as_json:
        emit({"format": "hetctl/batch-check-1", "file": str(file), "tasks": count})
    else:
        click.echo(f"{file}: {count} tasks, no mistakes")
    return 0
