"""Records in messages: tasks, checkpoints, segments, resources."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from libtask.documents import (
    ALL_CORES,
    MAX_AT_ONCE,
    MAX_BYTES,
    MAX_CORES,
    MAX_RETRIES,
    MAX_TIME,
)
from libtask.messages.base import (
    EXTRA_BYTES,
    MAX_ATTACHMENTS,
    MAX_GRACE_S,
    MAX_IDS,
    MAX_INPUTS,
    MAX_LEASE_S,
    MAX_PLACE,
    MAX_PLACES,
    MAX_RESOURCES,
    TEXT_BYTES,
    Amount,
    ExpectedSeconds,
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
    from collections.abc import Callable, Iterable, Sequence

Reason = Annotated[str, msgspec.Meta(max_length=2000)]
"""A line that is stored with a task."""


class DeviceSpec(Record, frozen=True):
    """Everything that a worker needs to open a resource."""

    name: str
    kind: Kind
    driver: Literal["cpu", "opencl", "null"] = "cpu"
    platform: str = ""
    """OpenCL platform name; matched exactly."""
    device: str = ""
    """OpenCL device name; matched exactly."""
    index: int = 0
    """Index among devices with the same name."""
    threads: int = 1
    """CPU threads a task may use."""
    emulated: bool = False
    binaries: dict[str, str] = {}
    """Prebuilt programs of a board: kernel package name -> .aocx/.xclbin path."""
    libraries: list[str] = []
    """OpenCL drivers that passed their tests, for a process to load; empty: all."""
    version: str = ""
    """Version of its driver, as the driver reports it."""
    uuid: str = ""
    """UUID of the device, 32 hexadecimal digits, the same for all its drivers; empty: unknown."""
    memory_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_BYTES)] = 0
    """Its own memory; 0: it is unknown, and not counted for tasks that need some."""


class ResultInput(Record, frozen=True):
    """A task that another one comes after, and that passes data to it."""

    task: Whole
    """Its id; `-k` means the k-th task before in the same submit."""
    bytes: Whole = 0
    """Amount of the data, for the policy; 0: unknown."""
    places: Annotated[
        list[Annotated[list[str | int], entries(MAX_PLACE)]], entries(MAX_PLACES)
    ] = []
    """Places in the parameters where the worker puts its result: keys and positions."""


class InputValue(Record, frozen=True):
    """A result that a worker puts into the parameters of a task."""

    task: Whole
    """The task that completed with it."""
    result: Any = None
    name: str = ""
    """Name of the file with the result, in the owner's folder; empty: it is in `result`."""
    bytes: Whole = 0
    """Length of the file."""


class PartOf(Record, frozen=True):
    """The task of which a task does the last strips, where it starts, and all iterations."""

    task: Whole
    start: Whole
    total: Whole


class PartResult(Record, frozen=True):
    """Iterations that a part has done, and the name of its snapshots, which hold them."""

    snapshots: NameText
    start: Whole
    stop: Whole


CALL = "call"
"""The application of functions (`TaskSpec.app`): they have no checkpoints."""
COMMAND = "command"
"""The application of programs (`TaskSpec.app`): they have an environment of their own and an
exit status, and write no snapshots."""


class TaskEpoch(Record, frozen=True):
    """A task, and the epoch of its binding to a worker."""

    task: Whole
    epoch: Whole


