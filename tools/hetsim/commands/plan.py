"""`hetsim plan`: a batch of jobs with transfers, planned by one planner."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from hetsched.planning.batch.planners import make_planner
from hetsim.batch import read_batch
from hetsim.batch_plan import plan_batch
from hetsim.settings import parse_settings
from libtask.errors import InputError

if TYPE_CHECKING:
    from hetsim.batch_plan import PlanResult

MOST_JOBS = 60
"""Longer lists are cut; `--json` has them whole."""


@click.command("plan")
@click.argument("batch", type=click.Path(path_type=Path))
@click.option(
    "--planner",
    required=True,
    metavar="NAME",
    help="sct, mmi, mttf-lp, sjf, ljf, cim, nim, ncjm or waves.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A parameter of it."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    *, batch: Path, planner: str, settings: tuple[str, ...], as_json: bool
) -> None:
    """Plan BATCH, a JSON file: the place and time of each job, and the transfers."""
    chosen = make_planner(planner, parse_settings(settings))
    document = read_batch(batch)
    try:
        result = plan_batch(document, planner, chosen)
    except InputError as error:
        raise InputError(f"{batch}: {error}") from error
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        _print(result)


def _print(result: PlanResult) -> None:
    jobs = sorted(result.jobs, key=lambda job: (job.start, job.finish))
    for job in jobs[:MOST_JOBS]:
        there = (
            f", data there at {job.transfer[-1].finish:.4g} s" if job.transfer else ""
        )
        click.echo(
            f"{job.id} on {job.accelerator}: {job.start:.4g} to {job.finish:.4g} s{there}"
        )
    if len(jobs) > MOST_JOBS:
        click.echo(f"... and {len(jobs) - MOST_JOBS} jobs more")
    click.echo(
        f"makespan {result.makespan:.6g} s, lower bound {result.lower_bound:.6g} s,"
        f" planned in {result.planning_seconds * 1e3:.1f} ms"
    )
