"""Applications whose strips are independent: merged parts equal the whole, bit by bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hetapps.correlation import Correlation
from hetapps.gaussian_blur import GaussianBlur
from libtask.checkpoint import Checkpoint, StripSizer
from libtask.devices import open_device
from libtask.messages import CheckpointRecord, DeviceSpec
from libtask.snapshots.state import other_with, pack

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.task import Task

BLUR: dict[str, Any] = {"n": 320, "sigma": 3.0}
CORRELATION: dict[str, Any] = {"rows": 1100, "columns": 3080}


def run(task: Task, start: int, stop: int) -> Task:
    """Load a task and compute some of its iterations on the CPU."""
    task.load()
    record = CheckpointRecord(start, task.total())
    checkpoint = Checkpoint(record, StripSizer(1, fixed=7))
    checkpoint.limit = stop
    device = open_device(DeviceSpec("cpu", "cpu"))
    for _ in task.implementations["cpu"](task, device, checkpoint):
        checkpoint.done = checkpoint.drawn
    return task


@pytest.mark.parametrize(
    ("make", "state"),
    [
        (lambda: GaussianBlur(**BLUR), "blurred"),
        (lambda: Correlation(**CORRELATION), "matrix"),
    ],
    ids=["blur", "correlation"],
)
def test_merged_parts_equal_the_whole(make: Callable[[], Any], state: str) -> None:
    loaded = make()
    loaded.load()
    total, granule = loaded.total(), loaded.part_granule()
    first, second = granule, total // granule // 2 * granule + granule
    assert 0 < first < second < total, "three parts"
    whole = run(make(), 0, total)

    merged: Any = run(make(), 0, first)
    for start, stop in ((second, total), (first, second)):
        part = other_with(merged, pack(run(make(), start, stop)))
        merged.merge(part, range(start, stop))

    assert np.array_equal(getattr(merged, state), getattr(whole, state))
    assert np.any(getattr(whole, state))
