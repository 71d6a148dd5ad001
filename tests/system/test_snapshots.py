"""Snapshots as users meet them: shown, bad, impossible, removed; and what waits on disk."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest

from system.private_daemon import PATIENCE, eventually, opened
from system.snapshotting import (
    AT_ONCE,
    LONG,
    ON_DEMAND,
    beyond,
    check_resumed,
    files_of,
    folder_in,
    settings,
    snapshot_at_gate,
)
from system.terminal import Terminal
from system.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from libtask.messages import TaskInfo
    from system.private_daemon import PrivateDaemon

    Start = Callable[..., PrivateDaemon]


@pytest.fixture(scope="module")
def _shared_keeper() -> Iterator[PrivateDaemon]:
    with opened(settings(ON_DEMAND)) as daemon:
        yield daemon


@pytest.fixture
def keeper(_shared_keeper: PrivateDaemon) -> Iterator[PrivateDaemon]:
    """A daemon that keeps snapshots when it is told to; shared, so do not harm it."""
    yield _shared_keeper
    _shared_keeper.give_up_tasks()


def test_a_task_shows_its_snapshot_and_what_is_at_risk(
    keeper: PrivateDaemon, tmp_path: Path
) -> None:
    hetctl = Terminal(keeper)
    task = Tracing(keeper, tmp_path, gate_at=100, total_strips=100_000)
    task.await_gate()
    before = eventually(lambda: _at_risk(keeper, task.id), "work at risk")

    assert hetctl("snapshot", str(task.id)) == (
        f"task {task.id} writes a snapshot at its next checkpoint\n"
    )
    task.open_gate()
    snapshot = eventually(lambda: keeper.info(task.id).snapshot, "a snapshot")
    after = eventually(lambda: _at_risk(keeper, task.id), "more work at risk")
    shown = hetctl("show", str(task.id))
    document = hetctl.json("show", str(task.id))

    assert re.search(r"snapshot +[\d.]+ \S+ old \(.*\), .* of work at risk", shown)
    assert document["snapshot_bytes"] == snapshot.bytes
    assert document["work_at_risk_s"] > 0
    assert before.snapshot is None
    assert (snapshot.total, snapshot.done > 100) == (100_000, True)
    assert snapshot.bytes > 100
    assert 0 < snapshot.seconds < PATIENCE
    assert after.snapshot == snapshot
    assert after.checkpoint_at is not None
    assert snapshot.at <= after.checkpoint_at


def _at_risk(daemon: PrivateDaemon, task: int) -> TaskInfo | None:
    info = daemon.info(task)
    return info if info.at_risk > 0 else None


def test_a_bad_snapshot_is_not_used_and_the_older_is(
    keeper: PrivateDaemon, tmp_path: Path
) -> None:
    task = Tracing(keeper, tmp_path, gate_at=10, total_strips=600)
    task.await_gate()
    older = snapshot_at_gate(keeper, task)
    keeper.client.snapshot(task.id)
    eventually(lambda: beyond(keeper, task.id, older.done), "a second snapshot")
    newest = files_of(keeper, task.id)[-1]
    whole = newest.read_bytes()
    newest.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))

    os.kill(task.pids()[0], signal.SIGKILL)

    check_resumed(task, older.done, 600)
    log = keeper.log.read_text()
    assert f"task {task.id}: a snapshot is not used: {newest.name}: its checksum" in log
    assert newest.with_name(f"{newest.name}.bad").exists()


def test_where_none_can_be_written_the_task_goes_on_and_says_so(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon(settings(ON_DEMAND))
    daemon.client.submit("synthetic", {"seconds": {"cpu": 0.0}}).result(PATIENCE)
    (daemon.crew_folder / "snapshots").write_text("in the way")
    task = Tracing(daemon, tmp_path, gate_at=10, total_strips=30)
    task.await_gate()

    daemon.client.snapshot(task.id)
    task.open_gate()

    task.check_completed(30)
    info = daemon.info(task.id)
    assert info.snapshot is None
    assert "hetd.launcher/snapshots" in info.snapshot_error


def test_the_snapshots_of_ended_tasks_are_removed(
    keeper: PrivateDaemon, tmp_path: Path
) -> None:
    task = Tracing(keeper, tmp_path, gate_at=10)
    task.await_gate()
    keeper.client.snapshot(task.id)
    task.open_gate()
    task.check_completed()

    def is_removed() -> bool:
        return not list((keeper.crew_folder / "snapshots").glob(f"{task.id}-*"))

    assert keeper.info(task.id).snapshot is not None
    eventually(is_removed, "their removal")


def test_a_cancelled_task_is_requeued_from_its_last_snapshot(
    keeper: PrivateDaemon, tmp_path: Path
) -> None:
    task = Tracing(keeper, tmp_path, gate_at=10, total_strips=LONG)
    task.await_gate()
    snapshot = snapshot_at_gate(keeper, task)
    keeper.client.cancel(task.id)
    keeper.await_state(task.id, "cancelled")

    (again,) = keeper.client.requeue(task.id, from_snapshot=True)

    result = again.result(PATIENCE)
    assert (result["sum"], result["counted"]) == (sum(range(LONG)), LONG)
    assert task.strips()[-LONG + snapshot.done :] == [*range(snapshot.done, LONG)]
    assert keeper.info(again.id).requeued == task.id


def test_with_little_memory_what_waits_waits_on_disk(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon(settings(AT_ONCE))
    task = Tracing(daemon, folder_in(tmp_path, "a"), gate_at=9, total_strips=LONG)
    task.await_gate()
    daemon.client.hold(task.id)
    task.open_gate()
    daemon.await_state(task.id, "held")
    (pid,) = task.pids()

    snapshot = eventually(lambda: daemon.info(task.id).snapshot, "a snapshot")
    # its worker is free for others
    for number in range(5):
        other = Tracing(daemon, folder_in(tmp_path, f"other{number}"))
        other.check_completed()
    daemon.client.release(task.id)

    task.check_completed(LONG)
    assert snapshot.done >= 10
    assert daemon.info(task.id).attempts == 0
    assert pid in daemon.processes()
