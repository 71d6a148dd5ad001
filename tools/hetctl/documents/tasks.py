"""Documents about tasks."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

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
    """A segment: a stay of a task on one resource."""

    resource: str
    emulated: bool
    start: Moment
    finish: Moment | None
    strips: Count
    computing_s: Seconds
    transfer_in_s: Seconds
    transfer_out_s: Seconds
    set_up_s: Seconds
    rule: Annotated[
        str | None, Meta(description="the policy's reason to place it there")
    ]
    stop_ordered: Annotated[
        Moment | None, Meta(description="the time of the order to stop, if any")
    ]
    stop_rule: Annotated[
        str | None, Meta(description="the reason for the order to stop")
    ]
    checkpoint_wait_s: Annotated[
        Seconds | None, Meta(description="from that order to the end of the last strip")
    ]
    joules: Seconds | None
    energy_source: Source | None
    log: str
    log_start: Count
    log_end: Count | None
    error: Annotated[str | None, Meta(description="the error that ended it, if any")]
    failed_attempt: Annotated[
        bool,
        Meta(
            description="an error ended it before its first strip: no migration, no "
            "busy time, no energy"
        ),
    ]


class LeasePart(TypedDict):
    """The lease of a task's submitter."""

    name: str
    period_s: Seconds
    left_s: Annotated[
        Seconds | None,
        Meta(description="until it is held unless renewed; null in listings"),
    ]
    fenced: Annotated[bool, Meta(description="held because the lease is over")]


class LastOutputPart(TypedDict):
    """The last output of the worker that a task lost, or failed in."""

    phase: Annotated[
        str | None, Meta(description="its activity, for example `while opening gpu0`")
    ]
    reason: str
    lines: list[str]


class JobPart(TypedDict):
    """A job; tasks that were submitted again count in place of those that they repeat."""

    name: str
    owner: str
    state: Annotated[
        Literal["waiting", "running", "completed", "failed"],
        Meta(description="failed: a task that was needed did not complete"),
    ]
    tasks: Annotated[dict[str, Count], Meta(description="number of tasks by state")]
    submitted: Moment
    finished: Moment | None
    elapsed_s: Annotated[
        Seconds,
        Meta(description="from the first submission to the last end, or to now"),
    ]
    critical_path_s: Annotated[
        Seconds,
        Meta(description="the longest chain of tasks that depend on each other"),
    ]
    slowdown: Annotated[
        float | None, Meta(description="elapsed time by critical path, once complete")
    ]


class Jobs(TypedDict):
    """Jobs: `list --jobs`."""

    format: Literal["hetctl/jobs-1"]
    jobs: list[JobPart]


class Graph(TypedDict):
    """The file with the picture of a job: `graph`."""

    format: Literal["hetctl/graph-1"]
    file: str
    job: JobPart


class OrderPart(TypedDict):
    """An order of a user about a task."""

    at: Moment
    what: Annotated[
        str, Meta(description="hold, release, cancel, snapshot, set, migrate, requeue")
    ]
    by: Annotated[str, Meta(description="the user, in the form of owners")]
    text: Annotated[str, Meta(description="details: a resource, a reason")]


