"""Documents about a pool: `pool status`, its nodes, its tasks, its plans."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from hetctl.documents.node import DevicePart
from hetctl.documents.parts import Count, Moment, Seconds, Share
from hetctl.documents.tasks import Task

TaskName = Annotated[
    str,
    Meta(description="NODE:NUMBER, or the job's first 8 digits before it has a node"),
]
JobName = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
Rate = Annotated[float | None, Meta(description="bytes per second; null: not known")]


class PoolState(TypedDict):
    """A pool: `pool up`, `status`, `join`; a stopped one: `pool down`."""

    format: Literal["hetctl/pool-1"]
    running: bool
    scheduler: Annotated[str, Meta(description="its address")]
    file: Annotated[str | None, Meta(description="its pool.toml; null: none")]
    nodes: NotRequired[list[str]]
    absent: NotRequired[Annotated[list[str], Meta(description="lost, or not started")]]
    draining: NotRequired[list[str]]
    tasks: NotRequired[Annotated[dict[str, Count], Meta(description="by state")]]
    certificate_until: NotRequired[Moment]
    versions_differ: NotRequired[
        Annotated[
            list[str], Meta(description="packages that nodes have in other versions")
        ]
    ]


class PoolNodePart(TypedDict):
    """A node of a pool."""

    name: str
    address: str
    present: bool
    draining: bool
    gateway: bool
    ingress_bytes_per_s: Rate
    egress_bytes_per_s: Rate
    devices: list[DevicePart]
    versions: dict[str, str]
    policy: str | None
    problem: Annotated[str | None, Meta(description="why it does not answer")]


class PoolNodes(TypedDict):
    """The nodes of a pool: `pool nodes`."""

    format: Literal["hetctl/pool-nodes-1"]
    nodes: list[PoolNodePart]


class PoolNodeState(TypedDict):
    """The new state of a node: `pool drain`, `pool resume`."""

    format: Literal["hetctl/pool-node-1"]
    name: str
    state: Literal["up", "draining"]


class PoolTaskPart(TypedDict):
    """A task of a pool."""

    id: TaskName
    job: JobName
    app: str
    state: str
    node: str | None
    resource: str | None
    emulated: bool
    progress: Share
    moves: Annotated[Count, Meta(description="between nodes")]
    migrations: Annotated[Count, Meta(description="between resources of its last node")]
    submitted: Moment | None
    started: Moment | None
    finished: Moment | None
    reason: str | None


class PoolTasks(TypedDict):
    """Tasks of a pool: `pool list`, `wait`, `top`."""

    format: Literal["hetctl/pool-tasks-1"]
    tasks: list[PoolTaskPart]
    unanswered: Annotated[
        list[str], Meta(description="nodes whose tasks are not listed completely")
    ]


class PoolTaskDetail(PoolTaskPart):
    """A task of a pool, with what the hetd of each of its nodes knows of it."""

    tasks: Annotated[
        dict[str, Task], Meta(description="node -> its task there; the last node last")
    ]


class PoolTaskDetails(TypedDict):
    """Tasks of a pool with all details: `pool show`."""

    format: Literal["hetctl/pool-task-1"]
    tasks: list[PoolTaskDetail]


class PoolSubmitted(TypedDict):
    """Submitted tasks: `pool submit`, `pool batch`."""

    format: Literal["hetctl/pool-submitted-1"]
    jobs: list[JobName]
    makespan_s: Annotated[Seconds | None, Meta(description="as planned")]


class PoolTransferPart(TypedDict):
    """A part of a planned transfer."""

    start: Seconds
    finish: Seconds
    rate: Annotated[float, Meta(description="bytes per second", ge=0)]


class PoolPlanPart(TypedDict):
    """The place of a task in a plan; times are seconds from now."""

    id: Annotated[str, Meta(description="position of the task in the batch, from 0")]
    accelerator: Annotated[str, Meta(description="NODE/RESOURCE")]
    order: Count
    transfer: list[PoolTransferPart]
    start: Seconds
    finish: Seconds


class PoolPlanned(TypedDict):
    """A plan, as `hetsim plan` prints it: `pool plan`."""

    format: Literal["hetsim/plan-1"]
    planner: str
    makespan: Seconds
    lower_bound: Seconds
    jobs: list[PoolPlanPart]
    notes: list[str]


class PoolControl(TypedDict):
    """Tasks for which a request was carried out: `pool cancel`, `pool move`."""

    format: Literal["hetctl/pool-control-1"]
    verb: Literal["cancel", "move"]
    ids: list[TaskName]


class PoolLog(TypedDict):
    """The output of a task: `pool logs`."""

    format: Literal["hetctl/pool-log-1"]
    id: TaskName
    text: str
    cut: Annotated[bool, Meta(description="its beginning was left out")]


class PoolExplanation(TypedDict):
    """Why a task waits or runs where it does: `pool explain`."""

    format: Literal["hetctl/pool-explanation-1"]
    id: TaskName
    node: str | None
    why: str
    rule: str | None
    policy: str | None


class PoolPicture(TypedDict):
    """The file of a Gantt chart: `pool gantt`."""

    format: Literal["hetctl/pool-gantt-1"]
    file: str
    tasks: list[TaskName]


class PoolFetched(TypedDict):
    """A fetched file: `pool get`."""

    format: Literal["hetctl/pool-file-1"]
    id: TaskName
    file: str
    bytes: Count


class PoolDemo(TypedDict):
    """The outcome of the demonstration: `pool demo`."""

    format: Literal["hetctl/pool-demo-1"]
    network: Annotated[
        Literal["namespaces", "loopback"], Meta(description="how nodes are connected")
    ]
    emulated: bool
    tasks: Count
    correct: bool
    executions: Annotated[dict[str, Count], Meta(description="completed tasks by node")]
    moved: Annotated[Count, Meta(description="tasks that moved between nodes")]
    replaced: Annotated[
        Count, Meta(description="tasks of the killed node that ran elsewhere")
    ]
    seconds: Seconds
    picture: str | None