class TaskSpec(Record, frozen=True):
    """A task as submitted: its application, parameters and scheduling options."""

    app: TypeText
    """Entry-point name, or `/abs/path/file.py:Class`."""
    params: dict[str, Any] = {}
    type: TypeText = ""
    """(app, size signature), e.g. `heat/4096`."""
    kinds: Annotated[list[Kind], entries(MAX_RESOURCES)] = msgspec.field(
        default_factory=lambda: ["cpu"]
    )
    """Kinds for which the app has an implementation."""
    work: Amount = 1.0
    """Amount of work, in units the app chooses; same app, twice the work: about twice the time."""
    input_bytes: Whole = 0
    state_bytes: Whole = 0
    """Bytes that a migration moves."""
    priority: Whole = 0
    after: Annotated[list[Whole], entries(MAX_IDS)] = []
    """Ids of tasks that must complete first; `-k` means the k-th task before in the same submit."""
    after_any: Annotated[list[Whole], entries(MAX_IDS)] = []
    """Tasks that must end first, in whatever way."""
    after_notok: Annotated[list[Whole], entries(MAX_IDS)] = []
    """Tasks that must end first, at least one of them without completing: if all complete,
    this task is not needed and is cancelled."""
    inputs: Annotated[list[ResultInput], entries(MAX_INPUTS)] = []
    """Tasks that must complete first and whose results it takes, in addition to `after`."""
    hold: bool = False
    resources: Annotated[list[NameText], entries(MAX_RESOURCES)] = []
    """Allowed resource names; empty: any."""
    seconds: Annotated[dict[str, ExpectedSeconds], packed_in(TEXT_BYTES)] = {}
    """Time that its user expects of the whole task, by resource (`gpu0`) or kind (`gpu`). What
    was measured of its type on a resource counts more."""
    strip: Whole | None = None
    """Fixed strip size in iterations; None: sized to the target interval."""
    iterations: Whole | None = None
    """Iterations of its outer loop, if known before it is loaded."""
    name: NameText = ""
    job: NameText = ""
    """Name of the user's job that it belongs to; empty: none."""
    cwd: Text = ""
    deadline_s: float | None = None
    """Seconds from submission to the deadline; None: none."""
    overrun: Literal["continue", "stop"] = "continue"
    """Action at its deadline."""
    version: Name = ""
    """A digest of the application's code: failures of one version do not count against
    another."""
    attachments: Annotated[list[Name], entries(MAX_ATTACHMENTS)] = []
    """Names of the attachments that it needs to start; see `attachments`."""
    from_origin: bool = False
    """Whether the last attachment is the interpreter, module path and environment that it
    runs with; else it runs with those of the launcher. See `origin`."""
    preemptible: bool = True
    """Whether it can be stopped to continue elsewhere."""
    grace_s: Annotated[float, msgspec.Meta(ge=0, le=MAX_GRACE_S)] = 0.0
    """Seconds that it may take to yield, in addition to the current strip."""
    cores: Annotated[int, msgspec.Meta(ge=ALL_CORES, le=MAX_CORES)] = 0
    """Processor cores that it needs; -1: all of the node; 0: none are counted for it."""
    memory_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_BYTES)] = 0
    """Host memory that it needs; 0: none is counted for it."""
    device_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_BYTES)] = 0
    """Memory that it needs of the device that runs it."""
    time_limit_s: Annotated[float, msgspec.Meta(ge=0, le=1e10)] | None = None
    """Seconds for which it may run; None: any time."""
    retries: Annotated[int, msgspec.Meta(ge=0, le=MAX_RETRIES)] = 0
    """Maximum number of times that it is run again after failures of its own."""
    begin: Annotated[float, msgspec.Meta(ge=0, le=MAX_TIME)] | None = None
    """Time before which it does not begin, in seconds since the epoch; None: at once."""
    array: NameText = ""
    """Name that the members of one array of a user share; empty: it is in none."""
    at_once: Annotated[int, msgspec.Meta(ge=0, le=MAX_AT_ONCE)] = 0
    """Maximum number of members of its array that run at once; 0: any number."""
    resumes: NameText = ""
    """Name of the snapshots of an ended task that it continues; set by a requeue only."""
    resume: bool = False
    """Whether it continues, at its first start, from a snapshot that was put into its folder
    before; see `snapshots.adopt`. Without one it begins at the start."""
    lease: NameText = ""
    """Name of the lease of its submitter, if `lease_s`; it may be empty."""
    lease_s: Annotated[float, msgspec.Meta(ge=0, le=MAX_LEASE_S)] = 0.0
    """Seconds without a renewal of its lease after which it is held; 0: it has no lease."""
    caller: TaskEpoch | None = None
    """The run of the task whose code submitted it, with which it ends unless that completes;
    None: it ends by itself."""
    parallel: bool = False
    """Whether its strips are independent, so that several resources may do them at once."""
    part: PartOf | None = None
    """Position in the task of which it is a part; set by hetd only."""

    @property
    def origin(self) -> str:
        """Name of the attachment with its origin; empty: it has none."""
        return self.attachments[-1] if self.from_origin and self.attachments else ""


