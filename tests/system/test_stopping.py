"""How a daemon stops, and what it takes up while it runs: by signals, as managers do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from libtask.client.client import Client
from libtask.daemon.launcher_processes import launcher_processes
from libtask.errors import HetError
from libtask.launcher.takeover import has_successor
from libtask.processes import children_of
from system.private_daemon import (
    PATIENCE,
    RESOURCES,
    SETTINGS,
    PrivateDaemon,
    eventually,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Start = Callable[..., PrivateDaemon]

PREEMPT = SETTINGS + 'on_stop = "preempt"\n'
STRIPS = 60_000
LONG = {"seconds": {"gpu": 600.0}, "strips": STRIPS}
DEAF = {"seconds": {"gpu": 600.0}, "strips": 1}
"""It reaches no checkpoint."""


def begin(daemon: PrivateDaemon, **params: object) -> int:
    """Submit a task and wait until it runs in a worker."""
    task = daemon.client.submit("synthetic", params).id
    daemon.await_state(task, "running")
    eventually(lambda: len(daemon.workers()) > 0, "a worker")
    return task


def await_progress(daemon: PrivateDaemon, task: int, above: float = 0.0) -> float:
    def look() -> float | None:
        progress = daemon.info(task).progress
        return progress if progress > above else None

    return eventually(look, f"progress above {above}")


def snapshot_of(daemon: PrivateDaemon, task: int) -> int:
    """Return the iterations that the newest snapshot holds."""
    snapshot = daemon.info(task).snapshot
    assert snapshot is not None
    return snapshot.done


def await_log(daemon: PrivateDaemon, words: str) -> None:
    eventually(lambda: words in daemon.log.read_text(), f"{words!r} in the log")


# ---------------------------------------------------------------- the user's unit


def test_the_launcher_of_a_unit_takes_over_when_nothing_runs(
    private_daemon: Start,
) -> None:
    daemon = private_daemon()
    task = begin(daemon, **LONG)
    first = daemon.launcher()
    command = (sys.executable, "-P", "-m", "libtask.launcher", "--wait")
    unit = subprocess.Popen([*command, "--socket", str(daemon.socket)])

    def is_launcher() -> bool:
        others = launcher_processes(daemon.socket) - {unit.pid}
        return first not in others and not others - set(children_of(unit.pid))

    eventually(lambda: has_successor(daemon.crew_folder), "the unit's launcher waits")
    await_progress(daemon, task, above=daemon.info(task).progress)
    assert first in launcher_processes(daemon.socket)

    daemon.client.cancel(task)
    eventually(is_launcher, "the other launcher has left")
    assert unit.poll() is None

    again = daemon.client.submit(
        "synthetic", {"seconds": {"cpu": 0.01}, "strips": 1}
    ).id
    assert daemon.await_state(again, "completed", "failed").state == "completed"
    assert daemon.terminate() == 0
    assert unit.wait(PATIENCE) == 0


# ---------------------------------------------------------------- stop


def test_left_alone_a_task_goes_on_while_the_daemon_is_stopped(
    private_daemon: Start,
) -> None:
    daemon = private_daemon(SETTINGS + RESOURCES)
    task = begin(daemon, **LONG)
    before = await_progress(daemon, task)
    workers = daemon.workers()

    assert daemon.terminate() == 0
    daemon.start()

    await_progress(daemon, task, before)
    assert daemon.workers() == workers
    assert len(daemon.info(task).segments) == 1


def test_a_preempted_task_waits_in_its_worker_and_on_disk(
    private_daemon: Start,
) -> None:
    daemon = private_daemon(PREEMPT + RESOURCES)
    task = begin(daemon, **LONG)
    before = await_progress(daemon, task)

    assert daemon.terminate() == 0
    daemon.start()

    kept = snapshot_of(daemon, task)
    assert kept >= before * STRIPS
    await_progress(daemon, task, kept / STRIPS)
    assert len(daemon.info(task).segments) > 1


def test_after_a_shutdown_it_goes_on_from_disk(private_daemon: Start) -> None:
    daemon = private_daemon(PREEMPT + RESOURCES)
    task = begin(daemon, **LONG)
    before = await_progress(daemon, task, 100 / STRIPS)

    assert daemon.terminate() == 0
    for pid in daemon.processes():  # as a machine that goes down does
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not daemon.processes(), "the end of all processes")
    daemon.start()
    # whoever submits brings his launcher with him
    other = daemon.connect().submit("synthetic", {"seconds": {"cpu": 0.0}}).id

    def goes_on() -> bool:
        info = daemon.info(task)
        assert info.progress >= before, "it began anew"
        return info.progress * STRIPS > kept

    kept = snapshot_of(daemon, task)
    daemon.await_state(other, "completed")
    eventually(goes_on, "progress beyond the snapshot")


def test_a_second_signal_waits_for_nothing(private_daemon: Start) -> None:
    daemon = private_daemon(PREEMPT + RESOURCES)
    task = begin(daemon, **DEAF)
    client = daemon.client

    os.kill(daemon.pid, signal.SIGTERM)
    await_log(daemon, "preempting running tasks")
    with pytest.raises(HetError, match="stopping"):
        client.submit("synthetic", {"seconds": {"cpu": 0.0}})
    os.kill(daemon.pid, signal.SIGHUP)
    assert daemon.is_up()

    assert daemon.terminate() == 0
    assert f"no snapshots of tasks [{task}]" in daemon.log.read_text()
    daemon.start()
    assert daemon.info(task).state == "running"


def test_patience_with_a_deaf_task_ends(private_daemon: Start) -> None:
    daemon = private_daemon(PREEMPT + "stop_timeout_s = 0.3\n" + RESOURCES)
    task = begin(daemon, **DEAF)

    assert daemon.terminate() == 0

    assert f"no snapshots of tasks [{task}]" in daemon.log.read_text()


# ---------------------------------------------------------------- reload


def test_a_reload_takes_up_limits_and_names_what_it_does_not(
    private_daemon: Start,
) -> None:
    daemon = private_daemon(SETTINGS + RESOURCES)
    changed = SETTINGS.replace("affinity", "migration") + "[limits]\ntasks = 0\n"
    daemon.config.write_text(changed + RESOURCES, encoding="utf-8")
    os.kill(daemon.client.welcome.pid, signal.SIGHUP)

    await_log(daemon, "reloaded: limits; a restart is needed for policy")
    with pytest.raises(HetError, match="you may have 0 unfinished tasks"):
        daemon.client.submit("synthetic", {"seconds": {"cpu": 0.0}})
    assert daemon.client.policy().name == "affinity"


def test_a_mistake_in_a_reload_changes_nothing(private_daemon: Start) -> None:
    daemon = private_daemon(SETTINGS + RESOURCES)

    daemon.config.write_text("polcy = 3", encoding="utf-8")
    os.kill(daemon.client.welcome.pid, signal.SIGHUP)

    await_log(daemon, "configuration not reloaded:")
    with Client(daemon.socket) as client:
        task = client.submit("synthetic", {"seconds": {"cpu": 0.0}})
        task.result()
