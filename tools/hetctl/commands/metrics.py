"""`hetctl metrics`: the daemon's figures for Prometheus."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hetctl.options import connect, lacking, shared
from hetctl.output import emit
from hetctl.terminal import say
from hetctl.units import Duration
from libtask.errors import HetError, InputError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

LOOPBACK = "127.0.0.1"


@click.command("metrics")
@click.option(
    "--textfile",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write them here, whole or not at all, as the node exporter reads them.",
)
@click.option(
    "--listen",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve them on this port of 127.0.0.1 until interrupted; 0: any free one.",
)
@click.option("--every", type=Duration(), help="Write the text file again so often.")
@shared
def metrics_command(
    *,
    textfile: Path | None,
    listen: int | None,
    every: float | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Print, write or serve the daemon's figures in Prometheus's text format.

    Sums count from the daemon's start. A daemon that does not answer is `hetd_up 0`
    in a text file and on the port; without either it is an error.
    """
    if every is not None and textfile is None:
        raise InputError("--every: writes a text file again; say which with --textfile")
    registry = _registry(socket)
    if listen is not None:
        _serve(registry, listen)
    elif textfile is not None:
        _write(registry, textfile, every)
    else:
        _print(registry, socket, as_json=as_json)


def _registry(socket: Path | None) -> CollectorRegistry:
    try:
        from hetctl.metrics import registry_of
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        text = lacking("metrics need", "prometheus-client")
        raise HetError(text) from error
    return registry_of(lambda: connect(socket))


def _print(registry: CollectorRegistry, socket: Path | None, *, as_json: bool) -> None:
    from prometheus_client import generate_latest

    connect(socket).close()  # an absent daemon is an error to whoever asks by hand
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


def _write(registry: CollectorRegistry, path: Path, every: float | None) -> None:
    from prometheus_client import write_to_textfile

    while True:
        write_to_textfile(str(path), registry)
        if every is None:
            return
        time.sleep(every)


def _serve(registry: CollectorRegistry, port: int) -> None:
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, LOOPBACK, registry)
    except OSError as error:
        raise InputError(f"port {port}: {error.strerror}") from error
    say(f"metrics on http://{LOOPBACK}:{server.server_port}/metrics", err=True)
    try:
        thread.join()
    finally:
        server.shutdown()
