"""The task that a worker has loaded, from its staging to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from libtask.apps import total_of, version_of
from libtask.errors import InputError
from libtask.messages import CheckpointRecord, Stage
from libtask.parameters import build

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Self

    from libtask.messages import Abort, DeviceSpec, Run, TakeSnapshot, TaskSpec
    from libtask.task import Implementation, Task


@dataclass(slots=True)
class LoadedTask:
    """A task that is staged, running or yielded.

    Attributes:
        task: its id.
        epoch: number of its binding to this worker.
        spec: its description.
        app: the application's object, with the state arrays.
        record: the checkpoint at which it continues.
        version: its application's version.
        stored_as: name of its files, unique among those of its user; empty: unknown.

    """

    task: int
    epoch: int
    spec: TaskSpec
    app: Task
    record: CheckpointRecord
    version: str = ""
    stored_as: str = ""

    @classmethod
    def load(
        cls, order: Stage, app_class: type[Task], params: Mapping[str, Any]
    ) -> Self:
        """Build a task and load its inputs.

        Args:
            order: the command.
            app_class: the application.
            params: the task's parameters, with the results of other tasks.

        Raises:
            InputError: a parameter or the number of iterations is invalid.
            BaseException: raised by the application.

        """
        app = build(app_class, params)
        app.load()
        total = total_of(app)
        start = order.spec.part.start if order.spec.part else order.checkpoint.done
        record = CheckpointRecord(start, total, order.checkpoint.extra)
        version = version_of(app_class)
        name = order.snapshots
        return cls(order.task, order.epoch, order.spec, app, record, version, name)

    def is_for(self, order: Stage | Run | Abort | TakeSnapshot) -> bool:
        """Return whether a command refers to this task and binding."""
        return self.task == order.task and self.epoch == order.epoch

    def implementation(self, device: DeviceSpec) -> Implementation:
        """Return the task's implementation for a device.

        Raises:
            InputError: the app has none for the device's kind.

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
    """Return the `Stage` that a `Run` contains; None: the task was staged before."""
    if order.spec is None:
        return None
    return Stage(
        order.task,
        order.epoch,
        order.spec,
        order.checkpoint,
        order.snapshots,
        order.resume,
        order.inputs,
    )