def dependencies(spec: TaskSpec) -> list[int]:
    """List the tasks that must end before a task, each once."""
    if not (spec.inputs or spec.after_any or spec.after_notok):
        return spec.after
    inputs = (each.task for each in spec.inputs)
    return list(
        dict.fromkeys([*spec.after, *inputs, *spec.after_any, *spec.after_notok])
    )


def renumbered(spec: TaskSpec, new: Callable[[int], int]) -> TaskSpec:
    """Replace the ids of the tasks that a task depends on."""
    if not dependencies(spec):
        return spec
    return msgspec.structs.replace(
        spec,
        after=[new(task) for task in spec.after],
        after_any=[new(task) for task in spec.after_any],
        after_notok=[new(task) for task in spec.after_notok],
        inputs=[
            msgspec.structs.replace(each, task=new(each.task)) for each in spec.inputs
        ],
    )


class CheckpointRecord(Record, frozen=True):
    """The progress of a task between two strips."""

    done: Whole = 0
    total: Whole | None = None
    extra: Annotated[dict[str, Any], packed_in(EXTRA_BYTES)] = {}
    """The app's own small plain values (residuals, flags)."""


class SnapshotSettings(Record, frozen=True):
    """Settings for snapshots of tasks."""

    mtbf_s: float = 86_400.0
    """Mean seconds between failures of a worker or the machine; 0: write no snapshots."""
    minimum_s: float = 10.0
    """Minimum seconds of computing between two snapshots."""
    low_memory: float = 0.05
    """Fraction of the machine's memory: with less available, tasks that wait in a worker
    are written to disk and their memory is released; 0: never."""


class SnapshotInfo(Record, frozen=True):
    """A snapshot."""

    done: int
    """Finished iterations in it, of `total`."""
    total: int | None = None
    at: float = 0.0
    """Time of writing (epoch seconds)."""
    bytes: int = 0
    seconds: float = 0.0
    """Duration of writing it, including copies from the device."""
    path: str = ""
    """The file, as its worker named it."""


class ParkedTask(Record, frozen=True):
    """A task that is held, with its snapshot."""

    id: int
    path: str = ""
    """The file with the snapshot; empty: the task has not begun, or see `error`."""
    progress: float = 0.0
    """Share done in the snapshot, 0 to 1."""
    size_bytes: int = 0
    error: str = ""
    """Why nothing was saved, in one line; the task is held unless it has ended."""


class LastOutput(Record, frozen=True):
    """The last output of a worker before its death, or before its task failed."""

    task: Whole
    epoch: Whole
    reason: Reason
    """Reason and phase of the end, with the most informative line of output; one line."""
    phase: Reason = ""
    """"while compiling `blur_rows` for fpga0", "in its first strip on cpu"."""
    lines: Annotated[list[Reason], msgspec.Meta(max_length=20)] = []
    """The last lines of the task's output, without control characters."""
    computed: bool = False
    """Whether a strip of the segment was finished."""
    log: str = ""
    """Log file with the whole output, and the task's part of it."""
    log_start: Whole = 0
    log_end: Whole = 0


