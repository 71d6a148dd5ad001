"""`hetctl top`, `web`, `metrics`: the live state of the node."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import threading
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hetctl.options import connect, lacking, shared
from hetctl.output import emit, now, on_terminal, say, table, task_document
from hetctl.units import Interval
from libtask.errors import HetError, InputError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from hetctl.top.app import Top
    from hetctl.top.picture import Picture


# ------------------------------------------------------------ top

SIZE = (120, 32)
"""Columns and lines of a screenshot."""
HUNG_UP = 128 + signal.SIGHUP
"""Exit status without a terminal: that of a shell's command which SIGHUP has ended."""
FIRST_UPDATES = 2
"""Number of updates before a screenshot: rates need two."""


@click.command("top")
@click.option(
    "--every",
    type=Interval(),
    default="1s",
    show_default=True,
    help="Time between updates.",
)
@click.option("--once", is_flag=True, help="Print the state once and exit.")
@click.option(
    "--screenshot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the screen to an SVG file and exit.",
)
@shared
def top_command(
    *,
    every: float,
    once: bool,
    screenshot: Path | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Show resources and tasks live, and control them by keys.

    A star marks emulated resources; "mod." marks modelled power. "Left" is the remaining
    computing time on each resource where the application was measured, with the task's
    own resource first.
    """
    if once or as_json:
        _print_node(socket, as_json=as_json)
        return
    if screenshot is None and not on_terminal():
        raise click.UsageError(
            "standard output is not a terminal; hetctl top --once prints the state once"
        )
    try:
        from hetctl.top.app import Top
    except ModuleNotFoundError as error:
        if error.name not in ("textual", "rich"):
            raise
        raise HetError(lacking("top needs", "textual", "top")) from error
    app = Top(socket, every)
    if screenshot is None:
        threading.Thread(target=_end_with_terminal, daemon=True).start()
        app.run()
    else:
        screenshot.write_text(asyncio.run(drawn_screen(app)), encoding="utf-8")


def _end_with_terminal() -> None:
    """End this process when its terminal is gone, also if SIGHUP is ignored or not sent.

    Textual's thread for input would read the end of the file for ever, and what it still
    has to write fails: there is nothing that could be left in order.
    """
    terminal = select.poll()
    terminal.register(sys.stdout.fileno(), 0)  # a hang-up is always reported
    terminal.poll()
    os._exit(HUNG_UP)


def _print_node(socket: Path | None, *, as_json: bool) -> None:
    from hetctl.top.feed import Feed
    from hetctl.top.picture import (
        RESOURCE_HEADINGS,
        TASK_HEADINGS,
        Picture,
        task_row,
    )

    picture = Picture()
    Feed(socket, picture).once()
    if as_json:
        emit(_node_document(picture))
        return
    say(picture.headline())
    table(RESOURCE_HEADINGS, [picture.resource_row(d) for d in picture.devices])
    rows = [task_row(info, now()) for info in picture.shown("not ended", "", 100)]
    if rows:
        say("")
        table(TASK_HEADINGS, rows)


def _node_document(picture: Picture) -> dict[str, object]:
    emulated = frozenset(d.spec.name for d in picture.devices if d.spec.emulated)
    status = picture.status
    return {
        "format": "hetctl/top-1",
        "policy": status.policy if status else None,
        "counts": dict(status.tasks) if status else {},
        "resources": [
            {
                "name": device.spec.name,
                "emulated": device.spec.emulated,
                "state": device.state,
                "running": device.running,
                "queued": device.queued,
            }
            for device in picture.devices
        ],
        "tasks": [
            task_document(info, emulated)
            for info in picture.shown("not ended", "", len(picture.tasks))
        ],
    }


async def drawn_screen(app: Top) -> str:
    """Run without a terminal until the state is shown; return the screen as SVG."""
    async with app.run_test(size=SIZE) as pilot:
        while app.updates < FIRST_UPDATES and not app.picture.problem:
            await pilot.pause(0.05)
        await pilot.pause()  # until the last update is drawn
        drawn = app.export_screenshot()
    if app.picture.problem:
        raise HetError(app.picture.problem)
    return drawn


# ------------------------------------------------------------ web


@click.command("web")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port on 127.0.0.1.  [default: any free port]",
)
@click.option(
    "--control", is_flag=True, help="Let the page control tasks and the policy."
)
@click.option("--open", "opened", is_flag=True, help="Open the page in a browser.")
@shared
def web_command(
    *, port: int, control: bool, opened: bool, socket: Path | None, as_json: bool
) -> None:
    """Serve a web page with a live Gantt chart, resources and tasks, until interrupted.

    The server listens on 127.0.0.1 only. The printed address contains a secret: anyone
    who knows it has your view of the node, and with --control your rights.
    """
    from hetctl.web.server import PageServer

    connect(socket).close()  # report a missing daemon here, not on the page
    with PageServer(socket, port, control=control) as server:
        if as_json:
            emit({"format": "hetctl/web-1", "address": server.address})
        else:
            say(server.address)
        if opened:
            webbrowser.open(server.address)
        server.serve_forever()


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
@shared
def metrics_command(
    *,
    textfile: Path | None,
    listen: int | None,
    every: float | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Print, write or serve the daemon's metrics in Prometheus's text format.

    Counters start at the daemon's start. If the daemon does not answer, a text file and
    the port show `hetd_up 0`; without either, the command fails.
    """
    if every is not None and textfile is None:
        raise InputError("--every needs --textfile")
    registry = _metrics_registry(socket)
    if listen is not None:
        serve_metrics(registry, listen)
    elif textfile is not None:
        write_metrics(registry, textfile, every)
    else:
        connect(socket).close()  # printing without a daemon is an error
        print_metrics(registry, as_json=as_json)


def _metrics_registry(socket: Path | None) -> CollectorRegistry:
    try:
        from hetctl.export.metrics import registry_of
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        text = lacking("metrics need", "prometheus-client", "metrics")
        raise HetError(text) from error
    return registry_of(lambda: connect(socket))


def print_metrics(registry: CollectorRegistry, *, as_json: bool) -> None:
    """Print metrics once."""
    from prometheus_client import generate_latest

    if as_json:
        emit(
            {
                "format": "hetctl/metrics-1",
                "samples": [
                    {"name": each.name, "labels": each.labels, "value": each.value}
                    for family in registry.collect()
                    for each in family.samples
                ],
            }
        )
    else:
        say(generate_latest(registry).decode().removesuffix("\n"))


def write_metrics(registry: CollectorRegistry, path: Path, every: float | None) -> None:
    """Write metrics to a file, once or at an interval.

    Raises:
        InputError: the file cannot be written.

    """
    from prometheus_client import write_to_textfile

    while True:
        try:
            write_to_textfile(str(path), registry)
        except OSError as error:  # it names a temporary file
            raise InputError(f"{path}: {error.strerror}") from error
        if every is None:
            return
        time.sleep(every)


def serve_metrics(registry: CollectorRegistry, port: int) -> None:
    """Serve metrics on loopback until interrupted.

    Raises:
        InputError: the port is taken.

    """
    from hetctl.export.metrics_server import metrics_server

    try:
        server = metrics_server(registry, port)
    except OSError as error:
        raise InputError(f"port {port}: {error.strerror}") from error
    with server:
        say(f"metrics on {server.address}", err=True)
        server.serve_forever()
