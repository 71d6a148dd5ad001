"""`hetsim pool`: a batch on a pool of nodes, placed and carried as a live pool does it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from hetsched.planning.batch.planners import make_planner
from hetsim.batch import read_batch
from hetsim.pool.model import model_of
from hetsim.pool.network import TransferWay
from hetsim.pool.result import result_of
from hetsim.pool.run import PoolRunSettings, simulate_pool
from hetsim.settings import MOST, FiniteRange, parse_settings
from libtask.errors import InputError

if TYPE_CHECKING:
    from hetsim.pool.result import PooledResult

MOST_JOBS = 60
"""Longer lists are cut; `--json` has them whole."""


@click.command("pool")
@click.argument("batch", type=click.Path(path_type=Path))
@click.option(
    "--planner",
    default="ncjm",
    show_default=True,
    metavar="NAME",
    help="sct, mmi, mttf-lp, sjf, ljf, cim, nim, ncjm or waves.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A parameter of it."
)
@click.option(
    "--transfers",
    type=click.Choice(get_args(TransferWay)),
    default="ordered",
    show_default=True,
    help="Data in planned order; also at planned rates; or all at the same time.",
)
@click.option(
    "--share",
    type=FiniteRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Of the links' rates that plans use.",
)
@click.option(
    "--window",
    type=FiniteRange(0, MOST),
    default=0.0,
    show_default=True,
    help="Seconds for which jobs are gathered into a batch.",
)
@click.option(
    "--replace",
    type=FiniteRange(0, MOST),
    default=5.0,
    show_default=True,
    help="Seconds from the loss of a node until its jobs are placed elsewhere.",
)
@click.option(
    "--replan/--no-replan",
    default=True,
    help="Move what has not begun where a later plan is better (default: yes).",
)
@click.option(
    "--deviation",
    type=FiniteRange(0, MOST),
    default=0.2,
    show_default=True,
    help="Share by which a job may end early or late before that is looked at.",
)
@click.option(
    "--rack",
    type=click.IntRange(min=0),
    default=0,
    help="Nodes that are planned together; 0: all.",
)
@click.option(
    "--error",
    type=FiniteRange(0, 1, max_open=True),
    default=0.0,
    help="Share by which execution times are off, uniformly.",
)
@click.option("--seed", type=int, default=0, help="Of these errors.")
@click.option(
    "--chunks",
    type=click.IntRange(1, 10_000),
    default=64,
    show_default=True,
    help="In which data of the mean size is sent.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(*, batch: Path, chunks: int, as_json: bool, **options: Any) -> None:
    """Run BATCH, a JSON file, on a pool of nodes in modelled time."""
    parameters = parse_settings(options.pop("settings"))
    made = make_planner(options["planner"], parameters)
    document = read_batch(batch)
    try:
        model = model_of(document, chunks)
    except InputError as error:
        raise InputError(f"{batch}: {error}") from error
    run = simulate_pool(model, PoolRunSettings(made=made, **options))
    result = result_of(document, model, run)
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        _print(result)


def _print(result: PooledResult) -> None:
    for job in sorted(result.jobs, key=lambda each: each.start)[:MOST_JOBS]:
        there = (
            f", data there at {job.transfer[-1].finish:.4g} s" if job.transfer else ""
        )
        click.echo(
            f"{job.id} on {job.accelerator}: {job.start:.4g} to {job.finish:.4g} s{there}"
        )
    if len(result.jobs) > MOST_JOBS:
        click.echo(f"... and {len(result.jobs) - MOST_JOBS} jobs more")
    if result.unfinished:
        click.echo(f"without an end: {', '.join(result.unfinished[:20])}")
    click.echo(
        f"makespan {result.makespan:.6g} s, planned {result.planned_makespan:.6g} s,"
        f" lower bound {result.lower_bound:.6g} s; last data at"
        f" {result.transfer_end:.6g} s"
    )
    click.echo(
        f"{result.plans} plans in {result.planning_seconds * 1e3:.1f} ms,"
        f" {result.executions} executions, {result.replaced} jobs placed again after a"
        f" loss, {result.moved} moved by later plans, {result.lost_seconds:.6g} s of work lost"
    )
