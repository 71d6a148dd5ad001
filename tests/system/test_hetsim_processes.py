"""The processes of a `hetsim` command end with it, however it ends; and what it says of them."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from system.private_daemon import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

HETSIM = (sys.executable, "-m", "hetsim")
PAPER = (*HETSIM, "paper", "mokhtari-felare", "--figure", "fig3", "--seeds", "30")
ARENA = (*HETSIM, "arena", "--scenarios", "2000")
TOGETHER = 2
"""Processors on which the command runs its cases side by side, whatever the machine."""


def _on_two_processors() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < TOGETHER:
        pytest.skip("one processor: all runs are in one process")


def _session(leader: int) -> list[psutil.Process]:
    """List the processes of a session that have not ended."""
    found = []
    for process in psutil.process_iter():
        try:
            ended = process.status() == psutil.STATUS_ZOMBIE
            if not ended and os.getsid(process.pid) == leader:
                found.append(process)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return found


def _computing(leader: int) -> bool:
    """Whether a process of the session beside its leader has used two seconds."""
    return any(
        process.pid != leader and sum(process.cpu_times()[:2]) > 0.5
        for process in _session(leader)
    )


@pytest.fixture(params=[PAPER, ARENA], ids=["paper", "arena"])
def command(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    _on_two_processors()
    with subprocess.Popen(
        request.param,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        eventually(lambda: _computing(process.pid), "its processes compute")
        yield process
        for left in _session(process.pid):
            left.kill()


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_interrupted(
    command: subprocess.Popen[bytes], number: int, status: int
) -> None:
    os.killpg(command.pid, number)

    _, told = command.communicate()

    assert command.returncode == status
    assert told.strip() == b""
    eventually(lambda: not _session(command.pid), "no process is left")


def test_terminated_alone(command: subprocess.Popen[bytes]) -> None:
    os.kill(command.pid, signal.SIGTERM)

    _, told = command.communicate()

    assert command.returncode == 143
    assert told.strip() == b""
    eventually(lambda: not _session(command.pid), "no process is left")


def test_killed(command: subprocess.Popen[bytes]) -> None:
    os.kill(command.pid, signal.SIGKILL)

    eventually(lambda: not _session(command.pid), "no process is left")


def test_names_each_figure_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [*HETSIM, "paper", "mokhtari-felare", "--figure", "fig2", "--json"],
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            check=True,
        )
        told = os.read(ours, 1000)
    finally:
        os.close(ours)
        os.close(theirs)

    assert told == b"[1/1] fig2...\r\n"
