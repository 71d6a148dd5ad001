"""Commands to launchers and workers, and their reports; each names (task, epoch)."""

from __future__ import annotations

from typing import Annotated, Any

from libtask.messages.base import (
    MAX_NAMES,
    MAX_REPORTS,
    MAX_RESOURCES,
    MAX_TASKS,
    TRACE_BYTES,
    Amount,
    Ids,
    Message,
    NameText,
    Seconds,
    Text,
    Whole,
    entries,
    text_of,
)
from libtask.messages.records import (
    CheckpointRecord,
    DeviceSpec,
    InputValue,
    LastOutput,
    PartResult,
    TaskSpec,
)


class StartWorkers(Message, frozen=True):
    """Start a worker with each name."""

    names: list[str]
    origin: str = ""
    """Attachment with their interpreter, module path and environment; empty: the launcher's."""


class KillWorker(Message, frozen=True):
    """Kill a worker that does not respond to commands."""

    name: str
    reason: str = ""


class WorkerExited(Message, frozen=True):
    """A worker ended."""

    name: NameText
    status: Whole
    """Exit status; negative: the signal that ended it."""
    reason: Text = ""
    started: bool = True
    """Whether a process was started; if not, the system may provide one later."""
    last: LastOutput | None = None
    """Last output of the task that it held; None: it held none."""
    over_memory: Text = ""
    """Memory that the task used, and stated to need, if it was ended for that."""


class Stage(Message, frozen=True):
    """Load this task's inputs; it will run soon. `Run` may arrive before `Ready` is sent."""

    task: Whole
    epoch: Whole
    spec: TaskSpec
    checkpoint: CheckpointRecord = CheckpointRecord()
    snapshots: str = ""
    """Name of the task's snapshots among those of its user; empty: it has none."""
    resume: bool = False
    """Continue from the newest valid snapshot and report `Resumed`."""
    inputs: list[InputValue] = []
    """Results of other tasks, to be put into the parameters."""


class Split(Message, frozen=True):
    """Give up the strips from this share of the iterations on; answer with `StripsGiven`."""

    task: Whole
    epoch: Whole
    limit: Amount


class Run(Message, frozen=True):
    """Run the staged or preempted task on this device now.

    With `spec`, the task is not staged yet: load it first, without sending `Ready`.
    """

    task: Whole
    epoch: Whole
    device: DeviceSpec
    spec: TaskSpec | None = None
    checkpoint: CheckpointRecord = CheckpointRecord()
    snapshots: str = ""
    resume: bool = False
    attempt: Whole = 1
    """Number of starts of the task, including this one."""
    slot: Whole | None = None
    """The slot of the resource; None: any."""
    follows: bool = False
    """The task belongs to a batch and is not its first: the ends of earlier tasks may be
    reported after it has started, at most a millisecond later."""
    strip: Whole | None = None
    """First strip's size, from the estimates; None: start with the smallest."""
    inputs: list[InputValue] = []
    limit: Whole | None = None
    """Iterations after which to yield, or for a part to finish; None: all."""
    pieces: list[PartResult] = []
    """Results of all parts of the task, to be merged at the limit; empty: not all are there."""


class Preempt(Message, frozen=True):
    """Yield at the next checkpoint."""

    task: Whole
    epoch: Whole
    requeue: bool = False
    """Unsaved progress may be lost: the task's owner wants it off its resource."""


class Signal(Message, frozen=True):
    """Send a signal to the task's processes; SIGSTOP and SIGCONT suspend and resume it."""

    task: Whole
    epoch: Whole
    number: Whole


class Abort(Message, frozen=True):
    """Abort the task at the next checkpoint, without a result; also drops a staged task."""

    task: Whole
    epoch: Whole


class Recall(Message, frozen=True):
    """Return a task of a batch (`Aborted`) if it has not started."""

    task: Whole
    epoch: Whole


class TakeSnapshot(Message, frozen=True):
    """Write a snapshot at the next checkpoint and continue."""

    task: Whole
    epoch: Whole


class DropResidents(Message, frozen=True):
    """Free what stays on a resource for the next task: another process is given it."""

    resource: str


class DropSnapshots(Message, frozen=True):
    """Launcher: remove the snapshots of tasks that have ended."""

    names: list[str]


class SnapshotsHeld(Message, frozen=True):
    """Launcher: snapshots of these tasks exist; some may be unneeded."""

    names: Annotated[list[NameText], entries(MAX_NAMES)]


class AttachmentsHeld(Message, frozen=True):
    """Launcher: attachments with these names exist; some may be unneeded."""

    names: Annotated[list[NameText], entries(MAX_NAMES)]


class ResultsHeld(Message, frozen=True):
    """Launcher: files with results of these tasks exist; some may be unneeded."""

    tasks: Annotated[list[Whole], entries(MAX_TASKS)]


class DropResults(Message, frozen=True):
    """Launcher: remove the files with results of tasks that are forgotten."""

    tasks: list[int]


class DropAttachments(Message, frozen=True):
    """Launcher: remove these attachments, which no unfinished task needs."""

    names: list[str]


