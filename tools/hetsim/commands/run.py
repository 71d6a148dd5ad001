"""`hetsim run`: one scenario under one policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hetsim.report import print_result
from hetsim.scenario import read_scenario
from hetsim.settings import FiniteRange, parse_settings
from hetsim.simulate import simulate, with_bound

if TYPE_CHECKING:
    from hetsim.scenario import Scenario

DEFAULT_POLICY = "finish-time"
"""The daemon's own default."""


@click.command("run")
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option(
    "--policy", help="Its name  [default: that of the scenario, else finish-time]"
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A policy parameter."
)
@click.option(
    "--noise",
    type=FiniteRange(0, 1, max_open=True),
    default=0.0,
    help="Expected times are wrong by up to this share.",
)
@click.option("--seed", type=int, default=0, help="Of the errors.")
@click.option(
    "--correct",
    is_flag=True,
    help="Strips correct the expected times while they run, as in the daemon.",
)
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
    policy: str | None,
    settings: tuple[str, ...],
    noise: float,
    seed: int,
    correct: bool,
    bound: bool,
    as_json: bool,
) -> None:
    """Run SCENARIO, a JSON file, under a policy."""
    document = read_scenario(scenario)
    name, parameters = _policy(document, policy, parse_settings(settings))
    result = simulate(
        document, name, parameters, noise=noise, seed=seed, correct=correct
    )
    if bound:
        result = with_bound(result, document)
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        print_result(result, [resource.name for resource in document.resources])


def _policy(
    document: Scenario, named: str | None, settings: dict[str, str]
) -> tuple[str, dict[str, Any]]:
    """Choose the policy: the one named, else the scenario's with its parameters."""
    if named is not None or document.policy is None:
        return named or DEFAULT_POLICY, dict(settings)
    return document.policy, {**document.policy_parameters, **settings}
