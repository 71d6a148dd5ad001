"""`hetctl pool top`, `gantt`, `trace`, `metrics`: what runs, and what ran where."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from hetctl.commands.live import print_metrics, serve_metrics, write_metrics
from hetctl.commands.timeline import check_output, draw_chart, write_page, write_trace
from hetctl.output import emit, now, on_terminal, plain_table, say, say_json
from hetctl.pool.connection import open_pool, pooled, reach
from hetctl.pool.nodes import NODE_HEADINGS, node_row
from hetctl.pool.shown import HEADINGS, row, tasks_part
from hetctl.pool.tasks import report_unanswered
from hetctl.selectors import since_option
from hetctl.units import Interval
from libtask.errors import HetError, InputError, NotFoundError
from libtask.wording import lacking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetctl.pool.gathering import Gathered, TaskView
    from hetpool.client.pool import Pool
    from libtask.messages import TaskInfo

IDLE_S = 3600.0
"""Without selectors: the tasks since the pool was idle this long."""
SHOWN = 40
"""Most tasks that `top` lists."""
optional_tasks = click.argument("selectors", nargs=-1, metavar="[SELECTOR]...")


# ------------------------------------------------------------ top


@click.command("top")
@click.option(
    "--every",
    type=Interval(),
    default="2s",
    show_default=True,
    help="Time between updates.",
)
@click.option("--once", is_flag=True, help="Print the state once and exit.")
@pooled
def top_command(*, every: float, once: bool, config: str | None, as_json: bool) -> None:
    """Show the nodes and the unfinished tasks, live on a terminal, until Ctrl-C.

    `hetctl top` on a node shows and controls that node in detail.
    """
    with open_pool(config) as pool:
        if as_json:
            found = _unfinished(pool)
            emit(tasks_part(found.tasks, found))
            return
        while True:
            lines = _screen(pool)
            live = on_terminal() and not once
            if live:
                click.clear()
            for line in lines:
                say(line)
            if not live:
                return
            time.sleep(every)


def _unfinished(pool: Pool) -> Gathered:
    from hetctl.pool.gathering import gathered

    found = gathered(pool, since=now())
    kept = [view for view in found.tasks if not view.ended]
    return dataclasses.replace(found, tasks=kept)


def _screen(pool: Pool) -> list[str]:
    from hetctl.pool.gathering import nodes_of

    views, found = nodes_of(pool), _unfinished(pool)
    lines = list(plain_table(NODE_HEADINGS, [list(node_row(view)) for view in views]))
    rows = [list(row(view, found)) for view in found.tasks[:SHOWN]]
    if not rows:
        return [*lines, "", "no unfinished tasks"]
    more = len(found.tasks) - len(rows)
    tail = [f"and {more} more"] if more else []
    return [*lines, "", *plain_table(HEADINGS, rows), *tail]


# ------------------------------------------------------------ gantt, trace


@click.command("gantt")
@optional_tasks
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="pool.png",
    show_default=True,
    help="File to write: .png, .svg, .pdf, or .html for an interactive page.",
)
@since_option
@pooled
def gantt_command(
    *,
    selectors: tuple[str, ...],
    output: Path,
    since: float | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Draw what ran where: a lane for each node's device, and one for each node's link.

    By default all tasks since the pool was last idle for an hour. Arrows are moves,
    between nodes too. A bar on a node that was lost ends where its task began elsewhere.
    Clocks of the nodes are compared as they are.
    """
    check_output(output)
    with open_pool(config) as pool:
        found, views = past(pool, selectors, since)
    draw(found, views, output)
    report_unanswered(found)
    names = [view.id for view in views if view.attempts]
    if as_json:
        emit({"format": "hetctl/pool-gantt-1", "file": str(output), "tasks": names})
    else:
        say(f"{output}: {len(names)} tasks drawn")


