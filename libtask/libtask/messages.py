"""Messages: everything that crosses the socket, as frozen typed structures.

One MessagePack map in one ZeroMQ frame, `{"t": type, ...fields}`. `decode` is the
only way in: nothing else ever sees a message that has not been validated.
Clients, launchers, workers and hetd all import this file; it imports none of them.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgpack
import msgspec

from libtask.errors import InputError

PROTOCOL = 1
MAX_FRAME = 1 << 20
"""Bytes in one message; larger data travels in files, the message holds the path."""

Kind = Literal["cpu", "gpu", "fpga"]
TaskState = Literal[
    "held",
    "waiting",
    "queued",
    "running",
    "preempted",
    "completed",
    "failed",
    "cancelled",
    "dropped",
]
ENDED: frozenset[str] = frozenset({"completed", "failed", "cancelled", "dropped"})


class Message(msgspec.Struct, frozen=True, tag_field="t", tag=str, omit_defaults=True):
    """Base of all messages. `tag=str` names each by its class."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of the parts that messages carry."""


# ---------------------------------------------------------------- parts


class DeviceSpec(Record):
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


class TaskSpec(Record):
    """A task as submitted: what to run, and what the scheduler should know."""

    app: str
    """Entry-point name, or `/abs/path/file.py:Class`."""
    params: dict[str, Any] = {}
    type: str = ""
    """(app, size signature), e.g. `heat/4096`."""
    kinds: list[Kind] = msgspec.field(default_factory=lambda: ["cpu"])
    """Kinds the app has an implementation for."""
    work: float = 1.0
    """Amount of work, in units the app chooses; same app, twice the work: about twice the time."""
    input_bytes: int = 0
    state_bytes: int = 0
    """Bytes that a migration moves."""
    priority: int = 0
    after: list[int] = []
    """Ids of tasks that must complete first; `-k` means the k-th task before in the same submit."""
    hold: bool = False
    resources: list[str] = []
    """Allowed resource names; empty: any."""
    strip: int | None = None
    """Fixed strip size in iterations; None: sized to the target interval."""
    name: str = ""
    cwd: str = ""


class CheckpointRecord(Record):
    """The small record of progress between two strips."""

    done: int = 0
    total: int | None = None
    extra: dict[str, Any] = {}
    """What the app itself keeps there (residuals, flags): small plain values."""


class Segment(Record):
    """A stretch of a task on one resource. Times are seconds since the epoch."""

    resource: str
    start: float
    finish: float | None = None
    seconds: float = 0.0
    """Computing time of the strips, without transfers."""
    strips: int = 0
    computing: float | None = None
    """When the first strip began, where the worker reported it."""
    computed: float | None = None
    """When the last strip ended."""
    transfer_in: float = 0.0
    """Seconds copying to the device before the first strip."""
    transfer_out: float = 0.0
    log: str = ""
    """Log file that holds the output of this stretch."""
    log_start: int = 0
    log_end: int | None = None


class TaskInfo(Record):
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
    destination: str | None = None
    """Where a preempted or queued task goes next."""


class DeviceInfo(Record):
    """A resource as users see it."""

    spec: DeviceSpec
    slots: int = 1
    state: Literal["up", "draining", "lost"] = "up"
    running: list[int] = []
    queued: int = 0
    busy_watts: float = 0.0
    idle_watts: float = 0.0
    link_bytes_per_s: float | None = None
    reconfigure_s: float = 0.0


class Sample(Record):
    """A characterisation measurement of one task type on one resource."""

    type: str
    resource: str
    seconds: float
    work: float = 1.0


# ---------------------------------------------------------------- hello


class Hello(Message):
    """First message of every peer."""

    role: Literal["client", "launcher", "worker"]
    protocol: int = PROTOCOL
    pid: int = 0
    worker: str = ""
    """Worker's name, given by its launcher (`libtask.main`: by itself)."""
    task: int | None = None
    """Worker: the task it still holds, after a reconnect."""
    epoch: int = 0
    own: bool = False
    """Worker started by the user's own program: it runs just the task it submits."""


class Welcome(Message):
    """hetd's answer to Hello."""

    protocol: int
    version: str
    pid: int
    launcher: bool
    """Whether the caller's launcher is connected."""
    interval_ns: int = 50_000_000
    """Target interval between checkpoints."""


# ---------------------------------------------------------------- client -> hetd


class Request(Message, frozen=True):
    """Base of what a client asks; the reply carries the same `request`."""

    request: int


class Submit(Request, frozen=True):
    tasks: list[TaskSpec]
    key: str = ""
    """Idempotency key: the same key again gives the same ids."""
    worker: str = ""
    """Name of the submitting worker that will run the single task itself."""


class ListTasks(Request, frozen=True):
    ids: list[int] | None = None
    """None: all that the caller may see."""
    mine: bool = False
    limit: int = 1000
    before: int | None = None
    """Page: only ids below this one. Newest first."""
    detail: bool = False
    """With segments and parameters."""


class Control(Request, frozen=True):
    verb: Literal["cancel", "hold", "release"]
    ids: list[int]


class Migrate(Request, frozen=True):
    id: int
    resource: str


class Watch(Request, frozen=True):
    """Send `TaskChanged` for these tasks (None: all visible) from now on."""

    ids: list[int] | None = None
    progress: bool = True


class Devices(Request, frozen=True):
    pass


class Policies(Request, frozen=True):
    set: str | None = None
    parameters: dict[str, Any] = {}


class Learn(Request, frozen=True):
    """Store characterisation samples."""

    samples: list[Sample]


