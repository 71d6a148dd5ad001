"""Resources and tasks for tests of the scheduler, and the actions of a start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builders import a_resource
from hetsched.actions import Record, Run
from hetsched.ids import TaskId
from hetsched.tasks import State

if TYPE_CHECKING:
    from hetsched.actions import Action


CPU = a_resource("cpu")

GPU = a_resource("gpu")

BOTH = {"any": {"cpu": 2.0, "gpu0": 1.0}}

ONE, TWO, THREE = TaskId(1), TaskId(2), TaskId(3)


def ran(task: TaskId, epoch: int, resource: str) -> list[Action]:
    return [
        Run(task, epoch, resource),
        Record(task, State.RUNNING, "dispatched", resource),
    ]
