"""Commands to launchers and workers, and their reports; each names (task, epoch)."""

from __future__ import annotations

from typing import Annotated, Any

from libtask.messages.base import (
    MAX_NAMES,
    MAX_REPORTS,
    MAX_RESOURCES,
    TRACE_BYTES,
    Message,
    NameText,
    Seconds,
    Text,
    Whole,
    entries,
    text_of,
)
from libtask.messages.records import CheckpointRecord, DeviceSpec, LastOutput, TaskSpec


class StartWorkers(Message, frozen=True):
    """Make a worker of each name."""

    names: list[str]


class KillWorker(Message, frozen=True):
    """End a worker that does not obey."""

    name: str
    reason: str = ""


class WorkerExited(Message, frozen=True):
    """A worker ended."""

    name: NameText
    status: Whole
    """Exit status; negative: the signal that ended it."""
    reason: Text = ""
    started: bool = True
    """Whether there was a process; else the system gave none, and may later."""
    last: LastOutput | None = None
    """What it wrote last of the task that it held; None: it held none."""


class Stage(Message, frozen=True):
    """Load this task's inputs; it will run soon. `Run` may come before it is ready."""

    task: Whole
    epoch: Whole
    spec: TaskSpec
    checkpoint: CheckpointRecord = CheckpointRecord()
    snapshots: str = ""
    """Names the task's snapshots among all of its user's; empty: it has none."""
    resume: bool = False
    """Go on from the newest good snapshot, and say so by `Resumed`."""


class Run(Message, frozen=True):
    """Run the staged (or preempted, kept) task on this device now.

    With `spec`, the task is not staged yet: load it first, without a `Ready`.
    """

    task: Whole
    epoch: Whole
    device: DeviceSpec
    spec: TaskSpec | None = None
    checkpoint: CheckpointRecord = CheckpointRecord()
    snapshots: str = ""
    resume: bool = False
    attempt: Whole = 1
    """How often the task is started with this."""
    slot: Whole | None = None
    """Which slot of the resource it has; None: any."""
    follows: bool = False
    """It is one of several short tasks ordered together, behind the others: the ends of
    those before it may be told after it has begun, a millisecond later at most."""
    strip: Whole | None = None
    """First strip's size, from the estimates; None: start with the smallest."""


class Preempt(Message, frozen=True):
    """Yield at the next checkpoint."""

    task: Whole
    epoch: Whole
    requeue: bool = False
    """Whatever it has not saved may be lost: its owner wants it out of its place."""


class Signal(Message, frozen=True):
    """Send a signal to what the task started; SIGSTOP and SIGCONT suspend and resume it."""

    task: Whole
    epoch: Whole
    number: Whole


class Abort(Message, frozen=True):
    """Give the task up at the next checkpoint, without a result; also drops a staged one."""

    task: Whole
    epoch: Whole


class Recall(Message, frozen=True):
    """Give a task back (`Aborted`) that was ordered behind others, if it has not begun."""

    task: Whole
    epoch: Whole


class TakeSnapshot(Message, frozen=True):
    """Write a snapshot at the next checkpoint, and go on."""

    task: Whole
    epoch: Whole


class DropSnapshots(Message, frozen=True):
    """Launcher: remove the snapshots of tasks that have ended."""

    names: list[str]


class SnapshotsHeld(Message, frozen=True):
    """Launcher: there are snapshots of these tasks; some may not be needed any more."""

    names: Annotated[list[NameText], entries(MAX_NAMES)]


class AttachmentsHeld(Message, frozen=True):
    """Launcher: there are attachments of these names; some may not be needed any more."""

    names: Annotated[list[NameText], entries(MAX_NAMES)]


class DropAttachments(Message, frozen=True):
    """Launcher: remove these attachments; no task that has not ended needs them."""

    names: list[str]


class Retire(Message, frozen=True):
    """Exit; no task is held."""


class Leaving(Message, frozen=True):
    """A worker takes no further order and exits; what it was given is not begun."""


class Ready(Message, frozen=True):
    """The staged task's inputs are loaded."""

    task: Whole
    epoch: Whole
    total: Whole | None = None