def draw(found: Gathered, views: Sequence[TaskView], output: Path) -> None:
    """Draw tasks of a pool into a file, with the transfers that happened meanwhile.

    Raises:
        NotFoundError: none of the tasks has run.

    """
    from hetctl.export.lanes import laid_out
    from hetctl.pool.lanes import devices

    drawn = _drawn(found, views)
    lanes, bars = laid_out(drawn, devices(found), now())
    if output.suffix == ".html":
        write_page(lanes, bars, output)
    else:
        draw_chart(lanes, bars, output)


def _drawn(found: Gathered, views: Sequence[TaskView]) -> list[TaskInfo]:
    from hetctl.pool.lanes import merged, transfers

    tasks = merged(views)
    if not tasks:
        raise NotFoundError("none of these tasks has run yet")
    begin = min(info.submitted for info in tasks)
    end = max(info.finished or now() for info in tasks)
    moved = transfers(found, len(tasks) + 1)
    near = [each for each in moved if begin <= (each.finished or end) <= end]
    return [*tasks, *near]


def past(
    pool: Pool, selectors: Sequence[str], since: float | None
) -> tuple[Gathered, list[TaskView]]:
    """Return the pool's tasks, and those that are named or happened lately."""
    from hetctl.pool.gathering import chosen, gathered

    found = gathered(pool, since=since)
    if selectors:
        return found, chosen(found, selectors)
    views = [view for view in found.tasks if view.attempts]
    return found, views if since is not None else _since_idle(views)


def _since_idle(views: Sequence[TaskView]) -> list[TaskView]:
    """Return the tasks since the last hour in which no task ran; the newest come first."""
    kept: list[TaskView] = []
    begin = now()
    for view in views:
        end = view.attempts[-1][1].finished
        if end is not None and end < begin - IDLE_S:
            break
        kept.append(view)
        begin = min(begin, view.attempts[0][1].submitted)
    return kept


@click.command("trace")
@optional_tasks
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write to this file instead of standard output.",
)
@since_option
@pooled
def trace_command(
    *,
    selectors: tuple[str, ...],
    output: Path | None,
    since: float | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Write past tasks of all nodes as a Chrome trace, for ui.perfetto.dev.

    The output is always JSON.
    """
    from hetctl.export.perfetto import chrome_document
    from hetctl.pool.lanes import devices

    with open_pool(config) as pool:
        found, views = past(pool, selectors, since)
    document = chrome_document(_drawn(found, views), devices(found), now())
    encoded = msgspec.json.encode(document)
    text = msgspec.json.format(encoded, indent=0 if as_json else 2)
    report_unanswered(found)
    if output is None:
        say_json(text)
        return
    write_trace(output, text)
    if not as_json:
        say(f"{output}: {len(views)} task{'s' * (len(views) != 1)} written")


# ------------------------------------------------------------ metrics


@click.command("metrics")
@click.option(
    "--textfile",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the metrics atomically to a file for the node exporter.",
)
@click.option(
    "--listen",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve the metrics on this port of 127.0.0.1 until interrupted; 0: any free port.",
)
@click.option(
    "--every", type=Interval(), help="Rewrite the text file at this interval."
)
@pooled
def metrics_command(
    *,
    textfile: Path | None,
    listen: int | None,
    every: float | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Print, write or serve the pool's metrics in Prometheus's text format.

    If the scheduler does not answer, a text file and the port show `hetpool_up 0`; without
    either, the command fails. The figures of each node's hetd are those of `hetctl
    metrics` there.
    """
    if every is not None and textfile is None:
        raise InputError("--every needs --textfile")
    reach_or_serve = listen is not None or textfile is not None
    if not reach_or_serve:
        reach(config)
    try:
        from hetctl.pool.metrics import registry_of
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise HetError(lacking("metrics need", "prometheus-client")) from error
    registry = registry_of(lambda: open_pool(config))
    if listen is not None:
        serve_metrics(registry, listen)
    elif textfile is not None:
        write_metrics(registry, textfile, every)
    else:
        print_metrics(registry, as_json=as_json)
