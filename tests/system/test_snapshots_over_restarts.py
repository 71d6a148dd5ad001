"""Daemons are restarted, alone or with the whole crew: tasks go on from snapshots."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from system.private_daemon import eventually
from system.snapshotting import (
    LONG,
    ON_DEMAND,
    check_resumed,
    folder_in,
    settings,
    snapshot_at_gate,
)
from system.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from system.private_daemon import PrivateDaemon

    Start = Callable[..., PrivateDaemon]


def test_after_a_crash_of_everything_a_task_goes_on_from_its_snapshot(
    private_daemon: Start, tmp_path: Path
) -> None:
    config = settings(ON_DEMAND).replace("5.0", "0.5")  # the patience with workers
    daemon = private_daemon(config)
    task = Tracing(daemon, tmp_path, gate_at=10, total_strips=400)
    task.await_gate()
    snapshot = snapshot_at_gate(daemon, task)
    eventually(lambda: len(task.strips()) > snapshot.done + 20, "strips at risk")
    crew = [daemon.launcher(), *daemon.workers()]

    daemon.kill9()
    for pid in crew:
        os.kill(pid, signal.SIGKILL)
    daemon.start()
    daemon.connect().submit("synthetic", {"seconds": {"cpu": 0.0}})  # for a launcher

    check_resumed(task, snapshot.done, 400)


def test_held_and_preempted_tasks_keep_their_progress_over_a_restart(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon(settings(ON_DEMAND))
    tenant = Tracing(daemon, folder_in(tmp_path, "a"), gate_at=5, resources=["gpu0"])
    held = Tracing(daemon, folder_in(tmp_path, "b"), gate_at=9, total_strips=LONG)
    preempted = Tracing(daemon, folder_in(tmp_path, "c"), gate_at=9, total_strips=LONG)
    for task in (tenant, held, preempted):
        task.await_gate()
    daemon.client.hold(held.id)
    daemon.client.migrate(preempted.id, "gpu0")
    held.open_gate()
    preempted.open_gate()
    daemon.await_state(held.id, "held")
    daemon.await_state(preempted.id, "preempted")

    daemon.restart()
    assert daemon.info(held.id).state == "held"
    tenant.open_gate()
    daemon.client.release(held.id)

    for task, strips in ((tenant, 20), (held, LONG), (preempted, LONG)):
        task.check_completed(strips)
        assert len(task.pids()) == 1
    assert preempted.resources() == ["cpu", "gpu0"], "where its owner wants it"


def test_a_held_task_goes_on_from_its_snapshot_when_its_worker_is_gone_too(
    private_daemon: Start, tmp_path: Path
) -> None:
    config = settings(ON_DEMAND).replace("5.0", "0.5")  # the patience with workers
    daemon = private_daemon(config)
    task = Tracing(daemon, tmp_path, gate_at=9, total_strips=LONG)
    task.await_gate()
    daemon.client.hold(task.id)
    task.open_gate()
    daemon.await_state(task.id, "held")
    daemon.client.snapshot(task.id)
    snapshot = eventually(lambda: daemon.info(task.id).snapshot, "a snapshot")
    (pid,) = task.pids()

    daemon.kill9()
    os.kill(pid, signal.SIGKILL)
    daemon.start()
    daemon.client.release(task.id)

    task.check_completed(LONG)
    assert snapshot.done >= 10
    assert len(task.pids()) == 2


def test_what_was_acknowledged_of_a_running_task_holds_over_a_restart(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon()
    held, moved = (
        Tracing(daemon, folder_in(tmp_path, name), gate_at=9, total_strips=LONG)
        for name in ("a", "b")
    )
    for task in (held, moved):
        task.await_gate()
    daemon.client.hold(held.id)
    daemon.client.migrate(moved.id, "fpga0")

    daemon.restart()
    for task in (held, moved):
        task.open_gate()

    daemon.await_state(held.id, "held")
    moved.check_completed(LONG)
    assert moved.resources() == ["cpu", "fpga0"]
    daemon.client.release(held.id)
    held.check_completed(LONG)
