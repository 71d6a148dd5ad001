"""`hetsim run`: one scenario under one policy."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from hetsim.report import print_result
from hetsim.scenario import read_scenario
from hetsim.settings import parse_settings
from hetsim.simulate import simulate, with_bound


@click.command("run")
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--policy", default="finish-time", show_default=True, help="Its name.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A policy parameter."
)
@click.option(
    "--noise",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    help="Expected times are wrong by up to this share.",
)
@click.option("--seed", type=int, default=0, help="Of the errors.")
@click.option(
    "--bound/--no-bound",
    default=True,
    show_default=True,
    help="Work out the least makespan possible.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(  # noqa: PLR0913  one argument an option
    *,
    scenario: Path,
    policy: str,
    settings: tuple[str, ...],
    noise: float,
    seed: int,
    bound: bool,
    as_json: bool,
) -> None:
    """Run SCENARIO, a JSON file, under a policy."""
    document = read_scenario(scenario)
    parameters = parse_settings(settings)
    result = simulate(document, policy, parameters, noise=noise, seed=seed)
    if bound:
        result = with_bound(result, document)
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        print_result(result, [resource.name for resource in document.resources])
