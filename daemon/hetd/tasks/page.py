"""The page of one task in the journal: its specification, state and history.

All modules that handle tasks read it; `journal` keeps the pages in memory and on disk.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hetsched.tasks import State, TaskRuntime
from libtask.messages import (
    ENDED,
    CheckpointRecord,
    LastOutput,
    Order,
    PartResult,
    ResultInput,
    Segment,
    SnapshotInfo,
    TaskInfo,
    TaskSpec,
    counted,
)

MOST_ORDERS = 50
"""Maximum number of user orders in a page."""
CONTINUABLE = frozenset({"failed", "cancelled"})
"""States of ended tasks that can be continued from a snapshot."""
MOST_SEGMENTS = 1000
"""Maximum number of segments in a page; beyond it, the oldest are merged."""
WHOLE_SEGMENTS = 32
"""Segments, the newest, whose texts are kept as workers sent them."""
SHORT_TEXTS = 256
"""Characters that the texts of an older segment may have: a page must fit into an answer."""


class HoldingProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """The process that holds a task."""

    name: str
    pid: int
    started: int = 0
    """Start time in clock ticks since the boot, as pids are reused; 0 if unknown."""
    boot: str = ""
    own: bool = False
    """Whether it is a program of the user, not a worker of a launcher."""


class TaskPage(msgspec.Struct, omit_defaults=True):
    """A task's page in the journal. All times are seconds since the epoch.

    What it has several of is in tuples: a million tasks wait, and empty lists take memory.

    Attributes:
        runtime: what the scheduler keeps of the task over a restart. While the task is live,
            this is the scheduler's own record (`TaskRecord`), so nothing has to be copied.

    """

    id: int
    owner: int
    spec: TaskSpec
    submitted: float
    runtime: TaskRuntime = msgspec.field(default_factory=TaskRuntime)
    started: float | None = None
    finished: float | None = None
    checkpoint: CheckpointRecord = CheckpointRecord()
    checkpoint_at: float | None = None
    segments: tuple[Segment, ...] = ()
    migrations: int = 0
    reason: str | None = None
    result: Any = None
    submitter: bytes = b""
    holder: HoldingProcess | None = None
    """The last process that held the task."""
    snapshot: SnapshotInfo | None = None
    snapshot_error: str = ""
    refused: int = 0
    """Number of refused snapshots: damaged, or of another task."""
    at_risk: float = 0.0
    """Computing since the snapshot, or since the start, seconds."""
    last_output: LastOutput | None = None
    """Output of the last worker that the task lost, or in which it failed."""
    slot: int | None = None
    """Current or last slot of a command on its resource."""
    warnings: tuple[str, ...] = ()
    """Parts of its result that are stored in another form."""
    trace: str = ""
    """Traceback of the failure in Python code."""
    exit_code: int | None = None
    """Exit code of a command; negative: the number of a signal."""
    submission: int = 0
    """First task of its submission; 0 for tasks stored before submissions had ids."""
    orders: tuple[Order, ...] = ()
    """The newest `MOST_ORDERS` orders of users."""
    requeued: int = 0
    """Id of the task that it repeats; 0 for none."""
    begins: float | None = None
    """Time before which it does not begin, while it waits for that."""
    limit: int | None = None
    """Iterations after which it stops, as parts of it do the rest; None: all."""
    pieces: tuple[PartResult, ...] = ()
    """Results of its completed parts."""
    fenced: bool = False
    """Whether it is held because its lease is over."""
    submit_key: str = ""
    """Idempotency key of its submit, if that is to last as long as the task."""
    submit_digest: bytes = b""
    """Digest of that submit."""

    @property
    def state(self) -> State:
        return self.runtime.state

    @property
    def shown_state(self) -> State:
        """The state for users: what waits in a worker for another task to end is queued."""
        runtime = self.runtime
        waits = runtime.not_started and runtime.state is State.RUNNING
        return State.QUEUED if waits else runtime.state

    @property
    def resource(self) -> str | None:
        """Resource that runs it or has it in its queue; of an ended task, the last that ran it.

        The scheduler's record may name the queue in which a task waited when it was cancelled.
        """
        if self.runtime.state not in ENDED:
            return self.runtime.resource
        return self.segments[-1].resource if self.segments else None

    def replace_last(self, segment: Segment) -> None:
        """Replace the last of its segments."""
        self.segments = (*self.segments[:-1], segment)

    @property
    def progress(self) -> float:
        if self.runtime.state is State.COMPLETED:
            return 1.0
        total = self.checkpoint.total
        return min(1.0, self.checkpoint.done / total) if total else 0.0

    @property
    def kept(self) -> float:
        """Progress in the newest snapshot, from 0 to 1."""
        snapshot = self.snapshot
        if snapshot is None or not snapshot.total:
            return 0.0
        return min(1.0, snapshot.done / snapshot.total)

    @property
    def snapshots_name(self) -> str:
        """Name of its snapshots; the time makes it unique if a lost store reuses ids."""
        return f"{self.id}-{int(self.submitted * 1e6):x}"

    def snapshots_kept_until(self, kept_s: float) -> float:
        """Return the time until which its snapshots are kept after its end; 0: not at all.

        Args:
            kept_s: how long such snapshots are kept, in seconds.

        """
        if self.state not in CONTINUABLE or self.snapshot is None or not kept_s:
            return 0.0
        return 0.0 if self.finished is None else self.finished + kept_s

    def fall_back(self) -> None:
        """Reset the progress to that of the newest snapshot."""
        snapshot = self.snapshot
        done, total = (snapshot.done, snapshot.total) if snapshot else (0, None)
        part = self.spec.part
        if part is not None:
            done, total = max(done, part.start), part.total
        self.checkpoint = CheckpointRecord(done, total)
        self.at_risk = 0.0

    @property
    def deadline(self) -> float | None:
        """Deadline in seconds since the epoch."""
        after = self.spec.deadline_s
        return None if after is None else self.submitted + after

    def info(self, *, detail: bool) -> TaskInfo:
        """Return the task as users see it."""
        spec, runtime = self.spec, self.runtime
        known = [each for each in counted(self.segments) if each.joules is not None]
        # thousands are listed at once: each field takes time, so those of full records follow
        info = TaskInfo(
            id=self.id,
            app=spec.app,
            type=spec.type,
            state=self.shown_state.value,
            owner=f"uid:{self.owner}",
            name=spec.name,
            job=spec.job,
            resource=self.resource,
            progress=self.progress,
            submitted=self.submitted,
            started=self.started,
            finished=self.finished,
            migrations=self.migrations,
            checkpoint_at=self.checkpoint_at,
            reason=self.reason,
            result=self.result,
            priority=spec.priority,
            after=spec.after,
            after_any=spec.after_any,
            after_notok=spec.after_notok,
            inputs=_placeless(spec.inputs) if spec.inputs else spec.inputs,
            kinds=spec.kinds,
            destination=runtime.destination,
            joules=sum(each.joules or 0.0 for each in known) if known else None,
            measured=bool(known) and all(each.measured for each in known),
            input_bytes=spec.input_bytes,
            state_bytes=spec.state_bytes,
            deadline=self.deadline,
            snapshot=self.snapshot,
            snapshot_error=self.snapshot_error,
            at_risk=self.at_risk,
            attempts=runtime.attempts,
            exit_code=self.exit_code,
            warnings=list(self.warnings),
            suspended=runtime.suspended,
            submission=self.submission,
            requeued=self.requeued,
            retries=spec.retries,
            retried=runtime.retried,
            begins=self.begins,
            part_of=spec.part.task if spec.part else 0,
            parts=list(runtime.parts),
            lease=spec.lease,
            lease_s=spec.lease_s,
            fenced=self.fenced,
            caller=spec.caller.task if spec.caller else 0,
        )
        return self._in_full(info) if detail else info

    def _in_full(self, info: TaskInfo) -> TaskInfo:
        """Add what only full records hold."""
        return msgspec.structs.replace(
            info,
            segments=list(self.segments),
            params=_legible(self.spec.params),
            inputs=self.spec.inputs,
            last_output=self.last_output,
            trace=self.trace,
            orders=list(self.orders),
            version=self.spec.version,
            resume=self.spec.resume,
            snapshots=self.snapshots_name,
        )


def _placeless(inputs: list[ResultInput]) -> list[ResultInput]:
    """Return inputs for a listing."""
    return [ResultInput(each.task, each.bytes) for each in inputs]


def merged(first: Segment, second: Segment) -> Segment:
    """Merge two segments into one on the resource of the second."""
    joules = [each.joules for each in (first, second) if each.joules is not None]
    return msgspec.structs.replace(
        second,
        start=first.start,
        seconds=first.seconds + second.seconds,
        strips=first.strips + second.strips,
        transfer_in=first.transfer_in + second.transfer_in,
        transfer_out=first.transfer_out + second.transfer_out,
        set_up=first.set_up + second.set_up,
        joules=sum(joules) if joules else None,
        measured=first.measured and second.measured,
    )


def shortened(segment: Segment) -> Segment:
    """Return a segment whose texts are short: without a long path, with reasons cut."""
    log, error, why = segment.log, segment.error, segment.stop_rule
    if len(log) + len(error) + len(why) <= SHORT_TEXTS:
        return segment
    most = SHORT_TEXTS // 3
    log = log if len(log) <= most else ""
    return msgspec.structs.replace(
        segment, log=log, error=error[:most], stop_rule=why[:most]
    )


def ended_at(page: TaskPage) -> int:
    """Return the end of a task in whole seconds since the epoch; 0 if unfinished."""
    return max(1, int(page.finished or 0)) if page.runtime.state in ENDED else 0


_encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(TaskPage).decode


def encode(page: TaskPage) -> bytes:
    """Encode a page; of the scheduler's record only the durable fields."""
    record = page.runtime
    page.runtime = record.durable()
    try:
        return _encode(page)
    finally:
        page.runtime = record


