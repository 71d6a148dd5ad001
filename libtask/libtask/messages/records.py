"""The parts that messages carry: tasks, checkpoints, segments, resources."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from libtask.messages.base import (
    EXTRA_BYTES,
    MAX_ATTACHMENTS,
    MAX_GRACE_S,
    MAX_IDS,
    MAX_RESOURCES,
    Amount,
    Kind,
    Name,
    NameText,
    Record,
    TaskState,
    Text,
    TypeText,
    Whole,
    entries,
    packed_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Reason = Annotated[str, msgspec.Meta(max_length=2000)]
"""A line that is kept with a task."""


class DeviceSpec(Record, frozen=True):
    """How a worker opens a resource: everything it needs to know of it."""

    name: str
    kind: Kind
    driver: Literal["cpu", "opencl", "null"] = "cpu"
    platform: str = ""
    """OpenCL platform name; matched exactly."""
    device: str = ""
    """OpenCL device name; matched exactly."""
    index: int = 0
    """Which of several devices with the same name."""
    threads: int = 1
    """CPU threads a task may use."""
    emulated: bool = False
    binaries: dict[str, str] = {}
    """Prebuilt programs of a board: kernel package name -> .aocx/.xclbin path."""
    libraries: list[str] = []
    """OpenCL drivers that passed their tests, for a process to load; empty: all there are."""
    version: str = ""
    """Of its driver, in the driver's own words."""
    uuid: str = ""
    """Of the device, 32 hexadecimal digits, where its driver tells; the same for all its drivers."""


class TaskSpec(Record, frozen=True):
    """A task as submitted: what to run, and what the scheduler should know."""

    app: TypeText
    """Entry-point name, or `/abs/path/file.py:Class`."""
    params: dict[str, Any] = {}
    type: TypeText = ""
    """(app, size signature), e.g. `heat/4096`."""
    kinds: Annotated[list[Kind], entries(MAX_RESOURCES)] = msgspec.field(
        default_factory=lambda: ["cpu"]
    )
    """Kinds the app has an implementation for."""
    work: Amount = 1.0
    """Amount of work, in units the app chooses; same app, twice the work: about twice the time."""
    input_bytes: Whole = 0
    state_bytes: Whole = 0
    """Bytes that a migration moves."""
    priority: Whole = 0
    after: Annotated[list[Whole], entries(MAX_IDS)] = []
    """Ids of tasks that must complete first; `-k` means the k-th task before in the same submit."""
    hold: bool = False
    resources: Annotated[list[NameText], entries(MAX_RESOURCES)] = []
    """Allowed resource names; empty: any."""
    strip: Whole | None = None
    """Fixed strip size in iterations; None: sized to the target interval."""
    iterations: Whole | None = None
    """Iterations of its outer loop, where they are known before it is loaded."""
    name: NameText = ""
    cwd: Text = ""
    deadline_s: float | None = None
    """Seconds from submission to the deadline; None: it has none."""
    overrun: Literal["continue", "stop"] = "continue"
    """What becomes of it at its deadline."""
    version: Name = ""
    """A digest of the application's code: with another one, what is known against the
    application on a resource does not hold any more."""
    attachments: Annotated[list[Name], entries(MAX_ATTACHMENTS)] = []
    """Files that its user keeps by content, and that it needs to start; see `attachments`."""
    preemptible: bool = True
    """Whether it may be stopped, to go on elsewhere; else it runs where it began."""
    grace_s: Annotated[float, msgspec.Meta(ge=0, le=MAX_GRACE_S)] = 0.0
    """Seconds that it may take to leave when it is asked to, besides finishing a strip."""


class TaskEpoch(Record, frozen=True):
    """A task, and the order by which a worker has it."""

    task: Whole
    epoch: Whole


class CheckpointRecord(Record, frozen=True):
    """The small record of progress between two strips."""

    done: Whole = 0
    total: Whole | None = None
    extra: Annotated[dict[str, Any], packed_in(EXTRA_BYTES)] = {}
    """What the app itself keeps there (residuals, flags): small plain values."""


class SnapshotSettings(Record, frozen=True):
    """When workers write snapshots of their tasks."""

    mtbf_s: float = 86_400.0
    """Seconds between two failures of a worker or the machine; 0: write none."""
    minimum_s: float = 10.0
    """Computing between two snapshots at least, seconds."""
    low_memory: float = 0.05
    """Share of the machine's memory: with less available, tasks that wait in a worker
    are written to disk, and their memory given back; 0: they are kept."""


class SnapshotInfo(Record, frozen=True):
    """A snapshot that was written."""

    done: int
    """Iterations that it holds, of `total`."""
    total: int | None = None
    at: float = 0.0
    """When (epoch seconds)."""
    bytes: int = 0
    seconds: float = 0.0
    """What writing it took, with copying from the device."""


