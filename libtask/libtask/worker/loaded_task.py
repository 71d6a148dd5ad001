"""The task that a worker holds, from its staging to its end."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from libtask.apps import version_of
from libtask.errors import InputError
from libtask.messages import CheckpointRecord, Stage
from libtask.parameters import build

if TYPE_CHECKING:
    from typing import Self

    from libtask.messages import Abort, DeviceSpec, Run, TakeSnapshot, TaskSpec
    from libtask.task import Implementation, Task


@dataclass(slots=True)
class LoadedTask:
    """A task that is staged, running or yielded.

    Attributes:
        task: its id.
        epoch: names its binding to this worker.
        spec: its description.
        app: the application's object, with the state arrays.
        record: the checkpoint where it goes on.
        version: its application's.

    """

    task: int
    epoch: int
    spec: TaskSpec
    app: Task
    record: CheckpointRecord
    version: str = ""

    @classmethod
    def load(cls, order: Stage, app_class: type[Task]) -> Self:
        """Build a task and load its inputs.

        Raises:
            InputError: bad parameters.
            BaseException: whatever the application raises.

        """
        app = build(app_class, order.spec.params)
        app.load()
        total = app.total()
        if total is not None:
            total = operator.index(total)  # NumPy's integers do not travel
        record = CheckpointRecord(order.checkpoint.done, total, order.checkpoint.extra)
        version = version_of(app_class)
        return cls(order.task, order.epoch, order.spec, app, record, version)

    def is_for(self, order: Stage | Run | Abort | TakeSnapshot) -> bool:
        """Say whether an order means this very holding."""
        return self.task == order.task and self.epoch == order.epoch

    def implementation(self, device: DeviceSpec) -> Implementation:
        """Return what runs the task on a device.

        Raises:
            InputError: the app has none for that kind.

        """
        found = self.app.implementations.get(device.kind)
        if found is None:
            kinds = ", ".join(self.app.implementations) or "nothing"
            raise InputError(
                f"{self.spec.app} has no implementation for {device.kind}"
                f" ({device.name}); it runs on: {kinds}"
            )
        return found


def staging_of(order: Run) -> Stage | None:
    """Return the staging that an order to run brings along; None: it was ordered before."""
    if order.spec is None:
        return None
    return Stage(
        order.task,
        order.epoch,
        order.spec,
        order.checkpoint,
        order.snapshots,
        order.resume,
    )