class Progress(Message, frozen=True):
    """Strips done since the last report; at most one each 100 ms."""

    task: Whole
    epoch: Whole
    checkpoint: CheckpointRecord
    seconds: Seconds
    """Computing time of those strips."""
    iterations: Whole
    """Iterations in those strips."""
    strips: Whole = 1
    started: Seconds | None = None
    """When the first strip began (epoch seconds); in the first report only."""
    transfer_in: Seconds = 0.0
    cpu_seconds: Seconds = 0.0
    """Processor time of the worker since the last report, all threads."""
    at_risk: Seconds = 0.0
    """Computing since the last snapshot, or since the start, seconds."""
    complete: bool = False
    """All strips are done; what follows is saving."""
    log: Text = ""
    """Where the output of this stretch goes, and begins; in the first report only."""
    log_start: Whole = 0


class SegmentTotals(Message, frozen=True, kw_only=True):
    """Base of what a worker says of a stretch that is over, computed as it was to be."""

    seconds: Seconds = 0.0
    iterations: Whole = 0
    strips: Whole = 0
    transfer_in: Seconds = 0.0
    transfer_out: Seconds = 0.0
    set_up: Seconds = 0.0
    """Seconds from the start to the first strip, without transfers."""
    cpu_seconds: Seconds = 0.0
    """Processor time of the worker in this stretch, all threads."""
    ended: Seconds = 0.0
    """When the stretch ended (epoch seconds); 0: just now."""
    log: Text = ""
    log_start: Whole = 0
    log_end: Whole = 0


class Yielded(SegmentTotals, frozen=True):
    """The task stopped at a checkpoint; its device memory is free."""

    task: Whole
    epoch: Whole
    checkpoint: CheckpointRecord
    last_strip: Seconds = 0.0
    """When the last strip ended (epoch seconds)."""
    at_risk: Seconds = 0.0


class SnapshotTaken(Message, frozen=True):
    """A snapshot was written, or could not be."""

    task: Whole
    epoch: Whole
    checkpoint: CheckpointRecord
    """Where the task stands in it, without `extra`."""
    at: Seconds = 0.0
    """When (epoch seconds)."""
    bytes: Whole = 0
    seconds: Seconds = 0.0
    """What it took, with copying from the device."""
    error: Text = ""
    """Why there is none; the older ones are what they were."""


class Resumed(Message, frozen=True):
    """The task goes on from a snapshot; or from its start, where none is good."""

    task: Whole
    epoch: Whole
    checkpoint: CheckpointRecord
    refused: Annotated[list[Text], entries(MAX_RESOURCES)] = []
    """Snapshots that were not used, and why."""


class Parked(Message, frozen=True):
    """A task that waited is on disk, and no longer in this worker."""

    task: Whole
    epoch: Whole


class Finished(SegmentTotals, frozen=True):
    """The task is complete; `result` is what it saved."""

    task: Whole
    epoch: Whole
    result: Any = None
    exit_code: Whole | None = None
    """Of the command that it was."""
    warnings: Annotated[list[Text], entries(MAX_RESOURCES)] = []
    """What of the result is kept in another form."""


class Reports(Message, frozen=True):
    """Several tasks that were ordered together are complete, in this order."""

    reports: Annotated[list[Finished], entries(MAX_REPORTS)]


class Failed(Message, frozen=True):
    """The task ended with an error."""

    task: Whole
    epoch: Whole
    error: Text
    """One line."""
    code: NameText = "task-failed"
    """`HetError.code` of the cause; `device` and `program` may succeed elsewhere."""
    trace: Annotated[str, text_of(TRACE_BYTES)] = ""
    exit_code: Whole | None = None
    """Of the command that it was; negative: the signal that ended it."""
    last: LastOutput | None = None
    """In which phase it failed, and what it wrote last."""
    seconds: Seconds = 0.0
    """Computing time of the strips of this stretch."""
    strips: Whole = 0
    ended: Seconds = 0.0
    """When the stretch ended (epoch seconds); 0: just now."""
    log: Text = ""
    log_start: Whole = 0
    log_end: Whole = 0


class Aborted(SegmentTotals, frozen=True):
    """The task was given up, as asked; what it computed is lost, and told all the same."""

    task: Whole
    epoch: Whole


FromWorker = (
    WorkerExited
    | Leaving
    | Ready
    | Progress
    | Yielded
    | Finished
    | Reports
    | Failed
    | Aborted
    | SnapshotTaken
    | Resumed
    | Parked
    | SnapshotsHeld
    | AttachmentsHeld
)
ToWorker = (
    StartWorkers
    | KillWorker
    | Stage
    | Run
    | Preempt
    | Abort
    | Recall
    | Retire
    | TakeSnapshot
    | DropSnapshots
    | DropAttachments
    | Signal
)
