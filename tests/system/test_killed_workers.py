"""Workers are killed: tasks go on from snapshots, and attempts count without progress only."""

from __future__ import annotations

import os
import random
import signal
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from libtask.errors import TaskFailedError
from system import traced
from system.private_daemon import PATIENCE, eventually
from system.snapshotting import (
    OFTEN,
    ON_DEMAND,
    beyond,
    check_resumed,
    settings,
    snapshot_at_gate,
)
from system.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from libtask.client.handles import TaskHandle
    from system.private_daemon import PrivateDaemon

    Start = Callable[..., PrivateDaemon]


def test_a_killed_worker_costs_what_was_done_since_the_snapshot(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon(settings(ON_DEMAND))
    task = Tracing(daemon, tmp_path, gate_at=10, total_strips=400)
    task.await_gate()
    snapshot = snapshot_at_gate(daemon, task)
    eventually(lambda: len(task.strips()) > snapshot.done + 20, "strips at risk")

    os.kill(task.pids()[0], signal.SIGKILL)

    check_resumed(task, snapshot.done, 400)


def test_a_hundred_workers_are_killed_and_every_result_is_the_same(
    private_daemon: Start, tmp_path: Path
) -> None:
    """Kill at random moments: while strips run, while snapshots are written and read."""
    often = settings(OFTEN, "attempts = 1000\ninterval_ms = 2.0\n")
    daemon = private_daemon(often)
    chosen = random.Random(7)
    tasks: list[TaskHandle] = []
    kills = 0

    while kills < 100:
        while sum(not task.done() for task in tasks) < 2:
            tasks.append(_churn(daemon, tmp_path / f"{len(tasks)}"))
        workers = eventually(daemon.workers, "a worker")
        os.kill(chosen.choice(workers), signal.SIGKILL)
        kills += 1
        threading.Event().wait(chosen.random() * 0.12)

    expected = np.arange(traced.CELLS, dtype=np.uint64)
    traced.stir(expected, range(60_000))
    resumed = 0
    for number, task in enumerate(tasks):
        assert task.result(PATIENCE) == {"rounds": 60_000}
        assert (tmp_path / f"{number}").read_bytes() == expected.tobytes()
        resumed += daemon.info(task.id).snapshot is not None
    assert resumed > 0
    assert "a snapshot is not used" not in daemon.log.read_text(), "one was torn"


def test_attempts_count_without_progress_only(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon(settings(OFTEN))
    task = Tracing(daemon, tmp_path, total_strips=100_000)
    done = 0

    for kill in range(6):
        eventually(lambda n=kill: len(task.pids()) > n, "another worker")  # type: ignore[misc]  # bound on purpose
        further = eventually(
            lambda n=done: beyond(daemon, task.id, n),  # type: ignore[misc]  # bound on purpose
            "a further snapshot",
        )
        done = further.done
        os.kill(task.pids()[-1], signal.SIGKILL)

    eventually(lambda: len(task.pids()) == 7, "the seventh worker")
    task.handle.cancel()
    assert task.handle.wait(PATIENCE) == "cancelled"


def test_a_worker_that_exits_as_if_all_were_well_has_not_finished(
    daemon: PrivateDaemon, tmp_path: Path
) -> None:
    task = _churn(daemon, tmp_path / "out", exit_at=100)

    with pytest.raises(
        TaskFailedError, match=r"exit status 0 after its first strip on cpu; 3 attempts"
    ):
        task.result(PATIENCE)
    assert not (tmp_path / "out").exists()


def _churn(daemon: PrivateDaemon, output: Path, **parameters: Any) -> TaskHandle:
    app = f"{traced.__file__}:Churn"
    return daemon.client.submit(app, {"output": str(output), **parameters})
