"""`hetsim map`: one mapping event under one of the mapping heuristics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from hetsim.map_once import map_once, mapper_of
from hetsim.mapping_event import read_event
from hetsim.settings import parse_settings
from libtask.errors import InputError

if TYPE_CHECKING:
    from hetsim.map_once import MappingResult


@click.command("map")
@click.argument("event", type=click.Path(path_type=Path))
@click.option(
    "--policy", required=True, metavar="NAME", help="mm, msd, mmu, elare or felare."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A policy parameter."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    *, event: Path, policy: str, settings: tuple[str, ...], as_json: bool
) -> None:
    """Map the tasks of EVENT, a JSON file, in one pass of both phases."""
    document = read_event(event)
    mapper = mapper_of(policy, parse_settings(settings), document)
    try:
        result = map_once(document, mapper)
    except InputError as error:
        raise InputError(f"{event}: {error}") from error
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        _print(result)


def _print(result: MappingResult) -> None:
    for task, machine in result.map.items():
        click.echo(f"{task} -> machine {machine}")
    for name in ("expired", "evicted", "unmapped"):
        tasks = getattr(result, name)
        if tasks:
            click.echo(f"{name}: {', '.join(map(str, tasks))}")
    if isinstance(result.fairness_limit, float):
        suffered = ", ".join(map(str, result.suffered or [])) or "none"
        click.echo(f"fairness limit {result.fairness_limit:.4f}; suffered: {suffered}")