class Retire(Message, frozen=True):
    """Exit; the peer holds no task."""


class Leaving(Message, frozen=True):
    """A worker accepts no further command and exits; tasks that it has not started stay so."""


class Ready(Message, frozen=True):
    """The staged task's inputs are loaded."""

    task: Whole
    epoch: Whole
    total: Whole | None = None


class Progress(Message, frozen=True):
    """Strips finished since the last report; sent at most once in 100 ms."""

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
    """Seconds of computing since the last snapshot, or since the start."""
    complete: bool = False
    """All strips are finished; the task saves its result next."""
    log: Text = ""
    """Log file with the output of this segment, and its start; in the first report only."""
    log_start: Whole = 0


class SegmentTotals(Message, frozen=True, kw_only=True):
    """Base of a worker's reports of a segment that ended without an error."""

    seconds: Seconds = 0.0
    iterations: Whole = 0
    strips: Whole = 0
    transfer_in: Seconds = 0.0
    transfer_out: Seconds = 0.0
    set_up: Seconds = 0.0
    """Seconds from the start to the first strip, without transfers."""
    compiling: Seconds = 0.0
    """Of these, the time in which Numba compiled functions; later runs need none of it."""
    cpu_seconds: Seconds = 0.0
    """Processor time of the worker in this segment, all threads."""
    ended: Seconds = 0.0
    """When the segment ended (epoch seconds); 0: on arrival of the report."""
    log: Text = ""
    log_start: Whole = 0
    log_end: Whole = 0


class StripsGiven(Message, frozen=True):
    """The running task ends before `start`: another worker may do the rest up to `stop`."""

    task: Whole
    epoch: Whole
    start: Whole
    stop: Whole
    """Equal to `start`: no strips were left to give."""
    total: Whole
    granule: Whole = 1
    """Iterations that belong together: parts begin at multiples of it."""


class Yielded(SegmentTotals, frozen=True):
    """The task stopped at a checkpoint; its device memory is free."""

    task: Whole
    epoch: Whole
    checkpoint: CheckpointRecord
    last_strip: Seconds = 0.0
    """When the last strip ended (epoch seconds)."""
    at_risk: Seconds = 0.0


class SnapshotTaken(Message, frozen=True):
    """A worker wrote a snapshot or failed to."""

    task: Whole
    epoch: Whole
    checkpoint: CheckpointRecord
    """Progress of the task in the snapshot, without `extra`."""
    at: Seconds = 0.0
    """When (epoch seconds)."""
    bytes: Whole = 0
    seconds: Seconds = 0.0
    """Duration, including copies from the device."""
    error: Text = ""
    """Reason of the failure, which leaves older snapshots unchanged; empty: none."""
    path: Text = ""
    """The file."""


class Resumed(Message, frozen=True):
    """The task continues from a snapshot, or from its start if none is valid."""

    task: Whole
    epoch: Whole
    checkpoint: CheckpointRecord
    refused: Annotated[list[Text], entries(MAX_RESOURCES)] = []
    """Invalid snapshots, each with the reason."""


class Parked(Message, frozen=True):
    """A waiting task is on disk and no longer in this worker."""

    task: Whole
    epoch: Whole


class Awaits(Message, frozen=True):
    """The code of the task waits for these tasks; none: it goes on."""

    task: Whole
    epoch: Whole
    others: Ids


class Finished(SegmentTotals, frozen=True):
    """The task completed; `result` is its saved result."""

    task: Whole
    epoch: Whole
    result: Any = None
    exit_code: Whole | None = None
    """Exit status, if the task is a command."""
    warnings: Annotated[list[Text], entries(MAX_RESOURCES)] = []
    """Parts of the result that are stored in another form."""


class Reports(Message, frozen=True):
    """Several tasks of a batch completed, in this order."""

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
    """Exit status, if the task is a command; negative: the signal that ended it."""
    last: LastOutput | None = None
    """The phase in which it failed, and its last output."""
    seconds: Seconds = 0.0
    """Computing time of the strips of this segment."""
    strips: Whole = 0
    ended: Seconds = 0.0
    """When the segment ended (epoch seconds); 0: on arrival of the report."""
    log: Text = ""
    log_start: Whole = 0
    log_end: Whole = 0


class Aborted(SegmentTotals, frozen=True):
    """The task was aborted as ordered; its progress is lost, its totals are reported."""

    task: Whole
    epoch: Whole


FromWorker = (
    WorkerExited
    | Leaving
    | Ready
    | Progress
    | StripsGiven
    | Yielded
    | Finished
    | Reports
    | Failed
    | Aborted
    | SnapshotTaken
    | Resumed
    | Parked
    | Awaits
    | SnapshotsHeld
    | AttachmentsHeld
    | ResultsHeld
)
ToWorker = (
    StartWorkers
    | KillWorker
    | Stage
    | Run
    | Preempt
    | Split
    | Abort
    | Recall
    | Retire
    | TakeSnapshot
    | DropResidents
    | DropSnapshots
    | DropAttachments
    | DropResults
    | Signal
)
