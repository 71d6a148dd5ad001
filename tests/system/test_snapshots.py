"""Workers, launchers and the whole crew are killed: tasks go on from snapshots."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from libtask.errors import TaskFailedError
from libtask.worker.execution import NANOSECONDS
from system import gated, traced
from system.private_daemon import PATIENCE, RESOURCES, SETTINGS, eventually, opened
from system.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from libtask.client.handles import TaskHandle
    from libtask.messages import SnapshotInfo, TaskInfo
    from system.private_daemon import PrivateDaemon

    Start = Callable[..., PrivateDaemon]

OFTEN = "[snapshots]\nmtbf_s = 1e-9\nminimum_s = 0.0\nlow_memory = 0.0\n"
"""A snapshot whenever one takes no longer than the computing since the last."""
ON_DEMAND = "[snapshots]\nmtbf_s = 0.0\nlow_memory = 0.0\n"
AT_ONCE = "[snapshots]\nmtbf_s = 0.0\nlow_memory = 1.0\n"
"""Memory is always low: what waits in a worker waits on disk as soon as it is idle."""
LONG = 200
"""Strips of tasks that must not end before an order reaches them."""
COMPILING = 100.0
"""Seconds for a first run, which may compile kernels for the first time."""


def settings(snapshots: str, top: str = "") -> str:
    return top + SETTINGS + snapshots + RESOURCES


def folder_in(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    return folder


def snapshot_at_gate(daemon: PrivateDaemon, task: Tracing) -> SnapshotInfo:
    """Have a task that waits at its gate write a snapshot when it goes on."""
    daemon.client.snapshot(task.id)
    task.open_gate()
    return eventually(lambda: daemon.info(task.id).snapshot, "a snapshot")


def files_of(daemon: PrivateDaemon, task: int) -> list[Path]:
    """List the snapshot files of a task, oldest first."""
    shelf = daemon.crew_folder / "snapshots"
    return sorted(shelf.glob(f"{task}-*/*.snapshot"))


def check_resumed(task: Tracing, done: int, total: int) -> None:
    """Demand that the strips after `done`, and only these, ran a second time."""
    assert task.handle.result(PATIENCE)["sum"] == sum(range(total))
    assert task.handle.result(PATIENCE)["counted"] == total
    strips = task.strips()
    assert len(task.pids()) == 2
    first = strips.index(done, done + 1)
    assert strips[:first] == [*range(first)]
    assert strips[first:] == [*range(done, total)]


# ---------------------------------------------------------------- workers


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


def test_a_task_shows_its_snapshot_and_what_is_at_risk(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon(settings(ON_DEMAND))
    task = Tracing(daemon, tmp_path, gate_at=100, total_strips=100_000)
    task.await_gate()
    before = eventually(lambda: _at_risk(daemon, task.id), "work at risk")

    assert hetctl(daemon, "snapshot", str(task.id)) == (
        f"task {task.id} writes a snapshot at its next checkpoint\n"
    )
    task.open_gate()
    snapshot = eventually(lambda: daemon.info(task.id).snapshot, "a snapshot")
    after = eventually(lambda: _at_risk(daemon, task.id), "more work at risk")
    shown = hetctl(daemon, "show", str(task.id))
    document = json.loads(hetctl(daemon, "show", str(task.id), "--json"))

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


def hetctl(daemon: PrivateDaemon, *words: str) -> str:
    command = [sys.executable, "-m", "hetctl", *words, "--socket", str(daemon.socket)]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    return ended.stdout


def _at_risk(daemon: PrivateDaemon, task: int) -> TaskInfo | None:
    info = daemon.info(task)
    return info if info.at_risk > 0 else None


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


def _churn(daemon: PrivateDaemon, output: Path, **parameters: Any) -> TaskHandle:
    app = f"{traced.__file__}:Churn"
    return daemon.client.submit(app, {"output": str(output), **parameters})


# ---------------------------------------------------------------- budget


def test_attempts_count_without_progress_only(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon(settings(OFTEN))
    task = Tracing(daemon, tmp_path, total_strips=100_000)
    done = 0

    for kill in range(6):
        eventually(lambda n=kill: len(task.pids()) > n, "another worker")  # type: ignore[misc]  # bound on purpose
        further = eventually(
            lambda n=done: _beyond(daemon, task.id, n),  # type: ignore[misc]  # bound on purpose
            "a further snapshot",
        )
        done = further.done
        os.kill(task.pids()[-1], signal.SIGKILL)

    eventually(lambda: len(task.pids()) == 7, "the seventh worker")
    task.handle.cancel()
    assert task.handle.wait(PATIENCE) == "cancelled"


def _beyond(daemon: PrivateDaemon, task: int, done: int) -> SnapshotInfo | None:
    snapshot = daemon.info(task).snapshot
    return snapshot if snapshot is not None and snapshot.done > done else None


def test_a_worker_that_exits_as_if_all_were_well_has_not_finished(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon()

    task = _churn(daemon, tmp_path / "out", exit_at=100)

    with pytest.raises(TaskFailedError, match=r"exit status 0; 3 attempts are the l"):
        task.result(PATIENCE)
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- bad snapshots


def test_a_bad_snapshot_is_not_used_and_the_older_is(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon(settings(ON_DEMAND))
    task = Tracing(daemon, tmp_path, gate_at=10, total_strips=600)
    task.await_gate()
    older = snapshot_at_gate(daemon, task)
    daemon.client.snapshot(task.id)
    eventually(lambda: _beyond(daemon, task.id, older.done), "a second snapshot")
    newest = files_of(daemon, task.id)[-1]
    whole = newest.read_bytes()
    newest.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))

    os.kill(task.pids()[0], signal.SIGKILL)

    check_resumed(task, older.done, 600)
    log = daemon.log.read_text()
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
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon(settings(ON_DEMAND))
    task = Tracing(daemon, tmp_path, gate_at=10)
    task.await_gate()
    daemon.client.snapshot(task.id)
    task.open_gate()
    task.check_completed()

    def is_empty() -> bool:
        return not list((daemon.crew_folder / "snapshots").iterdir())

    assert daemon.info(task.id).snapshot is not None
    eventually(is_empty, "their removal")


# ---------------------------------------------------------------- everything


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


# ---------------------------------------------------------------- memory


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


# ---------------------------------------------------------------- devices


@pytest.fixture(scope="module")
def real_devices() -> Iterator[PrivateDaemon]:
    with opened(f'policy = "affinity"\n{ON_DEMAND}') as daemon:
        yield daemon


@pytest.mark.timeout(2 * COMPILING + PATIENCE)
@pytest.mark.parametrize(
    ("start", "destination"), [("gpu0", "cpu"), ("cpu", "gpu0"), ("fpga0", "gpu0")]
)
def test_a_snapshot_of_one_device_is_gone_on_from_on_another(
    real_devices: PrivateDaemon, tmp_path: Path, start: str, destination: str
) -> None:
    undisturbed = Heated(real_devices, folder_in(tmp_path, "a"), "cpu", [])
    expected = undisturbed.result()
    task = Heated(real_devices, folder_in(tmp_path, "b"), start, [320, 640])

    task.await_gate(320)
    real_devices.client.snapshot(task.handle.id)
    task.open_gate(320)
    task.await_gate(640)
    snapshot = real_devices.info(task.handle.id).snapshot
    assert snapshot is not None
    workers = real_devices.workers()
    real_devices.client.migrate(task.handle.id, destination)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    task.open_gate(640)

    assert task.result().tobytes() == expected.tobytes()
    segments = real_devices.info(task.handle.id).segments
    assert [each.resource for each in segments] == [start, destination]
    assert segments[-1].strips == (960 - snapshot.done) / 32
    assert segments[-1].seconds * NANOSECONDS > 0


@pytest.mark.timeout(2 * COMPILING + PATIENCE)
def test_a_task_whose_device_is_lost_goes_on_from_where_it_came_there(
    real_devices: PrivateDaemon, tmp_path: Path
) -> None:
    undisturbed = Heated(real_devices, folder_in(tmp_path, "a"), "cpu", [])
    expected = undisturbed.result()
    lost = {"app": "LostHeat", "lost_at": 640}
    task = Heated(real_devices, folder_in(tmp_path, "b"), "cpu", [320], **lost)

    task.await_gate(320)
    real_devices.client.migrate(task.handle.id, "gpu0")
    task.open_gate(320)

    assert task.result().tobytes() == expected.tobytes()
    info = real_devices.info(task.handle.id)
    assert [each.resource for each in info.segments][:2] == ["cpu", "gpu0"]
    moved_at = info.segments[0].strips * 32
    assert info.snapshot is not None
    assert info.snapshot.done == moved_at >= 320
    assert info.segments[-1].strips == (960 - moved_at) / 32


class Heated:
    """Heat, with gates before some time steps."""

    def __init__(
        self,
        daemon: PrivateDaemon,
        folder: Path,
        resource: str,
        gates: list[int],
        **fields: Any,
    ) -> None:
        self._folder = folder
        app = fields.pop("app", "GatedHeat")
        parameters = {"n": 256, "steps": 960, "gate": str(folder), "gates": gates}
        self.handle: TaskHandle = daemon.client.submit(
            f"{gated.__file__}:{app}",
            {**parameters, "output": str(folder / "out.npy"), **fields},
            resources=[resource] if not fields else [],
            strip=32,
        )
        if fields:
            daemon.client.migrate(self.handle.id, resource)

    def await_gate(self, gate: int) -> None:
        at = self._folder / f"{gate}.at"
        eventually(at.exists, f"the task at gate {gate}", COMPILING)

    def open_gate(self, gate: int) -> None:
        (self._folder / str(gate)).touch()

    def result(self) -> Any:
        self.handle.result(COMPILING)
        return np.load(self._folder / "out.npy")
