"""Orders to launchers and workers, and their reports. Each names (task, epoch)."""

from __future__ import annotations

from typing import Any

from libtask.messages.base import Message
from libtask.messages.parts import CheckpointRecord, DeviceSpec, TaskSpec


class StartWorkers(Message, frozen=True):
    """Make a worker of each name."""

    names: list[str]


class KillWorker(Message, frozen=True):
    """End a worker that does not obey."""

    name: str
    reason: str = ""


class WorkerExited(Message, frozen=True):
    """A worker ended."""

    name: str
    status: int
    """Exit status; negative: the signal that ended it."""
    reason: str = ""
    started: bool = True
    """Whether there was a process; else the system gave none, and may later."""


class Stage(Message, frozen=True):
    """Load this task's inputs; it will run soon. `Run` may come before it is ready."""

    task: int
    epoch: int
    spec: TaskSpec
    checkpoint: CheckpointRecord = CheckpointRecord()


class Run(Message, frozen=True):
    """Run the staged (or preempted, kept) task on this device now.

    With `spec`, the task is not staged yet: load it first, without a `Ready`.
    """

    task: int
    epoch: int
    device: DeviceSpec
    spec: TaskSpec | None = None
    checkpoint: CheckpointRecord = CheckpointRecord()
    strip: int | None = None
    """First strip's size, from the estimates; None: start with the smallest."""


class Preempt(Message, frozen=True):
    """Yield at the next checkpoint."""

    task: int
    epoch: int


class Abort(Message, frozen=True):
    """Give the task up at the next checkpoint, without a result; also drops a staged one."""

    task: int
    epoch: int


class Retire(Message, frozen=True):
    """Exit; no task is held."""


class Ready(Message, frozen=True):
    """The staged task's inputs are loaded."""

    task: int
    epoch: int
    total: int | None = None


class Progress(Message, frozen=True):
    """Strips done since the last report; at most one each 100 ms."""

    task: int
    epoch: int
    checkpoint: CheckpointRecord
    seconds: float
    """Computing time of those strips."""
    iterations: int
    """Iterations in those strips."""
    strips: int = 1
    started: float | None = None
    """When the first strip began (epoch seconds); in the first report only."""
    transfer_in: float = 0.0
    cpu_seconds: float = 0.0
    """Processor time of the worker since the last report, all threads."""
    log: str = ""
class Leaving(Message, frozen=True):
    """A worker takes no further order and exits; what it was given is not begun."""


    """Where the output of this stretch goes, and begins; in the first report only."""
    log_start: int = 0


class Yielded(Message, frozen=True):
    """The task stopped at a checkpoint; its device memory is free."""

    task: int
    epoch: int
    checkpoint: CheckpointRecord
    seconds: float = 0.0
    iterations: int = 0
    strips: int = 0
    transfer_in: float = 0.0
    transfer_out: float = 0.0
    set_up: float = 0.0
    """Seconds from the start to the first strip, without transfers."""
    cpu_seconds: float = 0.0
    """Processor time of the worker in this stretch, all threads."""
    last_strip: float = 0.0
    """When the last strip ended (epoch seconds)."""
    log: str = ""
    log_start: int = 0
    log_end: int = 0


class Finished(Message, frozen=True):
    """The task is complete; `result` is what it saved."""

    task: int
    epoch: int
    result: Any = None
    seconds: float = 0.0
    iterations: int = 0
    strips: int = 0
    transfer_in: float = 0.0
    transfer_out: float = 0.0
    set_up: float = 0.0
    """Seconds from the start to the first strip, without transfers."""
    cpu_seconds: float = 0.0
    """Processor time of the worker in this stretch, all threads."""
    log: str = ""
    log_start: int = 0
    log_end: int = 0


    ended: float = 0.0
    """When the stretch ended (epoch seconds); 0: just now."""
class Failed(Message, frozen=True):
    """The task ended with an error."""

    task: int
    epoch: int
    error: str
    """One line."""
    code: str = "task-failed"
    """`HetError.code` of the cause; `device` and `program` may succeed elsewhere."""
    trace: str = ""
    log: str = ""
    log_start: int = 0
    log_end: int = 0


class Aborted(Message, frozen=True):
    """The task was given up, as asked."""

    task: int
    epoch: int
    ended: float = 0.0
    """When the stretch ended (epoch seconds); 0: just now."""
    ended: float = 0.0
    """When the stretch ended (epoch seconds); 0: just now."""
