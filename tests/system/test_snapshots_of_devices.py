"""A snapshot of a task on one device is gone on from on another."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from libtask.worker.execution import NANOSECONDS
from system import gated
from system.private_daemon import PATIENCE, eventually, opened
from system.snapshotting import ON_DEMAND, folder_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from libtask.client.handles import TaskHandle
    from system.private_daemon import PrivateDaemon


COMPILING = 100.0
"""Seconds for a first run, which may compile kernels for the first time."""


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
