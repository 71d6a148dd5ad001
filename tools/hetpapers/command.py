"""`hetsim paper`: the tables and figures of a paper, the paper's values beside ours."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from hetpapers import PAPERS, figures_of
from hetpapers.figures import LivePlan, PaperResult
from hetsim.pictures import check_pictures
from libtask.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hetpapers.figures import Catalogue, Figure, LiveRecipe


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
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    help="Live: all times are divided by this.",
)
@click.option(
    "--delay",
    "delays",
    multiple=True,
    type=float,
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
    scale: float,
    delays: tuple[float, ...],
) -> None:
    """Re-make the tables and figures of the paper NAME."""
    catalogue = figures_of(name)
    if delays and not on_daemon:
        raise InputError("--delay: only with --live")
    if on_daemon:
        # so that the private daemon is ended too
        signal.signal(signal.SIGTERM, _leave)
        recipe = _live_of(name, catalogue)
        plan = _plan(recipe, wanted, seeds, scale, delays)
        _make_folder(plot)
        made = recipe.make(plan, _tell)
    else:
        ids = _chosen(catalogue.recipes, wanted)
        _make_folder(plot)
        made = [catalogue.recipes[id_].make(seeds or catalogue.seeds) for id_ in ids]
    if plot is not None:
        _draw(name, catalogue, made, plot)
    _print(PaperResult(name, made), as_json=as_json)


def _print(result: PaperResult, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(result))
        return
    from hetpapers.tables import print_figure

    for figure in result.figures:
        print_figure(figure)


def _leave(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


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


def _make_folder(folder: Path | None) -> None:
    """Before the runs, which may take minutes: what keeps from drawing is refused at once."""
    if folder is None:
        return
    check_pictures()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror or error}") from error


def _draw(name: str, catalogue: Catalogue, made: list[Figure], folder: Path) -> None:
    for figure in made:
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
