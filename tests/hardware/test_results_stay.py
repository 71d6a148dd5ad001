"""Tasks that take each other's results through the daemon: these stay on the device."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import numpy as np

from hardware import following
from hardware.following import VALUES
from libtask import private_daemon

if TYPE_CHECKING:
    from libtask.messages import DeviceSpec

SIZE = 8 * VALUES
PATIENCE_S = 120.0
APP = f"{following.__file__}:Following"
RESOURCES = """
resident_share = 0.1

[[resource]]
name = "gpu0"
kind = "gpu"
driver = "opencl"
platform = "{0.platform}"
device = "{0.device}"
index = {0.index}
emulated = true
"""


def test_results_stay_on_the_device_and_a_killed_worker_loses_nothing(
    pocl: DeviceSpec,
) -> None:
    with private_daemon(RESOURCES.format(pocl)) as client:
        task = client.submit(APP, {})
        steps: list[Any] = [task.result(PATIENCE_S)]
        for killed in (False, False, True, False):
            if killed:
                os.kill(steps[-1]["pid"], signal.SIGKILL)
            task = client.submit(APP, {"before": task})
            steps.append(task.result(PATIENCE_S))

    expected = np.arange(VALUES)
    for step in steps:
        expected = 3 * expected + 1
        np.testing.assert_array_equal(step["values"], expected)
        assert step["values"].flags.writeable
    # the memory for results is always copied in, as a task may continue elsewhere
    assert [step["found"] for step in steps] == [0, SIZE, SIZE, 0, SIZE]
    assert [step["copied"] for step in steps] == [
        2 * SIZE,
        SIZE,
        SIZE,
        2 * SIZE,
        SIZE,
    ]
    assert len({step["pid"] for step in steps}) == 2
