"""The table of transitions between the states of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.tasks import State, Step
from libtask.errors import BugError

if TYPE_CHECKING:
    from hetsched.ids import Nanoseconds
    from hetsched.tasks import TaskRecord

# Maps a state and a step to the next state. An absent pair is impossible and raises; where
# both states are the same, the step is only added to the story.
TRANSITIONS: dict[tuple[State, Step], State] = {
    (State.HELD, Step.TASK_RELEASED): State.QUEUED,
    (State.HELD, Step.TASK_CANCELLED): State.CANCELLED,
    (State.HELD, Step.WORKER_LOST): State.HELD,
    (State.HELD, Step.DEPENDENCIES_AWAITED): State.WAITING,
    (State.HELD, Step.DEPENDENCY_ENDED): State.CANCELLED,
    (State.HELD, Step.INSTANT_AWAITED): State.WAITING,
    (State.WAITING, Step.INSTANT_CAME): State.QUEUED,
    (State.WAITING, Step.DEPENDENCIES_MET): State.QUEUED,
    (State.WAITING, Step.DEPENDENCY_ENDED): State.CANCELLED,
    (State.WAITING, Step.TASK_HELD): State.HELD,
    (State.WAITING, Step.TASK_CANCELLED): State.CANCELLED,
    (State.WAITING, Step.TASK_FAILED): State.FAILED,
    (State.WAITING, Step.WORKER_LOST): State.QUEUED,
    (State.WAITING, Step.PARTS_DONE): State.PREEMPTED,
    (State.HELD, Step.TASK_FAILED): State.FAILED,
    (State.QUEUED, Step.PARTS_AWAITED): State.WAITING,
    (State.PREEMPTED, Step.PARTS_AWAITED): State.WAITING,
    (State.HELD, Step.PARTS_AWAITED): State.WAITING,
    (State.QUEUED, Step.DEPENDENCIES_AWAITED): State.WAITING,
    (State.QUEUED, Step.INSTANT_AWAITED): State.WAITING,
    (State.QUEUED, Step.RESTORED): State.RUNNING,
    (State.QUEUED, Step.RESTORED_WAITING): State.PREEMPTED,
    (State.QUEUED, Step.DISPATCHED): State.RUNNING,
    (State.QUEUED, Step.TASK_HELD): State.HELD,
    (State.QUEUED, Step.TASK_CANCELLED): State.CANCELLED,
    (State.QUEUED, Step.DROPPED): State.DROPPED,
    (State.QUEUED, Step.TASK_FAILED): State.FAILED,
    (State.QUEUED, Step.WORKER_LOST): State.QUEUED,
    (State.PREEMPTED, Step.RESTORED): State.RUNNING,
    (State.PREEMPTED, Step.INSTANT_AWAITED): State.WAITING,
    (State.PREEMPTED, Step.TASK_FINISHED): State.COMPLETED,
    (State.HELD, Step.TASK_FINISHED): State.COMPLETED,
    (State.PREEMPTED, Step.DISPATCHED): State.RUNNING,
    (State.PREEMPTED, Step.TASK_HELD): State.HELD,
    (State.PREEMPTED, Step.TASK_CANCELLED): State.CANCELLED,
    (State.PREEMPTED, Step.DROPPED): State.DROPPED,
    (State.PREEMPTED, Step.TASK_FAILED): State.FAILED,
    (State.PREEMPTED, Step.WORKER_LOST): State.QUEUED,
    (State.RUNNING, Step.TASK_YIELDED): State.PREEMPTED,
    (State.RUNNING, Step.TASK_FINISHED): State.COMPLETED,
    (State.RUNNING, Step.TASK_FAILED): State.FAILED,
    (State.RUNNING, Step.TASK_ABORTED): State.CANCELLED,
    (State.RUNNING, Step.INSTANT_AWAITED): State.WAITING,
    (State.RUNNING, Step.RETRIED): State.QUEUED,
    (State.RUNNING, Step.RETURNED): State.QUEUED,
    (State.RUNNING, Step.WORKER_LOST): State.QUEUED,
}

LONGEST_STORY = 200
"""Steps kept of a task's story, so that a task that moves often does not fill memory."""


def advance(task: TaskRecord, step: Step, now: Nanoseconds) -> State:
    """Let a task enter the state that a step leads to.

    Raises:
        BugError: the step is impossible in the present state.

    """
    before = task.state
    successor = TRANSITIONS.get((before, step))
    if successor is None:
        raise BugError(
            f"task {task.id}: {step} is impossible while {before}; "
            f"its story: {task.describe_story()}"
        )
    story = task.story
    if len(story) >= LONGEST_STORY:
        del story[: LONGEST_STORY // 2]
    story.append((now, before, step, successor))
    task.state = successor
    return successor