class Segment(Record, frozen=True):
    """An execution of a task on one resource until it yields or ends. Times are epoch seconds."""

    resource: str
    start: float
    finish: float | None = None
    seconds: float = 0.0
    """Computing time of the strips, without transfers."""
    strips: int = 0
    """Finished strips; a lower bound if the worker was lost."""
    error: str = ""
    """The failure or the loss of its worker that ended it; empty: none."""
    computing: float | None = None
    """Start of the first strip, if the worker reported it."""
    computed: float | None = None
    """End of the last strip."""
    transfer_in: float = 0.0
    """Seconds copying to the device before the first strip."""
    transfer_out: float = 0.0
    set_up: float = 0.0
    """Seconds from the command to run to the first strip, without transfers."""
    rule: str = ""
    """The policy's rule for the placement."""
    stop_ordered: float | None = None
    """Time of the command to yield at the next checkpoint."""
    stop_rule: str = ""
    """The policy's rule for that command."""
    joules: float | None = None
    """Energy charged to the task; None: the resource's power is unknown."""
    measured: bool = False
    """Whether a meter measured it; else it is modelled."""
    log: str = ""
    """Log file with the output of this segment."""
    log_start: int = 0
    log_end: int | None = None

    @property
    def failed_attempt(self) -> bool:
        """Whether an error ended it before its first strip was finished.

        Such a segment counts neither as a migration nor towards the task's busy time and
        energy.
        """
        return bool(self.error) and not self.strips

    @property
    def proven(self) -> bool:
        """Whether it finished a strip, or ended without an error."""
        return self.strips > 0 or (self.finish is not None and not self.error)


def counted(segments: Iterable[Segment]) -> list[Segment]:
    """Return the segments that are not failed attempts."""
    return [each for each in segments if not each.failed_attempt]


