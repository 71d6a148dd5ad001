"""Workers that run out of memory: their task is told so, and nobody else is touched."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from libtask.launcher.oom_kills import LOOK_S, OutOfMemoryKills
from libtask.messages import Failed, Finished, WorkerExited
from unit.scripted_daemon import cpu, run, stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from unit.libtask.launcher.played_launcher import Played

GROUPS = {
    Path("/sys/fs/cgroup"): "memory.max",
    Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes",
}
"""Where control groups of the two versions may be made, and the file of their limit."""


def _made_group(limit: int) -> Path:
    for parent, name in GROUPS.items():
        folder = parent / f"hetd-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if (folder / name).exists():
            (folder / name).write_text(str(limit))
            return folder
        folder.rmdir()  # a folder like any other, or groups without such limits
    pytest.skip("no control group with a limit of memory can be made here")


@pytest.fixture
def confine() -> Iterator[Callable[[int], int]]:
    """Let a process have 64 MiB from now on."""
    group = _made_group(64 << 20)
    yield lambda pid: (group / "cgroup.procs").write_text(str(pid))
    for _ in range(1000):
        with contextlib.suppress(OSError):
            group.rmdir()
            break


def test_a_worker_that_the_system_kills_for_its_memory_says_so(
    launcher: Played, confine: Callable[[int], int]
) -> None:
    pids = launcher.start_workers("w1", "w2")
    confine(pids["w1"])

    order = stage(1, f"{launcher.app}:Look", params={"megabytes": 512})
    launcher.daemon.say("w1", order, run(1, cpu()))

    exited = launcher.daemon.expect(WorkerExited)
    reason = "killed by signal 9 (SIGKILL), as the system was out of memory"
    assert (exited.name, exited.status, exited.reason) == ("w1", -9, reason)
    assert launcher.look("w2"), "the others work on"


def test_a_task_for_which_there_is_no_memory_fails_and_says_so(
    launcher: Played,
) -> None:
    launcher.start_workers("w1")
    params = {"megabytes": 4096, "address_space": 2048}
    launcher.daemon.say(
        "w1", stage(1, f"{launcher.app}:Look", params=params), run(1, cpu())
    )

    failed = launcher.daemon.expect(Failed)

    assert failed.error.startswith("MemoryError")
    launcher.daemon.say("w1", stage(2, f"{launcher.app}:Look"), run(2, cpu()))
    assert launcher.daemon.expect(Finished).task == 2, "its worker lives on"


def test_a_kill_that_hetd_did_not_order_is_told_as_such(launcher: Played) -> None:
    pids = launcher.start_workers("w1")

    os.kill(pids["w1"], signal.SIGKILL)

    told = launcher.daemon.expect(WorkerExited).reason
    assert told.startswith("killed by signal 9 (SIGKILL), ")
    assert "memory" in told


def test_old_kills_for_memory_are_no_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    table = tmp_path / "vmstat"
    table.write_text("pgfault 7\noom_kill 3\nunevictable 2\n")
    kills = OutOfMemoryKills(table)
    assert not kills.occurred()

    table.write_text("oom_kill 4\n")
    kills.look()
    assert kills.occurred(), "it was just now"

    now += LOOK_S
    kills.look()
    assert not kills.occurred()
    assert not OutOfMemoryKills(tmp_path / "none").occurred(), "an old kernel"
