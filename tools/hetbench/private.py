"""A private daemon for a measurement: its own socket, state and resources."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.client.client import Client
from libtask.errors import DaemonUnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 90.0
"""Seconds for the daemon to answer: drivers may compile on their first use."""

CPU_ONLY = """
[[resource]]
name = "cpu"
kind = "cpu"
slots = 2
"""


@contextmanager
def private_daemon(config: str = "") -> Iterator[Client]:
    """Run a daemon for the time of the block; yield a client of it.

    Args:
        config: text of its configuration; empty: discovered resources.

    """
    with tempfile.TemporaryDirectory(prefix="hetbench-") as folder:
        home = Path(folder)
        (home / "hetd.toml").write_text(config, encoding="utf-8")
        command = [sys.executable, "-m", "hetd", "--socket", str(home / "s")]
        command += ["--state", str(home / "state"), "--config", str(home / "hetd.toml")]
        with (home / "log").open("wb") as log:
            daemon = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            with _connect(home / "s", daemon) as client:
                yield client
        finally:
            daemon.terminate()
            daemon.wait(30)


def _connect(socket: Path, daemon: subprocess.Popen[bytes]) -> Client:
    """Wait until the daemon answers."""
    import time

    deadline = time.monotonic() + START_S
    while True:
        try:
            return Client(socket)
        except DaemonUnreachableError:
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