class _Remains(msgspec.Struct):
    """The fields of a page without which nothing is known of its task."""

    id: int
    owner: int
    submitted: float
    spec: Any = None
    finished: Any = None


_decode_remains = msgspec.msgpack.Decoder(_Remains).decode


def recover(encoded: bytes) -> TaskPage:
    """Decode a page; one with an invalid field is that of a failed task.

    Raises:
        msgspec.MsgspecError: it does not say which task it is of.

    """
    try:
        return decode(encoded)
    except msgspec.ValidationError as error:
        known = _decode_remains(encoded)
        page = TaskPage(known.id, known.owner, _spec_of(known), known.submitted)
        page.runtime.state = State.FAILED
        if isinstance(known.finished, float):
            page.finished = known.finished
        page.reason = f"what is stored of it is invalid: {error}"
        return page


def _spec_of(known: _Remains) -> TaskSpec:
    """Return the specification of a task; without its parameters if it is invalid."""
    try:
        return msgspec.convert(known.spec, TaskSpec)
    except msgspec.ValidationError:
        app = known.spec.get("app") if isinstance(known.spec, dict) else None
        name = app if isinstance(app, str) else "unknown"
        return TaskSpec(name, type=name)


def _legible(params: dict[str, Any]) -> dict[str, Any]:
    """Replace bytes by their length: a listing must fit into a message."""
    return {
        name: f"<{len(value)} bytes>" if isinstance(value, bytes) else value
        for name, value in params.items()
    }
