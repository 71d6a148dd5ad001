"""The state of a task comes back bit for bit."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from libtask.errors import TaskFailedError
from libtask.messages import CheckpointRecord
from libtask.snapshots import SnapshotFolder, pack, put_back
from unit.libtask.snapshots.snapshot_tasks import OWNER, Tight, loaded, snapshot_of


def test_a_fresh_task_gets_the_whole_state(folder: SnapshotFolder) -> None:
    task = loaded()
    task.grid *= 2
    task.pair.left[:] = 9
    task.turned[0, 2] = -1
    task.count = 3
    drawn = task.random.random(4)
    folder.write(snapshot_of(task))

    found, refused = folder.newest(OWNER)
    assert found is not None
    assert refused == []
    assert found.checkpoint == CheckpointRecord(5, 10, {"residual": 0.5})
    assert (found.epoch, found.written) == (1, 123.5)
    fresh = loaded()
    fresh.random.random(4)
    put_back(fresh, found.packed)

    for name in ("grid", "none", "point", "dates", "turned"):
        assert np.array_equal(getattr(fresh, name), getattr(task, name)), name
    assert np.array_equal(fresh.pair.left, task.pair.left)
    assert (fresh.pair.right[1], fresh.count) == ("text", 3)
    assert np.array_equal(fresh.random.random(4), task.random.random(4))
    assert len(drawn) == 4


def test_views_see_what_is_put_back() -> None:
    task, fresh = loaded(), loaded()
    task.grid[1] = 77

    put_back(fresh, pack(task))

    assert fresh.row.tolist() == [77, 77, 77]
    assert np.shares_memory(fresh.row, fresh.grid)


def test_only_the_named_attributes_are_kept() -> None:
    task, fresh = loaded(Tight), loaded(Tight)
    task.grid[:] = 5
    task.table[:] = 5

    packed = pack(task)
    put_back(fresh, packed)

    assert packed.names == ["grid"]
    assert fresh.grid.tolist() == [5] * 8
    assert not fresh.table.any()


def test_what_cannot_be_kept_is_said() -> None:
    task = loaded()
    task.lock = threading.Lock()

    with pytest.raises(
        TaskFailedError, match=r"attribute 'lock' cannot be saved, Type"
    ):
        pack(task)


def test_a_name_without_an_attribute_is_said() -> None:
    class Misspelt(Tight):
        state_names = ("old",)

    text = "Misspelt has no attribute 'old', which is in state_names"
    with pytest.raises(TaskFailedError, match=text):
        pack(loaded(Misspelt))
