"""`hetctl trace`: what ran, as a scenario for hetsim or a trace for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
import msgspec

from hetctl.completing import selectors as selectors_there
from hetctl.options import connect, shared
from hetctl.output import now
from hetctl.recent import lately, since_option
from hetctl.terminal import say, say_json
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from libtask.client.client import Client
    from libtask.messages import TaskInfo


@click.command("trace")
@click.argument(
    "selectors", nargs=-1, metavar="[SELECTOR]...", shell_complete=selectors_there
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["scenario", "chrome"]),
    default="scenario",
    show_default=True,
    help="scenario: for `hetsim run`; chrome: for ui.perfetto.dev.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Instead of printing it."
)
@since_option
@shared
def trace_command(  # noqa: PLR0913  one argument an option
    *,
    selectors: tuple[str, ...],
    form: Literal["scenario", "chrome"],
    output: Path | None,
    since: float | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Write what ran; none named: all tasks since the last idle hour.

    The output is JSON in any case.
    """
    with connect(socket) as client:
        tasks = lately(client, selectors, since)
        document = _document(client, tasks, form)
    text = msgspec.json.format(
        msgspec.json.encode(document), indent=0 if as_json else 2
    )
    if output is None:
        say_json(text)
    else:
        _write(output, text)


def _document(
    client: Client, tasks: list[TaskInfo], form: Literal["scenario", "chrome"]
) -> Mapping[str, object]:
    if form == "chrome":
        from hetctl.perfetto import chrome_document

        since = min((info.submitted for info in tasks), default=now())
        return chrome_document(tasks, client.devices(), now(), client.notes(since))
    from hetctl.scenario import ScenarioWriter

    writer = ScenarioWriter(client.devices(), client.models(), client.policy())
    document = writer.document(tasks)
    for name in writer.unknown:
        say(f"left out {name}: none of its tasks ran to its end unmoved", err=True)
    return document


def _write(output: Path, text: bytes) -> None:
    try:
        output.write_bytes(text + b"\n")
    except OSError as error:
        raise InputError(f"{output}: {error.strerror}") from error