class LastOutput(Record, frozen=True):
    """What a worker wrote last before it died, or before its task failed in it."""

    task: Whole
    epoch: Whole
    reason: Reason
    """Why and in which phase it ended, with the line that tells most; one line."""
    phase: Reason = ""
    """"while compiling `blur_rows` for fpga0", "in its first strip on cpu"."""
    lines: Annotated[list[Reason], msgspec.Meta(max_length=20)] = []
    """The last lines of the task's output, without control characters."""
    computed: bool = False
    """Whether a strip of the stretch was finished."""
    log: str = ""
    """File that holds all of the output, and which part of it."""
    log_start: Whole = 0
    log_end: Whole = 0


class Segment(Record, frozen=True):
    """A stretch of a task on one resource. Times are seconds since the epoch."""

    resource: str
    start: float
    finish: float | None = None
    seconds: float = 0.0
    """Computing time of the strips, without transfers."""
    strips: int = 0
    """Strips finished; of a stretch whose worker was lost at least so many."""
    error: str = ""
    """What ended it, if that was a failure or the loss of its worker."""
    computing: float | None = None
    """When the first strip began, where the worker reported it."""
    computed: float | None = None
    """When the last strip ended."""
    transfer_in: float = 0.0
    """Seconds copying to the device before the first strip."""
    transfer_out: float = 0.0
    set_up: float = 0.0
    """Seconds from the order to run to the first strip, without transfers."""
    rule: str = ""
    """The rule of the policy that put it there."""
    stop_ordered: float | None = None
    """When the task was asked to leave, at its next checkpoint."""
    stop_rule: str = ""
    """Why."""
    joules: float | None = None
    """Energy charged to the task; None: nothing is known of the resource's power."""
    measured: bool = False
    """Whether a meter says so; else it is modelled."""
    log: str = ""
    """Log file that holds the output of this stretch."""
    log_start: int = 0
    log_end: int | None = None

    @property
    def failed_attempt(self) -> bool:
        """Whether an error ended it before its first strip was finished.

        Such a stretch is no part of a migration, no busy time and no energy of the task.
        """
        return bool(self.error) and not self.strips

    @property
    def proven(self) -> bool:
        """Whether it has computed something, or ended without an error."""
        return self.strips > 0 or (self.finish is not None and not self.error)


def counted(segments: Iterable[Segment]) -> list[Segment]:
    """Return the stretches that count as such: those that are no failed attempts."""
    return [each for each in segments if not each.failed_attempt]


