"""Documents that tell of tasks."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from msgspec import Meta

from hetctl.documents.parts import (
    Count,
    Id,
    Moment,
    Seconds,
    Share,
    Source,
)
from libtask.messages import Kind, TaskState


class SegmentPart(TypedDict):
    """A stretch of a task on one resource."""

    resource: str
    emulated: bool
    start: Moment
    finish: Moment | None
    strips: Count
    computing_s: Seconds
    transfer_in_s: Seconds
    transfer_out_s: Seconds
    set_up_s: Seconds
    rule: Annotated[str | None, Meta(description="why the policy put it there")]
    stop_ordered: Annotated[
        Moment | None, Meta(description="when it was asked to leave, if it was")
    ]
    stop_rule: Annotated[str | None, Meta(description="why it was asked to leave")]
    checkpoint_wait_s: Annotated[
        Seconds | None, Meta(description="from that order to the last strip's end")
    ]
    joules: Seconds | None
    energy_source: Source | None
    log: str
    log_start: Count
    log_end: Count | None
    error: Annotated[
        str | None, Meta(description="what ended it, if that was an error")
    ]
    failed_attempt: Annotated[
        bool,
        Meta(
            description="an error ended it before its first strip: no migration, no "
            "busy time, no energy"
        ),
    ]


class LastOutputPart(TypedDict):
    """What the last worker that a task lost, or failed in, wrote last."""

    phase: Annotated[
        str | None, Meta(description="what it did: `while opening gpu0`, for example")
    ]
    reason: str
    lines: list[str]


class OrderPart(TypedDict):
    """Something that a user ordered of a task."""

    at: Moment
    what: Annotated[
        str, Meta(description="hold, release, cancel, snapshot, set, migrate, requeue")
    ]
    by: Annotated[str, Meta(description="who, as owners are named")]
    text: Annotated[str, Meta(description="what exactly: a resource, a reason")]


class Task(TypedDict):
    """A task: `show` of one."""

    format: Literal["hetctl/task-1"]
    id: Id
    app: str
    type: str
    state: TaskState
    owner: str
    name: str
    resource: Annotated[str | None, Meta(description="where it runs or waits")]
    emulated: bool
    destination: Annotated[str | None, Meta(description="where it goes next")]
    progress: Share
    priority: int
    submitted: Moment
    started: Moment | None
    finished: Moment | None
    deadline: Moment | None
    migrations: Count
    checkpoint_age_s: Annotated[
        Seconds | None, Meta(description="since the last checkpoint that was told")
    ]
    snapshot_at: Annotated[
        Moment | None, Meta(description="when its newest snapshot was written")
    ]
    snapshot_progress: Annotated[
        Share | None, Meta(description="the share done that it holds")
    ]
    snapshot_bytes: Count | None
    snapshot_s: Annotated[Seconds | None, Meta(description="what writing it took")]
    snapshot_error: Annotated[
        str | None, Meta(description="why the last one could not be written")
    ]
    work_at_risk_s: Annotated[
        Seconds, Meta(description="computing since the snapshot, or since the start")
    ]
    exit_code: Annotated[
        int | None,
        Meta(description="of a command that has ended; negative: a signal ended it"),
    ]
    warnings: Annotated[
        list[str], Meta(description="what of its result is kept in another form")
    ]
    trace: Annotated[
        str | None,
        Meta(description="where in its Python code it failed; null in listings"),
    ]
    suspended: Annotated[
        bool, Meta(description="stopped by `hold` where it runs, and keeps its place")
    ]
    attempts: Annotated[
        Count, Meta(description="workers that it lost since it last got further")
    ]
    last_output: Annotated[
        LastOutputPart | None,
        Meta(description="null in listings: `show` has it; it stays with the task"),
    ]
    segments: Annotated[
        list[SegmentPart], Meta(description="empty in listings: `show` has them")
    ]
    after: list[Id]
    kinds: list[Kind]
    joules: Seconds | None
    energy_source: Source | None
    params: dict[str, Any]
    reason: str | None
    result: Any
    submission: Annotated[
        Id | None, Meta(description="first task of the submission that it belongs to")
    ]
    requeued: Annotated[Id | None, Meta(description="the task that it repeats")]
    orders: Annotated[
        list[OrderPart],
        Meta(
            description="what users ordered of it; empty in listings: `show` has them"
        ),
    ]


class Tasks(TypedDict):
    """Several tasks: `list`, `wait`, `submit --wait`, `show` of several."""

    format: Literal["hetctl/tasks-1"]
    tasks: list[Task]
    total: Annotated[Count, Meta(description="tasks that there are of what was asked")]
    truncated: Annotated[
        bool, Meta(description="whether fewer are listed: `--limit` lists more")
    ]


class Result(TypedDict):
    """What a task has computed: `result`."""

    format: Literal["hetctl/result-1"]
    id: Id
    result: Any
    warnings: Annotated[
        list[str], Meta(description="what of it is kept in another form")
    ]
    saved: Annotated[str | None, Meta(description="the file that it was written to")]


class Submitted(TypedDict):
    """Tasks were submitted: `submit`, `batch`."""

    format: Literal["hetctl/submitted-1"]
    ids: list[Id]
    name: Annotated[
        str | None, Meta(description="what an array's tasks are selected by, as @name")
    ]


class BatchCheck(TypedDict):
    """A batch file is right: `batch --check`."""

    format: Literal["hetctl/batch-check-1"]
    file: str
    tasks: Count
    resources_checked: Annotated[
        bool, Meta(description="whether a daemon answered to ask for its resources")
    ]


class Control(TypedDict):
    """What `cancel`, `hold`, `release` and `snapshot` did; without those that had ended."""

    format: Literal["hetctl/control-1"]
    verb: Literal["cancel", "hold", "release", "snapshot"]
    ids: list[Id]


class Requeued(TypedDict):
    """Tasks were submitted again: `requeue`."""

    format: Literal["hetctl/requeued-1"]
    ids: Annotated[list[Id], Meta(description="the new tasks")]
    old: Annotated[list[Id], Meta(description="those that they repeat, in this order")]


class TasksForgotten(TypedDict):
    """Tasks were removed from history: `forget`."""

    format: Literal["hetctl/tasks-forgotten-1"]
    ids: list[Id]


class Amended(TypedDict):
    """What `set` changed, and for which tasks; null: left as it was."""

    format: Literal["hetctl/set-1"]
    ids: list[Id]
    priority: int | None
    deadline_s: Annotated[Seconds | None, Meta(description="from now")]
    no_deadline: bool


class Migrated(TypedDict):
    """What `migrate` ordered."""

    format: Literal["hetctl/migrate-1"]
    ids: list[Id]
    resource: str


class EventLine(TypedDict):
    """One change of a task: a line of `events`."""

    format: Literal["hetctl/event-1"]
    at: Moment
    id: Annotated[int | None, Meta(description="null: of the whole node")]
    type: str
    what: str
    state: TaskState | None
    resource: str | None
    emulated: bool
    progress: Share
    reason: str | None
    result: Any
    by: Annotated[str | None, Meta(description="who ordered it, as owners are named")]


class LogPiece(TypedDict):
    """What a task printed on one resource: a line of `logs`."""

    format: Literal["hetctl/log-1"]
    id: Id
    resource: str
    text: str


class ProgressPart(TypedDict):
    """How far a task is."""

    id: Id
    state: TaskState
    resource: str | None
    progress: Share
    elapsed_s: Seconds | None
    left_s: Annotated[
        Seconds | None, Meta(description="estimated from the time so far")
    ]


class Progress(TypedDict):
    """How far tasks are: `progress`."""

    format: Literal["hetctl/progress-1"]
    tasks: list[ProgressPart]


class ProspectPart(TypedDict):
    """What a task has to expect of a resource; null: it cannot run there."""

    resource: str
    emulated: bool
    affinity: Share
    remaining_s: Seconds | None
    spread_s: Seconds | None
    ahead: Count
    wait_s: Seconds | None
    moving_s: Seconds
    finish_s: Seconds | None
    confidence: Share | None
    note: str | None


class ExplanationPart(TypedDict):
    """Why a task is where it is."""

    id: Id
    state: TaskState
    why: str
    policy: str | None
    rule: str | None
    objective: Literal["performance", "energy", "edp"]
    resource: str | None
    prospects: list[ProspectPart]


class Explanation(ExplanationPart):
    """Why a task is where it is: `explain` of one."""

    format: Literal["hetctl/explanation-1"]


class Explanations(TypedDict):
    """Why tasks are where they are: `explain` of several."""

    format: Literal["hetctl/explanations-1"]
    explanations: list[ExplanationPart]
