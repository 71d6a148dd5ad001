"""`hetsim bound`: the least makespan that any schedule of a scenario can have."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from hetsim.bound import lower_bound_of
from hetsim.scenario import read_scenario


@click.command("bound")
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(*, scenario: Path, as_json: bool) -> None:
    """Bound the makespan of SCENARIO, a JSON file, from below.

    No schedule that completes all its tasks is shorter, whatever it knows in advance
    and however often it moves them.
    """
    bound = lower_bound_of(read_scenario(scenario))
    if as_json:
        document = {"format": "hetsim/bound-1", "lower_bound": bound}
        click.echo(msgspec.json.encode(document))
    else:
        click.echo(f"no schedule of it is shorter than {bound:.3f} s")
