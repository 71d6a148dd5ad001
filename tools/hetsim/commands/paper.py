"""`hetsim paper`: the tables and figures of a paper, the paper's values beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from hetsim.papers import PAPERS, figures_of
from hetsim.papers.figures import PaperResult
from libtask.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from hetsim.papers.figures import Catalogue, Figure


@click.command("paper")
@click.argument("name", metavar="NAME")
@click.option("--figure", "wanted", multiple=True, metavar="ID", help="Only this one.")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    help="Random repetitions of each run  [default: as in the paper]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, file_okay=False),
    help="Draw the figures into this folder.",
)
def command(
    *,
    name: str,
    wanted: tuple[str, ...],
    seeds: int | None,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Re-make the tables and figures of the paper NAME."""
    catalogue = figures_of(name)
    chosen = _chosen(catalogue, wanted)
    made = [catalogue.recipes[id_].make(seeds or catalogue.seeds) for id_ in chosen]
    if plot is not None:
        _draw(name, catalogue, made, plot)
    if as_json:
        click.echo(msgspec.json.encode(PaperResult(name, made)))
        return
    from hetsim.papers.tables import print_figure

    for figure in made:
        print_figure(figure)


def _chosen(catalogue: Catalogue, wanted: tuple[str, ...]) -> list[str]:
    for id_ in wanted:
        if id_ not in catalogue.recipes:
            offered = ", ".join(catalogue.recipes)
            raise NotFoundError(f"no figure {id_!r}; there are: {offered}")
    return list(wanted or catalogue.recipes)


def _draw(name: str, catalogue: Catalogue, made: list[Figure], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror or error}") from error
    for figure in made:
        draw = catalogue.recipes[figure.id].draw
        if draw is not None:
            path = folder / f"{name}-{figure.id}.png"
            draw(figure, path)
            click.echo(f"drew {path}", err=True)


command.help = f"{command.help}\n\nNAME is one of: {', '.join(PAPERS)}."
