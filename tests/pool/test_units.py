"""The units of a pool's processes start what they name: a scheduler and a node that joins."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pool.private_pool import PATIENCE, prepared_pool

UNITS = Path(__file__).parents[2] / "systemd/user"
PYTHON = "@libdir@/hetd/bin/python"
NOT_ROOT = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
"""A pool does not run as root: there, root is another user."""


def started_by(unit: str) -> list[str]:
    """Return the command of a unit, with this Python."""
    lines = (UNITS / f"{unit}.service.in").read_text().splitlines()
    (line,) = [each for each in lines if each.startswith("ExecStart=")]
    program, *words = shlex.split(line.removeprefix("ExecStart="))
    assert program == PYTHON
    return [sys.executable, *words]


def as_a_user() -> list[str]:
    if os.geteuid():
        return []
    if subprocess.run([*NOT_ROOT, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespaces, and a pool does not run as root")
    return NOT_ROOT


def test_the_commands_of_the_units_make_a_pool() -> None:
    wrapper = as_a_user()
    with prepared_pool(("n1",), this="n1") as made:
        daemon = made.nodes["n1"].daemon
        assert daemon is not None
        home = made.folder / "home"
        (home / ".config/hetd").mkdir(parents=True)
        shutil.copy(made.config, home / ".config/hetd/pool.toml")
        environment = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "HETD_SOCKET": str(daemon.socket),
        }
        started = [
            subprocess.Popen(
                [*wrapper, *started_by(unit)],
                env=environment,
                cwd="/",
                stderr=subprocess.DEVNULL,
            )
            for unit in ("hetpool-scheduler", "hetpool-node")
        ]
        try:
            with made.pool() as client:
                made.await_nodes(client, "n1")
        finally:
            for process in started:
                process.terminate()
        # as `systemctl stop`: they end by themselves
        assert [process.wait(PATIENCE) for process in started] == [0, 0]
