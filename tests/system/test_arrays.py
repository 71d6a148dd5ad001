"""A task with one implementation for two kinds moves between them, in real workers."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from system.private_daemon import eventually

if TYPE_CHECKING:
    from libtask.client.handles import TaskHandle
    from system.private_daemon import PrivateDaemon

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "k_means.py"
APP = """
import time
from dataclasses import dataclass
from pathlib import Path

from k_means import KMeans

lloyd = KMeans.implementations["cpu"]


@dataclass
class Gated(KMeans):
    array_libraries = ("array_api_strict",)
    gate: str = ""


def gated(task, device, checkpoint):
    draw = checkpoint.strips
    def strips(granule=1):
        told = False
        for strip in draw(granule):
            for gate in (4, 9):
                if strip.start == gate:
                    Path(task.gate, f"{gate}.at").touch()
                    while not Path(task.gate, str(gate)).exists():
                        time.sleep(0.001)
                    told = True
            if told:  # to leave: the worker may not have read it yet
                time.sleep(0.1)
            yield strip
    checkpoint.strips = strips
    print(device.spec.name, device.xp.__name__, flush=True)
    return lloyd(task, device, checkpoint)


Gated.implementations.update(cpu=gated, gpu=gated)
"""
SIZE = {"points": 600, "clusters": 4, "iterations": 14}

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("array_api_strict") is None,
    reason="needs array-api-strict",
)


def test_the_example_moves_in_the_middle_with_the_same_result(
    daemon: PrivateDaemon, tmp_path: Path
) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP)
    shutil.copy(EXAMPLE, tmp_path)
    parameters = {**SIZE, "gate": str(tmp_path)}
    handle = daemon.client.submit(
        f"{app}:Gated", parameters, resources=["cpu"], strip=1
    )

    for gate, place in ((4, "gpu0"), (9, "cpu")):
        _await(handle, tmp_path / f"{gate}.at")
        daemon.client.migrate(handle.id, place)
        (tmp_path / str(gate)).touch()

    moved = handle.result(60.0)["centres"]
    np.testing.assert_allclose(moved, _alone(), rtol=1e-9)
    info = daemon.info(handle.id)
    assert [each.resource for each in info.segments] == ["cpu", "gpu0", "cpu"]
    assert all(each.strips for each in info.segments)
    printed = handle.logs()
    assert "gpu0 array_api_strict" in printed
    assert "cpu array_api_strict" not in printed


def _await(handle: TaskHandle, gate: Path) -> None:
    def arrived() -> bool:
        assert not handle.done(), handle.last
        return gate.exists()

    eventually(arrived, "the task at its gate")


def _alone() -> list[list[float]]:
    """Run the example as it stands, as its own program."""
    words = [f"--{name}={value}" for name, value in SIZE.items()]
    command = [sys.executable, str(EXAMPLE), *words, "--local", "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    centres: list[list[float]] = json.loads(done.stdout)["centres"]
    return centres
