"""A stretch of a task on a device, as a worker has it run: begun and preempted anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from libtask.checkpoint import Checkpoint, StripSizer
from libtask.devices import open_device
from libtask.messages import CheckpointRecord, DeviceSpec

if TYPE_CHECKING:
    from libtask.devices import Device
    from libtask.messages import Kind
    from libtask.task import Task

CPU = DeviceSpec("cpu", "cpu", threads=2)
END = 10**9


def compute(
    task: Task, device: Device, strip: int, start: int = 0, stop: int = END
) -> int:
    """Run from iteration `start` to the end, or be preempted once at `stop`.

    Returns:
        How many iterations are done.

    """
    checkpoint, generator = _begun(task, device, strip, start)
    for _ in generator:
        device.mark()()
        checkpoint.done = checkpoint.drawn
        if checkpoint.done >= stop:
            generator.close()
    return checkpoint.done


def advance(task: Task, spec: DeviceSpec, start: int, stop: int, strip: int) -> None:
    """Run iterations `start` to `stop` (or a strip beyond), then preempt the task."""
    device = open_device(spec)
    checkpoint, generator = _begun(task, device, strip, start)
    while checkpoint.drawn < stop:
        next(generator)
    generator.close()
    device.close()


def _begun(
    task: Task, device: Device, strip: int, start: int
) -> tuple[Checkpoint, Any]:
    record = CheckpointRecord(done=start, total=task.total())
    checkpoint = Checkpoint(record, StripSizer(1, fixed=strip))
    kind: Kind = device.spec.kind
    return checkpoint, task.implementations[kind](task, device, checkpoint)