def migrations(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """Return each migration of a task as the indexes of its two segments.

    Failed attempts are left out, as is a segment that may still become one.
    """
    kept = [place for place, each in enumerate(segments) if each.proven]
    return [
        (before, after)
        for before, after in pairwise(kept)
        if segments[before].resource != segments[after].resource
    ]


class Order(Record, frozen=True):
    """A user's action on a task."""

    at: float
    """Seconds since the epoch."""
    what: str
    """`held`, `released`, `cancelled`, `amended`, `moved`, `requeued`…"""
    by: int
    """Uid."""
    text: str = ""
    """Details: the resource, the new priority, the reason."""


class RequeuedTask(Record, frozen=True):
    """An ended task, and the new task that repeats it."""

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
    job: str = ""
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
    after_any: list[int] = []
    after_notok: list[int] = []
    inputs: list[ResultInput] = []
    """Tasks whose results it takes; their places in `params` only in full records."""
    kinds: list[Kind] = []
    joules: float | None = None
    """Energy of the ended segments; None: unknown."""
    measured: bool = False
    """Whether meters measured it; else it is modelled, wholly or in part."""
    destination: str | None = None
    """Next resource of a preempted or queued task."""
    input_bytes: int = 0
    state_bytes: int = 0
    deadline: float | None = None
    """Seconds since the epoch."""
    snapshot: SnapshotInfo | None = None
    """The newest snapshot."""
    snapshot_error: str = ""
    """Why the last snapshot could not be written."""
    at_risk: float = 0.0
    """Seconds of computing since the snapshot, or since the start."""
    attempts: int = 0
    """Number of workers that it lost since its last progress."""
    last_output: LastOutput | None = None
    """Last output of the last worker that it lost or failed in; in full records."""
    exit_code: int | None = None
    """Exit status of an ended command; negative: the signal that ended it."""
    warnings: list[str] = []
    """Parts of its result that are stored in another form."""
    trace: str = ""
    """Python traceback of its failure; in full records."""
    suspended: bool = False
    """Whether it is suspended and keeps its resource."""
    expected: dict[str, float] = {}
    """Expected seconds of the whole task alone, by resource; in full records, for
    resources on which its application was measured."""
    spread: dict[str, float] = {}
    """Relative standard deviation of these times."""
    known_as: str = ""
    """Name of its type among those of which times and loads are known (`uid:1000:TYPE` for
    a user's own program); in full records; empty: `type`."""
    submission: int = 0
    """First task of its submission; 0: unknown."""
    orders: list[Order] = []
    """The newest actions of users on it; in full records."""
    requeued: int = 0
    """The task that it repeats; 0: none."""
    retries: int = 0
    """Maximum number of retries after failures of its own; `retried`: their number so far."""
    retried: int = 0
    begins: float | None = None
    """Time before which it does not begin (epoch seconds), while it waits for that."""
    part_of: int = 0
    """The task whose last strips it does, as a part of it; 0: none."""
    parts: list[int] = []
    """The parts that were made of it."""
    version: str = ""
    """Version of its application; in full records, as `resume` and `snapshots`."""
    resume: bool = False
    """Whether it continues from a snapshot of another task at its first start."""
    snapshots: str = ""
    """Name of the folder of its snapshots among those of its user."""
    lease: str = ""
    lease_s: float = 0.0
    """Period of its lease in seconds; 0: it has none."""
    lease_left_s: float | None = None
    """Seconds until it is held unless its lease is renewed; None: no lease, or it is over."""
    fenced: bool = False
    """Whether it is held because its lease is over."""
    caller: int = 0
    """The task whose code submitted it, with whose run it ends unless that completes; 0: none."""


class AvoidedPair(Record, frozen=True):
    """A user's application that avoids a resource after failures there."""

    app: str
    resource: str
    owner: str
    failures: int
    """Consecutive failures without a checkpoint between them."""
    cause: str
    """`crash`, `hang`, `killed`, `stuck`, `program` or `binary`."""
    reason: str
    """Reason of the last failure."""
    until: float
    """Time from which one task may try it (epoch seconds)."""
    on_trial: bool = False
    """Whether that time has passed; `task` is the one that tries it, if any."""
    task: int | None = None
    version: str = ""


class DeviceInfo(Record, frozen=True):
    """A resource as users see it."""

    spec: DeviceSpec
    slots: int = 1
    state: Literal["up", "draining", "lost", "unusable"] = "up"
    """Unusable: its driver did not pass the self-test."""
    reason: str = ""
    """Reason of the loss and time of the next attempt; or the driver's error."""
    rejected: list[str] = []
    """Drivers that failed in its place, each with its error."""
    testing: bool = False
    """Whether its self-test is running."""
    running: list[int] = []
    queued: int = 0
    busy_watts: float = 0.0
    idle_watts: float = 0.0
    link_bytes_per_s: float | None = None
    reconfigure_s: float = 0.0
    shared: bool = False
    """Whether its tasks share its speed: each of n takes n times as long as alone."""
    busy_joules: float = 0.0
    """Energy since the daemon's start while tasks ran; `idle_joules`: while none did."""
    idle_joules: float = 0.0
    starting_joules: float = 0.0
    """Energy of segments without a finished strip yet: they may become failed attempts,
    whose energy and time do not count as busy."""
    metered_s: float = 0.0
    """Seconds over which this energy was consumed."""
    busy_s: float = 0.0
    """Busy seconds since the start, summed over the slots."""
    starting_s: float = 0.0
    """The same for segments without a finished strip yet."""
    measured: bool = False
    """Whether a meter measured them; else they are modelled."""
    avoided: list[AvoidedPair] = []
    """Applications that avoid it: the caller's, or all for administrators."""


class LoadEvidence(Record, frozen=True):
    """The last statement of a source about a shared resource."""

    source: str
    """`progress` of the own tasks, or the name of a counter."""
    value: float
    """Mean of the counter; for progress: time of strips over that expected alone."""
    count: int
    """Number of statements since the start; `age_s`: seconds since the last."""
    age_s: float


class CounterState(Record, frozen=True):
    """A counter of a shared resource: whether it is read."""

    source: str
    """File or interface that it is read from."""
    shared: str
    """Shared resource; empty: it is not known which."""
    counter: str
    """Name of its figure: `bandwidth`, `offered`…; the belief takes in those that it knows."""
    state: Literal["read", "starting", "unused", "missing"]
    """`starting`: no value yet; `unused`: the policy does not use the belief."""
    reason: str = ""
    """Why it is missing."""


class SharedLoad(Record, frozen=True):
    """A part of the node that several resources use; loads are shares of its capacity."""

    name: str
    kind: str
    used_by: list[str]
    """Resources."""
    own: float
    """Load of the running tasks, as declared or learned."""
    levels: list[float]
    """Loads that other programs may offer; `probabilities`: how likely each is held."""
    probabilities: list[float]
    others: float
    """Their expected load."""
    slowdown: float
    """Expected slowdown of work that depends on it completely."""
    evidence: list[LoadEvidence] = []
    bytes_per_s: float | None = None
    """Rate of a transfer over it, or bandwidth of a memory; None: it is not known."""


class TypeLoad(Record, frozen=True):
    """A load that a task of a type is taken to offer: declared, learned, or as usual there."""

    type: str
    resource: str
    """Resource that it runs on."""
    shared: str
    demand: float
    """Load that it offers to the shared resource; 1 is its capacity."""
    bound: float
    """Share of its time alone that depends on it."""


class Prospect(Record, frozen=True):
    """A task's outlook on a resource, in seconds; None: it cannot run there."""

    resource: str
    affinity: float = 0.0
    """Affinity to the resource by the policy's objective."""
    remaining_s: float | None = None
    """Remaining time there, alone; `spread_s`: its standard deviation."""
    spread_s: float | None = None
    ahead: int = 0
    """Number of tasks before it in the queue."""
    wait_s: float | None = None
    """Time until it could start there."""
    moving_s: float = 0.0
    """Time to move its state there."""
    finish_s: float | None = None
    """Time until it would finish there."""
    confidence: float | None = None
    """Confidence in the estimate: 1 full, 0 a guess."""
    note: str = ""
    """Why it cannot run there."""


class Note(Record, frozen=True):
    """An event of the node as a whole."""

    at: float
    """Seconds since the epoch."""
    what: str
    """`policy-set`, `drained`, `returned`…"""
    resource: str | None = None
    text: str = ""


class ConfigValue(Record, frozen=True):
    """A current value of the daemon's configuration."""

    key: str
    """With dots between tables: `limits.user.alice.tasks`, `resource[0].name`."""
    value: Any
    source: str
    """`default`, `file`, `command line`, `operator` (`hetctl policy set`), or `start`: the
    file has another value by now, which the next start reads."""
    text: str = ""
    """Further information."""


class SamplePlace(Record, frozen=True):
    """Position of a sample in the order of all samples."""

    type: TypeText
    resource: NameText
    grain: Whole
    """Step of the amount of work on a logarithmic scale."""


class Sample(Record, frozen=True):
    """Measurements of one task type, at one amount of work, on one resource."""

    type: TypeText
    resource: NameText
    seconds: float
    """Seconds of a whole task, with set-up and transfers."""
    work: float = 1.0
    spread: float = 0.0
    """Relative standard deviation of `seconds`."""
    count: Whole = 1
    """Number of measurements."""
    setup: float = 0.0
    """The part of `seconds` before the first strip and in transfers."""
    joules: float | None = None
    """Measured energy of a whole task; None: never measured."""


class LearnedLoad(Record, frozen=True):
    """The load of an application on what resources share, from runs beside others."""

    app: TypeText
    resource: NameText
    """Resource that it runs on."""
    shared: NameText
    """Shared resource that it loads from there."""
    demand: float
    """Load that a task offers to it; 1 is its capacity."""
    bound: float
    """Share of the task's time alone that depends on it."""
    slowdowns: Annotated[dict[str, float], packed_in(TEXT_BYTES)] = {}
    """Application beside it, or itself -> measured factor."""
