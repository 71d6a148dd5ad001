"""TaskPage: what is known of one task, as its page in the journal holds it.

Read by all that has to do with tasks; `journal` keeps the pages, on disk too.
"""

from __future__ import annotations

from typing import Any

import msgspec

from libtask.messages import (
    ENDED,
    CheckpointRecord,
    LastOutput,
    Order,
    Segment,
    SnapshotInfo,
    TaskInfo,
    TaskSpec,
    TaskState,
    counted,
)

MOST_ORDERS = 50
"""Orders of users that a page has."""
MOST_SEGMENTS = 1000
"""Stretches that a page has; of a task that moves more often the oldest are one."""


class HoldingProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """The process that holds a task."""

    name: str
    pid: int
    started: int = 0
    """When, in clock ticks since the boot; 0: not known. Pids are used again."""
    boot: str = ""
    own: bool = False
    """Whether it is a program of the user's own, and no launcher's worker."""


class TaskPage(msgspec.Struct, omit_defaults=True):
    """A task's page in the journal. All times are seconds since the epoch."""

    id: int
    owner: int
    spec: TaskSpec
    submitted: float
    state: TaskState = "queued"
    resource: str | None = None
    epoch: int = 0
    started: float | None = None
    finished: float | None = None
    checkpoint: CheckpointRecord = CheckpointRecord()
    checkpoint_at: float | None = None
    segments: list[Segment] = []
    migrations: int = 0
    reason: str | None = None
    result: Any = None
    destination: str | None = None
    submitter: bytes = b""
    holder: HoldingProcess | None = None
    """The last process that it was given to."""
    snapshot: SnapshotInfo | None = None
    snapshot_error: str = ""
    refused: int = 0
    """Snapshots of it that were bad, or of something else."""
    at_risk: float = 0.0
    """Computing since the snapshot, or since the start, seconds."""
    attempts: int = 0
    last_output: LastOutput | None = None
    """Of the last worker that it lost, or in which it failed."""
    failures: dict[str, str] = {}
    """Resource -> why it failed there; `excluded`: where it is not to run again."""
    excluded: frozenset[str] = frozenset()
    in_worker: bool = False
    """It waits in a worker that holds its state."""
    pinned: str | None = None
    """The only resource that its owner wants it on."""
    holding: bool = False
    cancelling: str | None = None
    """Its owner wants it held, or gone, and it still runs."""
    suspended: bool = False
    """It is stopped where it runs; `requeuing`: it is to leave, and to begin anew."""
    requeuing: bool = False
    slot: int | None = None
    """Which slot of its resource a command has, or had last."""
    warnings: list[str] = []
    """What of its result is kept in another form."""
    trace: str = ""
    """Of the Python code in which it failed."""
    exit_code: int | None = None
    """Of a command that has ended; negative: the signal that ended it."""
    submission: int = 0
    """First task of the submission that it belongs to; 0: it is older than these."""
    orders: list[Order] = []
    """What users ordered of it; the newest `MOST_ORDERS`."""
    requeued: int = 0
    """The task that it repeats; 0: none."""

    @property
    def progress(self) -> float:
        if self.state == "completed":
            return 1.0
        total = self.checkpoint.total
        return min(1.0, self.checkpoint.done / total) if total else 0.0

    @property
    def kept(self) -> float:
        """The share done that the newest snapshot holds."""
        snapshot = self.snapshot
        if snapshot is None or not snapshot.total:
            return 0.0
        return min(1.0, snapshot.done / snapshot.total)

    @property
    def snapshots_name(self) -> str:
        """Name its snapshots; with the time, as a lost store gives ids once more."""
        return f"{self.id}-{int(self.submitted * 1e6):x}"

    def fall_back(self) -> None:
        """Take note that all is lost but what a snapshot holds."""
        snapshot = self.snapshot
        done, total = (snapshot.done, snapshot.total) if snapshot else (0, None)
        self.checkpoint = CheckpointRecord(done, total)
        self.at_risk = 0.0

    @property
    def deadline(self) -> float | None:
        """When it is due, in seconds since the epoch."""
        after = self.spec.deadline_s
        return None if after is None else self.submitted + after

    def info(self, *, detail: bool) -> TaskInfo:
        """Return the task as users see it."""
        known = [each for each in self.segments if each.joules is not None]
        return TaskInfo(
            id=self.id,
            app=self.spec.app,
            type=self.spec.type,
            state=self.state,
            owner=f"uid:{self.owner}",
            name=self.spec.name,
            resource=self.resource,
            progress=self.progress,
            submitted=self.submitted,
            started=self.started,
            finished=self.finished,
            migrations=self.migrations,
            checkpoint_at=self.checkpoint_at,
            segments=self.segments if detail else [],
            reason=self.reason,
            result=self.result,
            priority=self.spec.priority,
            params=_legible(self.spec.params) if detail else {},
            after=self.spec.after,
            kinds=self.spec.kinds,
            destination=self.destination,
            joules=sum(each.joules or 0.0 for each in known) if known else None,
            measured=all(each.measured for each in counted(self.segments)),
            input_bytes=self.spec.input_bytes,
            state_bytes=self.spec.state_bytes,
            deadline=self.deadline,
            snapshot=self.snapshot,
            snapshot_error=self.snapshot_error,
            at_risk=self.at_risk,
            attempts=self.attempts,
            last_output=self.last_output if detail else None,
            exit_code=self.exit_code,
            warnings=self.warnings,
            trace=self.trace if detail else "",
            suspended=self.suspended,
            submission=self.submission,
            orders=self.orders if detail else [],
            requeued=self.requeued,
        )


def merged(first: Segment, second: Segment) -> Segment:
    """Make one stretch of two: where the later one was, for as long as both."""
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


def ended_at(page: TaskPage) -> int:
    """Tell when a task ended, in whole seconds since the epoch; 0: it has not."""
    return max(1, int(page.finished or 0)) if page.state in ENDED else 0


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(TaskPage).decode


def _legible(params: dict[str, Any]) -> dict[str, Any]:
    """Leave out what only the application can read: a listing must fit into a message."""
    return {
        name: f"<{len(value)} bytes>" if isinstance(value, bytes) else value
        for name, value in params.items()
    }