class Task(TypedDict):
    """A task: `show` of one task."""

    format: Literal["hetctl/task-1"]
    id: Id
    app: str
    type: str
    state: TaskState
    owner: str
    name: str
    job: str | None
    resource: Annotated[
        str | None, Meta(description="the resource where it runs or waits")
    ]
    emulated: bool
    destination: Annotated[
        str | None, Meta(description="the resource where it moves to")
    ]
    progress: Share
    priority: int
    submitted: Moment
    started: Moment | None
    finished: Moment | None
    deadline: Moment | None
    migrations: Count
    checkpoint_age_s: Annotated[
        Seconds | None, Meta(description="since the last reported checkpoint")
    ]
    snapshot_at: Annotated[
        Moment | None, Meta(description="the time of its newest snapshot")
    ]
    snapshot_progress: Annotated[
        Share | None, Meta(description="the progress in that snapshot")
    ]
    snapshot_bytes: Count | None
    snapshot_s: Annotated[Seconds | None, Meta(description="the time of writing it")]
    snapshot_error: Annotated[
        str | None, Meta(description="the reason why the last one failed")
    ]
    work_at_risk_s: Annotated[
        Seconds, Meta(description="computing since the snapshot, or since the start")
    ]
    exit_code: Annotated[
        int | None,
        Meta(description="of an ended command; negative: the signal that ended it"),
    ]
    warnings: Annotated[
        list[str],
        Meta(description="parts of its result that are stored in another form"),
    ]
    trace: Annotated[
        str | None,
        Meta(description="the Python traceback of a failure; null in listings"),
    ]
    suspended: Annotated[
        bool, Meta(description="stopped by `hold` where it runs; it keeps its slot")
    ]
    attempts: Annotated[Count, Meta(description="workers lost since its last progress")]
    retries: Annotated[
        Count, Meta(description="times to run it again after failures of its own")
    ]
    retried: Annotated[Count, Meta(description="times that it was run again so")]
    begins: Annotated[
        Moment | None,
        Meta(description="it does not begin before, if it waits for that"),
    ]
    last_output: Annotated[
        LastOutputPart | None,
        Meta(description="null in listings: `show` has it"),
    ]
    segments: Annotated[
        list[SegmentPart], Meta(description="empty in listings: `show` has them")
    ]
    after: Annotated[list[Id], Meta(description="tasks that must complete first")]
    after_any: Annotated[
        list[Id], Meta(description="tasks that must end first, in any way")
    ]
    after_notok: Annotated[
        list[Id], Meta(description="tasks that must end first, and not all complete")
    ]
    inputs: Annotated[
        list[InputPart],
        Meta(description="tasks whose results it takes; empty in listings"),
    ]
    kinds: list[Kind]
    joules: Seconds | None
    energy_source: Source | None
    params: dict[str, Any]
    reason: str | None
    result: Any
    submission: Annotated[
        Id | None, Meta(description="the first task of its submission")
    ]
    requeued: Annotated[Id | None, Meta(description="the task that it repeats")]
    lease: LeasePart | None
    caller: Annotated[
        Id | None,
        Meta(description="the task whose code submitted it, and that it ends with"),
    ]
    part_of: Annotated[
        Id | None, Meta(description="the task whose last strips it does, as a part")
    ]
    parts: Annotated[
        list[Id], Meta(description="tasks that do some of its strips at the same time")
    ]
    orders: Annotated[
        list[OrderPart],
        Meta(
            description="orders of users about it; empty in listings: `show` has them"
        ),
    ]


class InputPart(TypedDict):
    """A task that must complete first, and whose result a task takes."""

    task: Id
    bytes: Annotated[Count, Meta(description="amount of data, if known; else 0")]


class Tasks(TypedDict):
    """Several tasks: `list`, `wait`, `submit --wait`, `show` of several tasks."""

    format: Literal["hetctl/tasks-1"]
    tasks: list[Task]
    total: Annotated[Count, Meta(description="number of matching tasks")]
    truncated: Annotated[
        bool, Meta(description="whether the listing was cut by `--limit`")
    ]


class Result(TypedDict):
    """The result of a task: `result`."""

    format: Literal["hetctl/result-1"]
    id: Id
    result: Any
    warnings: Annotated[
        list[str], Meta(description="parts of it that are stored in another form")
    ]
    saved: Annotated[str | None, Meta(description="the file with the saved result")]


class Submitted(TypedDict):
    """Submitted tasks: `submit`, `batch`."""

    format: Literal["hetctl/submitted-1"]
    ids: list[Id]
    name: Annotated[
        str | None, Meta(description="the name of an array; @name selects its tasks")
    ]


