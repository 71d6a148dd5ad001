"""Impossible events raise with the task's story; stories do not fill memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import a_task
from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.state import ROWS_KEPT
from hetsched.tasks import Step
from hetsched.transitions import LONGEST_STORY, advance
from libtask.errors import BugError
from unit.hetsched.scheduler.expected_actions import CPU, ONE

if TYPE_CHECKING:
    from builders import Start


def test_a_task_submitted_twice_is_a_bug(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))

    with pytest.raises(BugError, match="task 1 was submitted twice"):
        node.handle(a_task(1))


def test_an_impossible_step_raises_with_the_story(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1), at=2.0)
    task = node.scheduler.system.tasks[ONE]

    with pytest.raises(
        BugError,
        match="task 1: TaskReleased is impossible while running; "
        "its story: 2000000000: queued -Dispatched-> running",
    ):
        advance(task, Step.TASK_RELEASED, 3)


def test_stories_and_rows_do_not_fill_memory(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))
    for _ in range(LONGEST_STORY):
        node.handle(e.TaskHeld(ONE))
        node.handle(e.TaskYielded(ONE, 1, 0.5))
        node.handle(e.TaskReleased(ONE))
    for number in range(2, 4 * ROWS_KEPT):
        node.handle(a_task(number, hold=True, work=float(number)))
        node.handle(e.TaskCancelled(TaskId(number)))

    assert len(node.scheduler.system.tasks[ONE].story) <= LONGEST_STORY
    assert len(node.scheduler.state._rows) <= ROWS_KEPT + 2
