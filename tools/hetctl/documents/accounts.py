"""Documents about the past: history, report, charts, traces."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from hetctl.documents.parts import (
    Count,
    EnergyPart,
    Id,
    Moment,
    Seconds,
    Share,
)
from hetctl.documents.tasks import JobPart
from libtask.messages import TaskState


class VisitPart(TypedDict):
    """A stay of a task on a resource."""

    resource: str
    emulated: bool
    failed: Annotated[
        bool, Meta(description="an error ended it there before its first strip")
    ]


class PastTaskPart(EnergyPart):
    """An ended task with its times and energy."""

    id: Id
    app: str
    type: str
    state: TaskState
    owner: str
    name: str
    resources: list[VisitPart]
    submitted: Moment
    started: Moment | None
    finished: Moment | None
    waited_s: Seconds
    ran_s: Seconds
    failed_s: Annotated[Seconds, Meta(description="in attempts that failed")]
    migrations: Count
    reason: str | None


class History(TypedDict):
    """Ended tasks, newest first: `history`."""

    format: Literal["hetctl/history-1"]
    tasks: list[PastTaskPart]
    total: Annotated[Count, Meta(description="number of matching ended tasks")]
    truncated: Annotated[
        bool, Meta(description="whether the listing was cut by `--limit`")
    ]


class ResourceAccountPart(EnergyPart):
    """The use of a resource's time, summed over its slots."""

    name: str
    emulated: bool
    slots: Annotated[
        Count | None, Meta(description="null: the node does not have it now")
    ]
    computing_s: Seconds
    wasted_s: Annotated[
        Seconds, Meta(description="the part of computing by tasks without a result")
    ]
    transferring_s: Seconds
    set_up_s: Seconds
    checkpoint_wait_s: Annotated[
        Seconds,
        Meta(
            description="the part of computing_s between an order to stop and the checkpoint"
        ),
    ]
    other_s: Seconds
    failed_s: Annotated[
        Seconds,
        Meta(
            description="in attempts that an error ended before their first strip: "
            "neither busy nor idle"
        ),
    ]
    idle_s: Seconds | None
    busy: Share | None


class TaskAccountPart(EnergyPart):
    """The times and energy of a task."""

    id: Id
    app: str
    type: str
    state: TaskState
    waited_s: Seconds
    ran_s: Seconds
    failed_s: Annotated[Seconds, Meta(description="in attempts that failed")]
    migrations: Count


Limit = Annotated[Count | None, Meta(description="null: none")]


class UsagePart(TypedDict):
    """The storage of a user in hetd, and the limits."""

    user: Count
    unended_tasks: Count
    unended_tasks_limit: Limit
    unended_bytes: Annotated[
        Count, Meta(description="records of tasks that have not ended, with parameters")
    ]
    unended_limit: Limit
    history_bytes: Annotated[
        Count, Meta(description="records of tasks that have ended, with results")
    ]
    answer_bytes: Annotated[
        Count, Meta(description="answers to requests, kept for a day")
    ]
    stored_limit: Annotated[
        Limit,
        Meta(
            description="of all bytes above; beyond it the oldest ended tasks are removed"
        ),
    ]
    snapshot_bytes: Annotated[
        Count,
        Meta(description="newest snapshots of unfinished tasks, in the user's folder"),
    ]
    log_bytes: Annotated[
        Count, Meta(description="output of unfinished tasks, in the user's folder")
    ]
    priority_limit: Limit


class Report(EnergyPart):
    """The use of time and energy: `report`."""

    format: Literal["hetctl/report-1"]
    begin: Moment
    end: Moment
    span_s: Seconds
    makespan_s: Annotated[Seconds | None, Meta(description="null: some have not ended")]
    lower_bound_s: Annotated[
        Seconds | None,
        Meta(
            description="no schedule of these tasks is shorter, if the expected times are "
            "right; null: not known, or the tasks did beat it"
        ),
    ]
    resources: list[ResourceAccountPart]
    tasks: list[TaskAccountPart]
    usage: Annotated[UsagePart | None, Meta(description="null without --mine")]
    jobs: Annotated[list[JobPart], Meta(description="jobs of these tasks")]


class Gantt(TypedDict):
    """The file of a chart: `gantt`."""

    format: Literal["hetctl/gantt-1"]
    file: str
    tasks: list[Id]


class TraceEventPart(TypedDict):
    """An event of the Trace Event Format; times in microseconds."""

    ph: Literal["M", "X", "s", "f", "C", "i"]
    name: str
    pid: int
    tid: NotRequired[int]
    ts: NotRequired[float]
    dur: NotRequired[Seconds]
    cat: NotRequired[str]
    id: NotRequired[int]
    bp: NotRequired[str]
    s: NotRequired[str]
    args: NotRequired[dict[str, Any]]


class Trace(TypedDict):
    """Past tasks for Perfetto: `trace --format chrome`."""

    format: Literal["hetctl/trace-1"]
    displayTimeUnit: Literal["ms"]
    otherData: Annotated[
        dict[str, Any], Meta(description="`origin`: the time of `ts` 0")
    ]
    traceEvents: list[TraceEventPart]


class ScenarioResourcePart(TypedDict):
    """A resource of a scenario."""

    name: str
    kind: str
    slots: Annotated[int, Meta(ge=1)]
    queue_limit: Count | None
    busy_watts: Seconds
    idle_watts: Seconds
    link_bytes_per_s: float | None
    reconfigure_s: Seconds
    sharing: Literal["processor"] | None
    emulated: bool


class ScenarioTypePart(TypedDict):
    """A task type of a scenario."""

    name: str
    seconds: dict[str, Seconds | None]
    spread: NotRequired[dict[str, Seconds]]
    strips: Annotated[int, Meta(ge=1)]
    input_bytes: Count
    state_bytes: Count
    migration_s: Seconds
    overrun: Literal["continue", "stop_at_deadline"]


class ScenarioTaskPart(TypedDict):
    """A task of a scenario."""

    id: str
    type: str
    arrival: Seconds
    deadline: float | None
    priority: int
    after: list[str]
    actual_seconds: NotRequired[dict[str, Seconds]]
    set_up_s: NotRequired[Seconds]


class ScenarioCrashPart(TypedDict):
    """A type whose tasks crash on a resource before their first strip there."""

    type: str
    resource: str
    after: NotRequired[Seconds]
    start: NotRequired[Seconds]
    finish: NotRequired[Seconds | None]


class Scenario(TypedDict):
    """Past tasks for `hetsim run`: `trace`."""

    format: Literal["hetsim/scenario-1"]
    policy: str
    policy_parameters: dict[str, Any]
    measured_makespan: Seconds | None
    report_s: Seconds
    resources: list[ScenarioResourcePart]
    types: list[ScenarioTypePart]
    tasks: list[ScenarioTaskPart]
    crashes: NotRequired[list[ScenarioCrashPart]]