class BatchCheck(TypedDict):
    """A batch file without mistakes: `batch --check`."""

    format: Literal["hetctl/batch-check-1"]
    file: str
    tasks: Count
    resources_checked: Annotated[
        bool,
        Meta(
            description="whether a daemon answered, and checked what the tasks need of its node"
        ),
    ]


class ParkedPart(TypedDict):
    """A task that was held with its progress on disk."""

    id: Id
    path: Annotated[
        str, Meta(description="the snapshot; empty: not begun, or see `error`")
    ]
    progress: Share
    size_bytes: Count
    error: Annotated[str, Meta(description="why nothing was saved; empty: it was")]


class Control(TypedDict):
    """Tasks changed by `cancel`, `hold`, `release` or `snapshot`, without ended ones."""

    format: Literal["hetctl/control-1"]
    verb: Literal["cancel", "hold", "release", "snapshot"]
    ids: list[Id]
    parked: NotRequired[
        Annotated[list[ParkedPart], Meta(description="with `hold --park`")]
    ]


class Requeued(TypedDict):
    """Tasks submitted again: `requeue`."""

    format: Literal["hetctl/requeued-1"]
    ids: Annotated[list[Id], Meta(description="the new tasks")]
    old: Annotated[
        list[Id], Meta(description="the tasks that they repeat, in the same order")
    ]


class TasksForgotten(TypedDict):
    """Tasks removed from the history: `forget`."""

    format: Literal["hetctl/tasks-forgotten-1"]
    ids: list[Id]


class Amended(TypedDict):
    """Values changed by `set`, and the tasks; null: unchanged."""

    format: Literal["hetctl/set-1"]
    ids: list[Id]
    priority: int | None
    deadline_s: Annotated[Seconds | None, Meta(description="from now")]
    no_deadline: bool


class Migrated(TypedDict):
    """Tasks ordered to move: `migrate`."""

    format: Literal["hetctl/migrate-1"]
    ids: list[Id]
    resource: str


class EventLine(TypedDict):
    """One event of a task: a line of `events`."""

    format: Literal["hetctl/event-1"]
    at: Moment
    id: Annotated[int | None, Meta(description="null: an event of the node")]
    type: str
    what: str
    state: TaskState | None
    resource: str | None
    emulated: bool
    progress: Share
    reason: str | None
    result: Any
    by: Annotated[
        str | None, Meta(description="the user who ordered it, in the form of owners")
    ]


class LogPiece(TypedDict):
    """Output of a task on one resource: a line of `logs`."""

    format: Literal["hetctl/log-1"]
    id: Id
    resource: str
    text: str


class ProgressPart(TypedDict):
    """The progress of a task."""

    id: Id
    state: TaskState
    resource: str | None
    progress: Share
    elapsed_s: Seconds | None
    left_s: Annotated[
        Seconds | None, Meta(description="estimated from the time so far")
    ]


class Progress(TypedDict):
    """The progress of tasks: `progress`."""

    format: Literal["hetctl/progress-1"]
    tasks: list[ProgressPart]


class ProspectPart(TypedDict):
    """The expected times of a task on a resource; null: it cannot run there."""

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


class EstimateDocument(TypedDict):
    """The outlook of a task that is not submitted: `submit --dry-run`."""

    format: Literal["hetctl/estimate-1"]
    tasks: Count
    policy: str
    objective: Literal["performance", "energy", "edp"]
    prospects: list[ProspectPart]


class ExplanationPart(TypedDict):
    """The explanation of a task's place."""

    id: Id
    state: TaskState
    why: str
    policy: str | None
    rule: str | None
    objective: Literal["performance", "energy", "edp"]
    resource: str | None
    prospects: list[ProspectPart]


class Explanation(ExplanationPart):
    """The explanation of a task's place: `explain` of one task."""

    format: Literal["hetctl/explanation-1"]


class Explanations(TypedDict):
    """The explanations of tasks' places: `explain` of several tasks."""

    format: Literal["hetctl/explanations-1"]
    explanations: list[ExplanationPart]