def migrations(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """Return each migration of a task as the places of the two stretches that it joins.

    Failed attempts are left out, and so is a stretch of which it is not known yet
    whether it becomes one.
    """
    kept = [place for place, each in enumerate(segments) if each.proven]
    return [
        (before, after)
        for before, after in pairwise(kept)
        if segments[before].resource != segments[after].resource
    ]


class Order(Record, frozen=True):
    """Something that a user ordered of a task."""

    at: float
    """Seconds since the epoch."""
    what: str
    """`held`, `released`, `cancelled`, `amended`, `moved`, `requeued`…"""
    by: int
    """Uid."""
    text: str = ""
    """What exactly: the resource, the new priority, the reason."""


class RequeuedTask(Record, frozen=True):
    """A task that has ended, and the one that repeats it."""

    old: Whole
    new: Whole


class TaskInfo(Record, frozen=True):
    """A task as users see it (formats.md section 5)."""

    id: int
    app: str
    type: str
    state: TaskState
    owner: str
    name: str = ""
    resource: str | None = None
    progress: float = 0.0
    submitted: float = 0.0
    started: float | None = None
    finished: float | None = None
    migrations: int = 0
    checkpoint_at: float | None = None
    segments: list[Segment] = []
    reason: str | None = None
    result: Any = None
    priority: int = 0
    params: dict[str, Any] = {}
    after: list[int] = []
    kinds: list[Kind] = []
    joules: float | None = None
    """Energy of the stretches that have ended; None: not known."""
    measured: bool = False
    """Whether meters say so; else it is modelled, wholly or in part."""
    destination: str | None = None
    """Where a preempted or queued task goes next."""
    input_bytes: int = 0
    state_bytes: int = 0
    deadline: float | None = None
    """Seconds since the epoch."""
    snapshot: SnapshotInfo | None = None
    """The newest one."""
    snapshot_error: str = ""
    """Why the last one could not be written."""
    at_risk: float = 0.0
    """Computing since the snapshot, or since the start, seconds."""
    attempts: int = 0
    """Workers that it lost since it last got further."""
    last_output: LastOutput | None = None
    """Of the last worker that it lost, or in which it failed; in full records."""
    exit_code: int | None = None
    """Of a command that has ended; negative: the signal that ended it."""
    warnings: list[str] = []
    """What of its result is kept in another form."""
    trace: str = ""
    """Of the Python code in which it failed; in full records."""
    suspended: bool = False
    """Whether it was stopped where it runs, and keeps its place there."""
    expected: dict[str, float] = {}
    """Seconds that the whole task is now expected to take alone, by resource; in full
    records, for resources where its application was measured."""
    spread: dict[str, float] = {}
    """Relative standard deviation of these times."""
    submission: int = 0
    """First task of the submission that it belongs to; 0: that is not known."""
    orders: list[Order] = []
    """What users ordered of it, the newest of it; in full records."""
    requeued: int = 0
    """The task that it repeats; 0: none."""


class AvoidedPair(Record, frozen=True):
    """An application of a user that avoids a resource, as it failed there."""

    app: str
    resource: str
    owner: str
    failures: int
    """In a row, without a checkpoint between them."""
    cause: str
    """`crash`, `hang`, `killed`, `stuck`, `program` or `binary`."""
    reason: str
    """Of the last failure."""
    until: float
    """When one task may try it (epoch seconds)."""
    on_trial: bool = False
    """That time has come; `task` is the one that may try it, where there is one."""
    task: int | None = None
    version: str = ""


class DeviceInfo(Record, frozen=True):
    """A resource as users see it."""

    spec: DeviceSpec
    slots: int = 1
    state: Literal["up", "draining", "lost", "unusable"] = "up"
    """Unusable: its driver did not pass the self-test."""
    reason: str = ""
    """Why it is lost, and when it is tried again; or what its driver said."""
    rejected: list[str] = []
    """Drivers that could not be used in its place, each with what it said."""
    testing: bool = False
    """Whether its self-test is under way."""
    running: list[int] = []
    queued: int = 0
    busy_watts: float = 0.0
    idle_watts: float = 0.0
    link_bytes_per_s: float | None = None
    reconfigure_s: float = 0.0
    shared: bool = False
    """Its tasks share its speed: each of n takes n times as long as alone."""
    busy_joules: float = 0.0
    """Drawn since the daemon started while tasks ran; `idle_joules`: while none did."""
    idle_joules: float = 0.0
    starting_joules: float = 0.0
    """Drawn by stretches of tasks that have not finished a strip yet: it is not known if
    they become failed attempts, of which neither energy nor time counts as busy."""
    metered_s: float = 0.0
    """Seconds over which these were drawn."""
    busy_s: float = 0.0
    """Seconds that its slots had tasks since the start, summed up over the slots."""
    starting_s: float = 0.0
    """The same of stretches that have not finished a strip yet."""
    measured: bool = False
    """Whether a meter says so; else they are modelled."""
    avoided: list[AvoidedPair] = []
    """Applications that avoid it: the asker's own, or everybody's for rulers."""


class Prospect(Record, frozen=True):
    """What a task has to expect of a resource. Seconds; None: it cannot run there."""

    resource: str
    affinity: float = 0.0
    """To the resource, by the objective of the policy."""
    remaining_s: float | None = None
    """What is left to do there, alone; `spread_s`: its standard deviation."""
    spread_s: float | None = None
    ahead: int = 0
    """Tasks that it would wait for."""
    wait_s: float | None = None
    """Until it could start there."""
    moving_s: float = 0.0
    """To bring its state there."""
    finish_s: float | None = None
    """Until it would be done there."""
    confidence: float | None = None
    """How far to rely on that: 1 wholly, 0 a guess."""
    note: str = ""
    """Why it cannot run there."""


class Note(Record, frozen=True):
    """Something that happened to the node as a whole."""

    at: float
    """Seconds since the epoch."""
    what: str
    """`policy-set`, `drained`, `returned`…"""
    resource: str | None = None
    text: str = ""


class ConfigValue(Record, frozen=True):
    """A value of the daemon's configuration that is in force."""

    key: str
    """With dots between tables: `limits.user.alice.tasks`, `resource[0].name`."""
    value: Any
    source: str
    """`default`, `file`, `command line`, `operator` (`hetctl policy set`), or `start`: the
    file says something else by now, which the next start takes up."""
    text: str = ""
    """More about that."""


class SamplePlace(Record, frozen=True):
    """Where a sample stands in the order of all that is known."""

    type: TypeText
    resource: NameText
    grain: Whole
    """Step of a logarithmic scale that the amount of work falls on."""


class Sample(Record, frozen=True):
    """What is measured of one task type, at one amount of work, on one resource."""

    type: TypeText
    resource: NameText
    seconds: float
    """Of a whole task, with set-up and transfers."""
    work: float = 1.0
    spread: float = 0.0
    """Relative standard deviation of `seconds`."""
    count: int = 1
    """Measurements behind it."""
    setup: float = 0.0
    """The part of `seconds` before the first strip and in transfers."""
    joules: float | None = None
    """Measured energy of a whole task; None: never measured."""
