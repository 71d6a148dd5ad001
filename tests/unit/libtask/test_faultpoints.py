"""Fault points: inert unless asked for, and then they fail exactly where and when told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from libtask import faultpoints
from libtask.faultpoints import FaultError, Fuse, reach

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_fails_unless_it_is_asked_for() -> None:
    assert faultpoints.VARIABLE not in os.environ
    assert reach is faultpoints._inert


def test_it_fails_at_its_point_and_time_and_only_once() -> None:
    fuse = Fuse()
    fuse.arm("run.sent:2:raise")

    fuse("store.written")
    fuse("run.sent")
    with pytest.raises(FaultError, match=r"fault point run\.sent"):
        fuse("run.sent")
    fuse("run.sent")


def test_with_a_marker_the_first_process_fails_and_no_other(tmp_path: Path) -> None:
    order = f"run.sent:1:raise:{tmp_path / 'a:b'}"
    fuses = [Fuse(), Fuse()]
    for fuse in fuses:
        fuse.arm(order)

    with pytest.raises(FaultError):
        fuses[0]("run.sent")
    fuses[1]("run.sent")

    assert [path.name for path in tmp_path.iterdir()] == ["a:b"]


def test_an_empty_order_fails_nowhere() -> None:
    fuse = Fuse("run.sent", 1, "raise")
    fuse.arm("")

    fuse("run.sent")


@pytest.mark.parametrize(
    ("order", "complaint"),
    [
        ("nowhere:1:kill", "no point 'nowhere'; see docs/reliability.md"),
        ("run.sent:0:kill", "expected a number from 1, got '0'"),
        ("run.sent:x:kill", "expected a number from 1, got 'x'"),
        ("run.sent:1:burn", "expected kill, stop or raise, got 'burn'"),
        ("run.sent", "expected a number from 1, got ''"),
    ],
)
def test_a_bad_order_is_refused_in_one_line(order: str, complaint: str) -> None:
    ended = _python(order, "import libtask.faultpoints")

    assert ended.returncode == 2
    assert ended.stderr == f"HETD_FAIL: {complaint}\n"


def test_a_process_is_killed_as_by_the_kernel() -> None:
    ended = _python("run.sent:1:kill", _REACH)

    assert ended.returncode == -signal.SIGKILL


def test_a_process_is_stopped() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _REACH],
        env={**os.environ, faultpoints.VARIABLE: "run.sent:1:stop"},
    )

    _, status = os.waitpid(process.pid, os.WUNTRACED)
    process.kill()

    assert os.WIFSTOPPED(status)
    assert process.wait() == -signal.SIGKILL


_REACH = "from libtask.faultpoints import reach; reach('run.sent')"


def _python(order: str, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, faultpoints.VARIABLE: order},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
