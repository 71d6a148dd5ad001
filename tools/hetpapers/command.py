"""`hetsim paper`: the tables and figures of a paper, the paper's values beside ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from hetpapers import PAPERS, figures_of
from hetpapers.figures import LivePlan, PaperResult
from hetpapers.tables import print_figure
from hetsim.pictures import check_pictures
from hetsim.settings import FiniteRange
from libtask.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hetpapers.figures import Catalogue, Figure, LiveRecipe

SCALES = (0.01, 1000.0)
"""Limits of the divisor: at the upper one the longest task takes a tenth of a second."""
SCALE = 20.0
"""Divisor of all times in live runs, if none is given."""


@click.command("paper")
@click.argument("name", metavar="NAME")
@click.option("--figure", "wanted", multiple=True, metavar="ID", help="Only this one.")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    help="Random repetitions of each run  [default: as in the paper; mokhtari-felare: 5, live: 1]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, file_okay=False),
    help="Draw the figures into this folder.",
)
@click.option(
    "--live",
    "on_daemon",
    is_flag=True,
    help="Run on a real daemon too, with tasks that wait instead of computing.",
)
@click.option(
    "--scale",
    type=FiniteRange(*SCALES),
    help="Live: all times are divided by this  [default: 20]",
)
@click.option(
    "--delay",
    "delays",
    multiple=True,
    type=FiniteRange(min=0),
    metavar="SECONDS",
    help="Live: only with this time between arrivals  [default: 0 and 0.5]",
)
def command(  # noqa: PLR0913  one argument an option
    *,
    name: str,
    wanted: tuple[str, ...],
    seeds: int | None,
    as_json: bool,
    plot: Path | None,
    on_daemon: bool,
    scale: float | None,
    delays: tuple[float, ...],
) -> None:
    """Re-make the tables and figures of the paper NAME."""
    catalogue = figures_of(name)
    if not on_daemon:
        _only_live(scale=scale is not None, delay=bool(delays))
        figures = _made(catalogue, _chosen(catalogue.recipes, wanted), seeds)
    else:
        recipe = _live_of(name, catalogue)
        plan = _plan(recipe, wanted, seeds, scale or SCALE, delays)
        figures = _made_live(recipe, plan)
    if plot is not None:
        _make_folder(plot)
    shown = []
    for figure in figures:
        if plot is not None:
            _draw(name, catalogue, figure, plot)
        if not as_json:
            print_figure(figure)
        shown.append(figure)
    if as_json:
        click.echo(msgspec.json.encode(PaperResult(name, shown)))


def _only_live(**given: bool) -> None:
    for option, is_given in given.items():
        if is_given:
            raise InputError(f"--{option}: only with --live")


def _made(catalogue: Catalogue, ids: list[str], seeds: int | None) -> Iterator[Figure]:
    """Make one figure after the other; say which on a terminal, as some take minutes."""
    for number, id_ in enumerate(ids, 1):
        if sys.stderr.isatty():
            _tell(f"[{number}/{len(ids)}] {id_}...")
        yield catalogue.recipes[id_].make(seeds or catalogue.seeds)


def _made_live(recipe: LiveRecipe, plan: LivePlan) -> Iterator[Figure]:
    yield from recipe.make(plan, _tell)


def _tell(news: str) -> None:
    click.echo(news, err=True)


def _live_of(name: str, catalogue: Catalogue) -> LiveRecipe:
    if catalogue.live is None:
        raise InputError(f"--live: {name} has no runs on a real daemon")
    return catalogue.live


def _plan(
    recipe: LiveRecipe,
    wanted: tuple[str, ...],
    orders: int | None,
    scale: float,
    delays: tuple[float, ...],
) -> LivePlan:
    for delay in delays:
        if delay not in recipe.delays:
            offered = ", ".join(f"{each:g}" for each in recipe.delays)
            raise InputError(f"--delay: the paper has {offered}; got {delay:g}")
    return LivePlan(
        wanted=_chosen(recipe.ids, wanted),
        orders=orders or recipe.orders,
        scale=scale,
        delays=tuple(dict.fromkeys(delays)) or recipe.usual,
    )


def _chosen(known: Iterable[str], wanted: tuple[str, ...]) -> list[str]:
    offered = list(known)
    for id_ in wanted:
        if id_ not in offered:
            raise NotFoundError(f"no figure {id_!r}; there are: {', '.join(offered)}")
    return list(dict.fromkeys(wanted)) or offered


def _make_folder(folder: Path) -> None:
    """Before the runs, which may take minutes: what keeps from drawing is refused at once."""
    check_pictures()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror or error}") from error


def _draw(name: str, catalogue: Catalogue, figure: Figure, folder: Path) -> None:
    draw = _draws(catalogue, figure)
    if draw is not None:
        path = folder / f"{name}-{figure.id}.png"
        draw(figure, path)
        _tell(f"drew {path}")


def _draws(
    catalogue: Catalogue, figure: Figure
) -> Callable[[Figure, Path], None] | None:
    recipe = catalogue.recipes.get(figure.id)
    if recipe is None:
        return catalogue.live.draw if catalogue.live else None
    return recipe.draw


command.help = f"{command.help}\n\nNAME is one of: {', '.join(PAPERS)}."
