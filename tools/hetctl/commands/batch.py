"""`hetctl batch`: submit the tasks of a TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hetctl.commands.submit import finish
from hetctl.options import connect, submitting
from hetctl.output import emit
from hetctl.terminal import say
from libtask.errors import DaemonUnreachableError


@click.command("batch")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Check the file; submit nothing.")
@submitting
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
    overrun ("continue" or "stop"). A sweep is a task for each combination of values,
    zip takes them side by side; {n} in a text is the value of n:

    \b
    [[task]]
    app = "heat"
    params = { output = "plate-{n}.npy" }
    sweep = { n = [1024, 2048], steps = [100, 1000] }
    """  # noqa: D301  click reads the backspaces
    from hetctl.batchfile import BatchFile

    try:
        opened = connect(given["socket"], start=given["start"])
    except DaemonUnreachableError:
        specs = BatchFile(file).read()  # its own mistakes come first
        if not check:
            raise
        return _checked(file, len(specs), resources=False, as_json=given["as_json"])
    with opened as client:
        kinds = {each.spec.name: each.spec.kind for each in client.devices()}
        specs = BatchFile(file, dict(kinds)).read()
        if check:
            return _checked(file, len(specs), resources=True, as_json=given["as_json"])
        return finish(client, client.submit_specs(specs), given)


def _checked(file: Path, count: int, *, resources: bool, as_json: bool) -> int:
    if as_json:
        emit(
            {
                "format": "hetctl/batch-check-1",
                "file": str(file),
                "tasks": count,
                "resources_checked": resources,
            }
        )
        return 0
    unsaid = "" if resources else "; no daemon answers, so resources were not checked"
    say(f"{file}: {count} tasks, no mistakes{unsaid}")
    return 0
