"""`hetctl pool demo`: a pool of three nodes on this machine, from nothing to checked results.

The demonstration is a program of its own, `hetdemo.pool`, which uses hetctl's pictures;
hetctl only starts it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from hetctl.options import json_option
from hetctl.pool.connection import check_extra


@click.command("demo")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default="pool-demo-output",
    show_default=True,
    help="Folder for the results and the picture.",
)
@click.option(
    "--loopback",
    is_flag=True,
    help="Use addresses 127.0.0.x without limited links, also where namespaces work.",
)
@json_option
def demo_command(*, output: Path, loopback: bool, as_json: bool) -> None:
    """Run a mixed batch on a pool of three nodes on this machine, in under two minutes.

    Each node has a hetd of its own and, where the kernel allows network namespaces, a
    link of 4 MB/s. One task is moved between nodes while it runs, one node is killed in
    the middle of the batch, all results are checked against references, and a picture
    shows what ran where. Emulated devices are named as such.
    """
    check_extra()
    words = [str(output), *["--loopback"] * loopback, *["--json"] * as_json]
    command = [sys.executable, "-m", "hetdemo.pool", *words]
    os.execv(command[0], command)  # noqa: S606  our own interpreter and module
