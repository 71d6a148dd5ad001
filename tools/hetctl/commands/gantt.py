"""`hetctl gantt`: draw what ran where, from what really happened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hetctl.completing import selectors as selectors_there
from hetctl.options import connect, lacking, shared
from hetctl.output import emit, now
from hetctl.recent import lately, since_option
from hetctl.terminal import say
from libtask.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from hetctl.lanes import Lane, Stretch

PAGE = ".html"
SUFFIXES = (".png", ".svg", ".pdf", PAGE)


@click.command("gantt")
@click.argument(
    "selectors", nargs=-1, metavar="[SELECTOR]...", shell_complete=selectors_there
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="gantt.png",
    show_default=True,
    help="Picture to write: .png, .svg, .pdf, or .html to zoom and point at.",
)
@since_option
@shared
def gantt_command(
    *,
    selectors: tuple[str, ...],
    output: Path,
    since: float | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Draw what ran where; none named: all tasks since the last idle hour."""
    _check(output)
    with connect(socket) as client:
        tasks = lately(client, selectors, since)
        devices = client.devices()
    ran = [info for info in tasks if info.segments]
    if not ran:
        raise NotFoundError("none of these tasks has run yet; there is nothing to draw")
    from hetctl.lanes import laid_out

    lanes, stretches = laid_out(ran, devices, now())
    if output.suffix == PAGE:
        _write(lanes, stretches, output)
    else:
        _draw(lanes, stretches, output)
    if as_json:
        emit(
            {
                "format": "hetctl/gantt-1",
                "file": str(output),
                "tasks": [i.id for i in ran],
            }
        )
    else:
        say(f"{output}: {len(ran)} tasks drawn")


def _check(output: Path) -> None:
    if output.suffix not in SUFFIXES:
        raise InputError(
            f"{output}: expected a name that ends in {', '.join(SUFFIXES)}"
        )
    if not output.absolute().parent.is_dir():
        raise InputError(f"{output}: no such folder")


def _write(lanes: list[Lane], stretches: list[Stretch], output: Path) -> None:
    from hetctl.page import write_page

    try:
        write_page(lanes, stretches, output)
    except OSError as error:
        raise InputError(f"{output}: {error.strerror}") from error


def _draw(lanes: list[Lane], stretches: list[Stretch], output: Path) -> None:
    try:
        from hetctl.chart import draw
    except ImportError as error:
        raise InputError(lacking("pictures need", "matplotlib")) from error
    try:
        draw(lanes, stretches, output)
    except OSError as error:
        raise InputError(f"{output}: {error.strerror}") from error