class Models(Request, frozen=True):
    pass


class Occupy(Request, frozen=True):
    """Keep a resource free of tasks (drain) or give it back."""

    resource: str
    drain: bool


class Stop(Request, frozen=True):
    pass


# ---------------------------------------------------------------- hetd -> client


class Submitted(Request, frozen=True):
    ids: list[int]


class TaskList(Request, frozen=True):
    tasks: list[TaskInfo]
    total: int = 0


class Done(Request, frozen=True):
    ids: list[int] = []


class DeviceList(Request, frozen=True):
    devices: list[DeviceInfo]


class PolicyInfo(Request, frozen=True):
    name: str
    parameters: dict[str, Any]
    available: dict[str, str]
    """Policy name -> one-line description."""


class ModelList(Request, frozen=True):
    samples: list[Sample]


class Error(Request, frozen=True):
    code: str
    text: str


class TaskChanged(Message):
    """Pushed to watchers: a task entered another state, or made progress."""

    id: int
    state: TaskState
    at: float
    resource: str | None = None
    progress: float = 0.0
    reason: str | None = None
    result: Any = None
    what: str = ""
    """The event's name: submitted, placed, started, progress, yielded, finished…"""
    type: str = ""


# ---------------------------------------------------------------- hetd <-> launcher


class StartWorkers(Message):
    names: list[str]


class KillWorker(Message):
    name: str
    reason: str = ""


class WorkerExited(Message):
    name: str
    status: int
    """Exit status; negative: the signal that ended it."""
    reason: str = ""


# ---------------------------------------------------------------- hetd -> worker


class Stage(Message):
    """Load this task's inputs; it will run soon. `Run` may come before it is ready."""

    task: int
    epoch: int
    spec: TaskSpec
    checkpoint: CheckpointRecord = CheckpointRecord()


class Run(Message):
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


class Preempt(Message):
    """Yield at the next checkpoint."""

    task: int
    epoch: int


class Abort(Message):
    """Give the task up at the next checkpoint, without a result; also drops a staged one."""

    task: int
    epoch: int


class Retire(Message):
    """Exit; no task is held."""


# ---------------------------------------------------------------- worker -> hetd


class Ready(Message):
    """The staged task's inputs are loaded."""

    task: int
    epoch: int
    total: int | None = None


class Progress(Message):
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


class Yielded(Message):
    """The task stopped at a checkpoint; its device memory is free."""

    task: int
    epoch: int
    checkpoint: CheckpointRecord
    seconds: float = 0.0
    iterations: int = 0
    strips: int = 0
    transfer_in: float = 0.0
    transfer_out: float = 0.0
    last_strip: float = 0.0
    """When the last strip ended (epoch seconds)."""
    log: str = ""
    log_start: int = 0
    log_end: int = 0


class Finished(Message):
    task: int
    epoch: int
    result: Any = None
    seconds: float = 0.0
    iterations: int = 0
    strips: int = 0
    transfer_in: float = 0.0
    transfer_out: float = 0.0
    log: str = ""
    log_start: int = 0
    log_end: int = 0


class Failed(Message):
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


class Aborted(Message):
    task: int
    epoch: int


ToDaemon = (
    Hello
    | Submit
    | ListTasks
    | Control
    | Migrate
    | Watch
    | Devices
    | Policies
    | Learn
    | Models
    | Occupy
    | Stop
    | WorkerExited
    | Ready
    | Progress
    | Yielded
    | Finished
    | Failed
    | Aborted
)
FromDaemon = (
    Welcome
    | Submitted
    | TaskList
    | Done
    | DeviceList
    | PolicyInfo
    | ModelList
    | Error
    | TaskChanged
    | StartWorkers
    | KillWorker
    | Stage
    | Run
    | Preempt
    | Abort
    | Retire
)


def encode(message: Message) -> bytes:
    """Encode a message into one frame.

    Raises:
        InputError: the frame would exceed `MAX_FRAME`.

    """
    frame = msgspec.msgpack.encode(message)
    if len(frame) > MAX_FRAME:
        kind = type(message).__name__
        raise InputError(
            f"{kind} of {len(frame)} bytes exceeds the limit of {MAX_FRAME}"
        )
    return frame


_TO_DAEMON = {kind.__name__: kind for kind in get_args(ToDaemon)}
_FROM_DAEMON = {kind.__name__: kind for kind in get_args(FromDaemon)}


def _decode(frame: bytes, kinds: dict[str, Any]) -> Any:
    try:
        plain = msgpack.unpackb(
            frame,
            max_str_len=MAX_FRAME,
            max_bin_len=MAX_FRAME,
            max_array_len=65_536,
            max_map_len=65_536,
        )
        # Converting to the one class is 20 times faster than to the union of all.
        return msgspec.convert(plain, kinds[plain["t"]])
    except (
        ValueError,
        TypeError,
        KeyError,
        RecursionError,
        msgspec.MsgspecError,
    ) as error:
        detail = f"{type(error).__name__}: {error}"
        raise InputError(f"malformed message: {detail}") from error


def decode_to_daemon(frame: bytes) -> ToDaemon:
    """Decode and validate what a peer sent to hetd.

    Raises:
        InputError: not a well-formed, known message.

    """
    message: ToDaemon = _decode(frame, _TO_DAEMON)
    return message


def decode_from_daemon(frame: bytes) -> FromDaemon:
    """Decode and validate what hetd sent.

    Raises:
        InputError: not a well-formed, known message.

    """
    message: FromDaemon = _decode(frame, _FROM_DAEMON)
    return message
