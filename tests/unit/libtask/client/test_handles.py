"""Handles of tasks: their ends, with and without somebody who waits."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from libtask.client.handles import Follower, Registry, TaskHandle
from libtask.errors import DaemonUnreachableError
from libtask.messages import TaskChanged, TaskInfo
from libtask.results import ResultEncoder, has_pickled

if TYPE_CHECKING:
    from libtask.messages import TaskState


class _Nobody:
    """A client that is asked nothing."""

    path = Path("nowhere")


NOBODY = cast("Follower", _Nobody())


class _GoneDaemon(_Nobody):
    """A client whose daemon does not come back."""

    def follow_again(self, _timeout: float | None = None) -> None:
        raise DaemonUnreachableError("not back")


GONE = cast("Follower", _GoneDaemon())


def change(state: TaskState) -> TaskChanged:
    return TaskChanged(id=7, state=state, at=1.0, result=3)


def test_a_task_that_ended_before_somebody_asks_has_ended() -> None:
    handle = TaskHandle(NOBODY, 7)
    handle.changed(change("running"))
    assert not handle.done()
    handle.changed(change("completed"))
    assert handle.done()
    assert handle.result(0) == 3
    assert handle.ended.result(0) == change("completed")
    assert handle.ended is handle.ended


def test_a_future_that_was_asked_for_is_set_at_the_end() -> None:
    handle = TaskHandle(NOBODY, 7)
    told: list[TaskChanged] = []
    handle.ended.add_done_callback(lambda future: told.append(future.result()))
    # a callback may use the handle
    handle.ended.add_done_callback(lambda _: told.append(handle.ended.result(0)))
    handle.changed(change("running"))
    assert told == []
    handle.changed(change("completed"))
    assert told == [change("completed")] * 2


def test_changes_after_the_end_change_nothing() -> None:
    handle = TaskHandle(NOBODY, 7)
    handle.changed(change("completed"))
    handle.changed(change("cancelled"))
    handle.lose(DaemonUnreachableError("gone"))
    assert handle.state == "completed"
    assert handle.result(0) == 3


@pytest.mark.parametrize("asked_before", [False, True])
def test_an_end_that_will_not_be_known_is_raised(*, asked_before: bool) -> None:
    handle = TaskHandle(GONE, 7)
    if asked_before:
        assert not handle.ended.done()
    handle.lose(DaemonUnreachableError("gone"))
    assert handle.done()
    with pytest.raises(DaemonUnreachableError, match="not back"):
        handle.result(0)
    assert isinstance(handle.ended.exception(0), DaemonUnreachableError)


def test_a_future_that_its_owner_cancelled_does_not_end_the_connection() -> None:
    handle = TaskHandle(NOBODY, 7)
    handle.ended.cancel()
    handle.changed(change("completed"))
    assert handle.result(0) == 3


def test_a_task_that_has_not_ended_is_told_as_such() -> None:
    handle = TaskHandle(NOBODY, 7)
    with pytest.raises(TimeoutError, match=r"^task 7 has not ended after 0 s$"):
        handle.result(0)


def test_a_followed_task_takes_at_most_300_bytes() -> None:
    tasks = 10_000
    registry = Registry(NOBODY)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        handles = [registry.follow(1_000_000 + number) for number in range(tasks)]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(handles) == tasks
    assert (after - before) / tasks <= 300


class _Owner:
    """A client that counts how often it is asked for a task of another user."""

    asked = 0

    def show(self, task_id: int) -> TaskInfo:
        self.asked += 1
        return TaskInfo(task_id, "app", "app", "completed", "uid:0")


def test_only_the_owner_of_a_task_that_was_submitted_elsewhere_is_asked_for(
    tmp_path: Path,
) -> None:
    result = ResultEncoder(tmp_path / "7-1").keep(1 << 70).value
    assert has_pickled(result)
    client = _Owner()
    registry = Registry(cast("Follower", client))
    mine, other = registry.submitted(7), registry.follow(8)
    for handle in (mine, other):
        handle.changed(TaskChanged(handle.id, "completed", at=1.0, result=result))

    assert mine.result(0) == 1 << 70
    assert client.asked == 0
    assert (other.result(0) == 1 << 70) is (os.getuid() == 0)
    assert client.asked == 1
