"""`hetsim arena`: policies side by side on scenarios drawn at random."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from hetsim.arena.contest import Entrant, Errors, hold_all
from hetsim.arena.generator import draw, read_generator
from hetsim.arena.losses import explain_losses
from hetsim.arena.standing import BASELINE, ArenaResult, standings_of
from hetsim.pictures import check_pictures
from hetsim.settings import FiniteRange, parse_settings
from libtask.errors import InputError

if TYPE_CHECKING:
    from hetsim.arena.generator import Generator
    from hetsim.arena.standing import Explanation, Standing

SUFFIXES = (".png", ".svg", ".pdf")
"""Suffixes of pictures."""
MOST_VARIATION = 100.0
"""Beyond, one strip has nearly all of the time."""
POLICIES = "affinity,work-conserving,migration,finish-time"


@click.command("arena")
@click.option(
    "--policies", default=POLICIES, show_default=True, help="Their names, with commas."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="POLICY.KEY=VALUE",
    help="A parameter of one of them.",
)
@click.option(
    "--scenarios",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="How many are drawn.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Of the first scenario; the others have the numbers that follow.",
)
@click.option(
    "--generator",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file with other parameters to draw from.",
)
@click.option(
    "--noise",
    type=FiniteRange(0, 1, max_open=True),
    default=0.0,
    help="Expected times are wrong by up to this share.",
)
@click.option(
    "--correct",
    is_flag=True,
    help="Strips correct the expected times while they run, as in the daemon.",
)
@click.option(
    "--strip-variation",
    type=FiniteRange(0, MOST_VARIATION),
    default=0.0,
    help="Coefficient of variation of the times of a task's strips.",
)
@click.option(
    "--worst",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="List the N scenarios where a policy loses most.",
)
@click.option(
    "--explain",
    metavar="POLICY",
    default="",
    help="Draw what arrives after each of its clear losses began again: was it luck?",
)
@click.option(
    "--continuations",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How often, with --explain.",
)
@click.option(
    "--save",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write these scenarios into this folder, for `hetsim run`.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw a .png, .svg or .pdf file.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(  # noqa: PLR0913  one argument an option
    *,
    policies: str,
    settings: tuple[str, ...],
    scenarios: int,
    seed: int,
    generator: Path | None,
    noise: float,
    correct: bool,
    strip_variation: float,
    worst: int,
    explain: str,
    continuations: int,
    save: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Run policies side by side on scenarios drawn at random."""
    parameters = read_generator(generator)
    entrants = _entrants(policies, settings)
    if explain and explain not in [each.policy for each in entrants]:
        raise InputError(f'--explain: "{explain}" takes no part; see --policies')
    errors = Errors(noise, correct, strip_variation)
    if explain and errors != Errors():
        raise InputError("--explain: expected times must be right")
    if plot is not None:
        _check_plot(plot)
    began = time.perf_counter()
    seeds = range(seed, seed + scenarios)
    contests = hold_all(seeds, parameters, entrants, errors)
    explained = []
    if explain:
        explained = explain_losses(
            contests, explain, parameters, entrants, continuations
        )
    took = time.perf_counter() - began
    result = ArenaResult(standings_of(contests, worst), contests, took, explained)
    if save is not None:
        _save(result.standings, parameters, save)
    if plot is not None:
        from hetsim.arena.drawing import draw_arena

        draw_arena(contests, plot)
        click.echo(f"drew {plot}", err=True)
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        _print(result)


def _entrants(policies: str, settings: tuple[str, ...]) -> list[Entrant]:
    """List the policies with their parameters; `affinity` always takes part."""
    names = [name.strip() for name in policies.split(",") if name.strip()]
    parameters: dict[str, dict[str, str]] = {name: {} for name in [BASELINE, *names]}
    for setting in settings:
        policy, dot, rest = setting.partition(".")
        if not dot or policy not in parameters:
            raise InputError(f'--set: expected POLICY.KEY=VALUE, got "{setting}"')
        parameters[policy].update(parse_settings([rest]))
    return [Entrant(name, each) for name, each in parameters.items()]


def _check_plot(path: Path) -> None:
    """Refuse a picture that could not be written after the run."""
    if path.suffix not in SUFFIXES:
        expected = ", ".join(SUFFIXES)
        raise InputError(f"--plot: {path}: expected a name that ends in {expected}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"--plot: {path}: no such folder")
    check_pictures()


def _save(standings: list[Standing], generator: Generator, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for seed in {loss.seed for each in standings for loss in each.worst}:
            scenario = draw(seed, generator).scenario
            path = folder / f"arena-{seed}.json"
            path.write_bytes(msgspec.json.format(msgspec.json.encode(scenario)))
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror or error}") from error


def _print(result: ArenaResult) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("policy")
    for heading in ("over affinity", "over bound", "at most", "below 0.99", "moves"):
        table.add_column(heading, justify="right")
    table.add_column("worst: share of the best other, seed")
    for each in result.standings:
        worst = ", ".join(f"{loss.ratio:.3f} {loss.seed}" for loss in each.worst)
        table.add_row(
            each.policy,
            f"{each.speed_up:.3f}",
            f"{each.over_bound:.3f}",
            f"{each.most_over_bound:.2f}",
            str(each.clearly_lost),
            f"{each.moves:.2f} ({each.most_moves})",
            worst,
        )
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=132)
    console.print(table)
    for explanation in result.explanations:
        console.print(_describe(explanation))
    if result.explanations:
        console.print(_sum_up(result.explanations))
    console.print(f"{len(result.contests)} scenarios in {result.seconds:.1f} s")


def _describe(one: Explanation) -> str:
    """Describe one loss and its continuations in a line."""
    loss = f"seed {one.loss.seed}: {one.loss.ratio:.3f} of {one.loss.best}"
    if not one.to_come:
        return f"{loss}, which differs when all tasks have arrived"
    return (
        f"{loss}, which differs from {one.instant:.4g} s on; {one.to_come} tasks drawn "
        f"again: {one.mean_ratio:.3f} in the mean, lost in {one.lost:.0%} "
        f"(the policy that loses least: {one.least_lost:.0%})"
    )


def _sum_up(explained: list[Explanation]) -> str:
    """Sum up how many of the losses were right decisions when they were taken."""
    undecided = [one for one in explained if one.to_come]
    right = sum(one.mean_ratio >= 1.0 for one in undecided)
    least = sum(one.lost <= one.least_lost for one in undecided)
    return (
        f"{len(explained)} losses, {len(undecided)} with tasks to come; of these {right} are "
        f"wins in the mean of what could have come, and {least} are by the policy that "
        f"then loses least often"
    )
