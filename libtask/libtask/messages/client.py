"""Requests of clients, and the replies and notifications of hetd."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from libtask.messages.base import (
    EXTRA_BYTES,
    MAX_IDS,
    MAX_LOADS,
    MAX_RESOURCES,
    MAX_SAMPLES,
    MAX_TASKS,
    MAX_TYPES,
    Ids,
    Message,
    NameText,
    Seconds,
    TaskState,
    TypeText,
    Whole,
    entries,
    packed_in,
)
from libtask.messages.records import (
    AvoidedPair,
    ConfigValue,
    CounterState,
    DeviceInfo,
    LastOutput,
    LearnedLoad,
    Note,
    ParkedTask,
    Prospect,
    Reason,
    RequeuedTask,
    Sample,
    SamplePlace,
    SharedLoad,
    TaskInfo,
    TaskSpec,
    TypeLoad,
)


class Request(Message, frozen=True):
    """Base of clients' requests; the reply has the same `request` number."""

    request: Whole


class Change(Request, frozen=True, kw_only=True):
    """Base of requests that change state."""

    key: NameText = ""
    """Idempotency key: a repeated request with the same key gets the same reply."""
    expires: float | None = None
    """Seconds on the node's monotonic clock after which hetd refuses the request."""


class Submit(Change, frozen=True):
    """Accept all of these tasks or none."""

    tasks: Annotated[list[TaskSpec], entries(MAX_TASKS)]
    worker: NameText = ""
    """Name of the submitting worker, which runs the single task itself."""
    part_of: Whole = 0
    """First task of the submission, if it takes several messages."""
    lasting: bool = False
    """Keep the key at least until the task has ended, if it is a single one; other keys are
    kept for a day."""


class ListTasks(Request, frozen=True):
    """List tasks, newest first, each once; the size of a message also ends a page."""

    ids: Ids | None = None
    """None: all tasks that are visible to the caller."""
    mine: bool = False
    limit: Whole = 1000
    """Tasks in one page, at most `MAX_IDS`."""
    before: Whole | None = None
    """Only ids below this one, for the next page."""
    detail: bool = False
    """Include segments and parameters."""
    states: Annotated[list[TaskState], entries(MAX_RESOURCES)] = []
    """Only tasks in one of these states; empty: in any."""
    since: Seconds | None = None
    """Only unfinished tasks and tasks that ended after this time (epoch seconds)."""
    user: Whole | None = None
    """Only this user's tasks; those of others require an administrator."""
    name: NameText = ""
    """Only tasks with this name, of the array with this name, or whose names match this
    pattern (`*`, `?`, `[…]`); empty: any."""
    job: NameText = ""
    """Only tasks of the job with this name, or of jobs whose names match this pattern."""
    count: bool = False
    """Return only the number of tasks."""


class Explain(Request, frozen=True):
    """Explain why a task waits, or runs on its resource."""

    id: Whole


class Estimate(Request, frozen=True):
    """Say when a task would start and end on each resource, without submitting it.

    Tasks that it comes after, and its time to begin, are not counted.
    """

    spec: TaskSpec


class Control(Change, frozen=True):
    """Cancel, hold, release, snapshot or park tasks, or send a signal to their commands.

    To park tasks is to hold them with a snapshot; the reply, `ParkedTasks`, comes when their
    snapshots are on disk. The number of tasks is then `MAX_PARKED` at most.
    """

    verb: Literal["cancel", "hold", "release", "snapshot", "park", "signal"]
    ids: Ids
    requeue: bool = False
    """Hold: commands also leave their resource and restart after release."""
    signal: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """Number of the signal to send."""
    reason: Reason = ""
    """Reason of the cancellation, as given by the user."""


class Renew(Request, frozen=True):
    """Say that the submitter of the tasks with this lease of the caller is there.

    A submit says it, too. It needs no key: a repetition changes nothing.
    """

    lease: NameText = ""


class Requeue(Change, frozen=True):
    """Submit ended tasks again with their original options.

    The reply lists the new tasks in the order of the old ones; it has fewer if their
    descriptions exceed a message, and the caller requests the others again.
    """

    ids: Ids
    """At most `MAX_TASKS`."""
    done: Annotated[list[RequeuedTask], entries(MAX_IDS)] = []
    """Tasks that were requeued before: a dependency on an old task becomes one on the new
    task."""
    from_snapshot: bool = False
    """Whether the new tasks continue from the last snapshots of the old ones, which must have
    failed or been cancelled."""


class DeleteTasks(Change, frozen=True):
    """Remove ended tasks from history; the reply lists the removed ones."""

    ids: Ids


class Amend(Change, frozen=True):
    """Change options of unfinished tasks."""

    ids: Ids
    priority: Whole | None = None
    """None: unchanged."""
    deadline_s: float | None = None
    """Seconds from now to the new deadline; None: unchanged."""
    no_deadline: bool = False
    """Remove the deadlines."""


class Migrate(Change, frozen=True):
    """Move a task to this resource at its next checkpoint and pin it there."""

    id: Whole
    resource: NameText


class Subscribe(Request, frozen=True):
    """Push `TaskChanged` for these tasks (None: all visible) from now on.

    It replaces the subscription of the connection, unless it adds to it.
    """

    ids: Ids | None = None
    progress: bool = True
    add: bool = False
    """Add `ids` to the subscription of the connection; one of all tasks stays as it is."""
    mine: bool = False
    """Only the caller's own tasks, also for administrators."""
    name: NameText = ""
    """Only tasks whose names match this pattern with `*`, `?` and `[...]`; empty: any."""
    job: NameText = ""
    """Only tasks of this job; empty: any."""
    resources: bool = False
    """Push `ResourceChanged`, too: the present states of all resources, then changes."""


class Devices(Request, frozen=True):
    """List the resources."""

    types: Annotated[list[TypeText], entries(MAX_TYPES)] = []
    """Task types whose loads on what the resources share are wanted."""


class Policies(Change, frozen=True):
    """Show the current policy; with `set` or `configured`, change it first.

    A set policy survives restarts and overrides the configuration.
    """

    set: NameText | None = None
    parameters: Annotated[dict[str, Any], packed_in(EXTRA_BYTES)] = {}
    configured: bool = False
    """Return to the configured policy."""


class Notes(Request, frozen=True):
    """List the newest events of the node as a whole."""

    since: float = 0.0
    """Seconds since the epoch."""
    limit: int = 1000


class AddSamples(Change, frozen=True):
    """Store characterisation samples, and loads learned from runs beside others."""

    samples: Annotated[list[Sample], entries(MAX_SAMPLES)]
    loads: Annotated[list[LearnedLoad], entries(MAX_LOADS)] = []


class Models(Request, frozen=True):
    """List the measured execution times that are visible to the caller."""

    after: SamplePlace | None = None
    """Only samples after this place, for the next page."""
    limit: Whole = 1000


class DeleteSamples(Change, frozen=True):
    """Delete measured execution times, learned loads and failures; the reply tells which.

    Users without administrator rights delete only failures of their own applications.
    """

    names: Annotated[list[TypeText], entries(MAX_SAMPLES)] = []
    """Applications or types; empty: all."""
    resources: Annotated[list[NameText], entries(MAX_RESOURCES)] = []
    """Only those on these resources; empty: on all."""


class Usage(Request, frozen=True):
    """Show a user's storage and limits."""

    user: Whole | None = None
    """Uid; None: the caller."""


class Status(Request, frozen=True):
    """Show the state of the daemon and counters since its start."""


class ShowConfig(Request, frozen=True):
    """Show the current configuration and the source of each value."""


class Drain(Change, frozen=True):
    """Drain a resource (also over restarts), or put it back into service."""

    resource: NameText
    on: bool
    """Whether to drain it."""


class TestDevices(Change, frozen=True):
    """Start the self-test of resources; `Devices` shows the outcome."""

    __test__: ClassVar[bool] = False  # pytest must not collect it

    resources: Annotated[list[NameText], entries(MAX_RESOURCES)] = []
    """Empty: all resources with an OpenCL driver."""


class Stop(Change, frozen=True):
    """Stop the daemon; running tasks continue."""


class Submitted(Request, frozen=True):
    """The tasks are durable under these ids."""

    ids: list[int]
    launcher: bool = True
    """Whether the caller's launcher, which starts their workers, is connected."""
    known: bool = False
    """Whether a request with this key was carried out before: the tasks may have ended, and
    their changes are pushed to the connection that submitted them first."""


class TaskList(Request, frozen=True):
    """A page of tasks; `total` is the number of unfinished tasks."""

    tasks: list[TaskInfo]
    total: int = 0
    next: int | None = None
    """`before` of the request for the next page; None: this is the last page."""
    count: int = 0
    """Number of tasks, if requested by `count`."""


class Explained(Request, frozen=True):
    """Reason for a task's place, and its outlook on every resource."""

    id: int
    state: TaskState
    why: str
    """The rest of a sentence that begins with "task 7 "."""
    policy: str = ""
    rule: str = ""
    """The policy's rule for the placement; empty: unnamed."""
    objective: str = "performance"
    resource: str | None = None
    prospects: list[Prospect] = []


class Estimated(Request, frozen=True):
    """The outlook of a task that is not submitted, on every resource."""

    policy: str
    objective: str
    prospects: list[Prospect]


class Done(Request, frozen=True):
    """The request was carried out for these tasks."""

    ids: list[int] = []


class Renewed(Request, frozen=True):
    """The period of the lease begins again."""

    tasks: int
    """Number of its unfinished tasks; 0: there is no such lease."""
    released: int = 0
    """Of these, the tasks that it held and that are released now."""


class ParkedTasks(Request, frozen=True):
    """The tasks are held, each with a snapshot or the reason why it has none."""

    tasks: list[ParkedTask]


class DeviceList(Request, frozen=True):
    """The resources."""

    devices: list[DeviceInfo]
    shared: list[SharedLoad] = []
    """The parts of the node that they share, with the believed load of other programs."""
    believed: bool = False
    """Whether the policy uses that, so that counters are read."""
    counters: list[CounterState] = []
    """The counters of what they share, and why some are not read."""
    loads: list[TypeLoad] = []
    """Loads that tasks of the types in the request are taken to offer."""


class StatusInfo(Request, frozen=True):
    """The state of the daemon. Sums begin at its start and never decrease."""

    version: str
    pid: int
    policy: str
    started: float
    """Seconds since the epoch."""
    tasks: dict[str, int]
    """State -> number of tasks now; for final states: since the start."""
    records: dict[str, int]
    """Changes of tasks by event: placed, dispatched, yielded…"""
    migrations: int
    decided: int
    """Events handled by the scheduler; `deciding_s`: total time of handling them."""
    deciding_s: float
    commits: int
    commit_s: float
    """Total time of commits, from the request to the end."""
    refused: int
    """Malformed messages."""
    workers: int
    launchers: int
    watchers: int
    memory_bytes: int
    """Resident memory of the daemon."""
    shortage: str | None = None
    """Why hetd accepts no new tasks; None: the store has space."""
    config_file: str = ""
    """Empty: there is no file."""
    state: str = ""
    """The folder of the store."""
    log: str = ""
    """A file, or `journal`; empty: elsewhere."""
    managed: bool = False
    """Whether a service manager started the daemon."""
    command_policy: str = ""
    """The policy of the command line."""
    jobs: int = 0
    """Unfinished jobs: sets of tasks with a name in common, or that depend on each other."""
    build: str = "pure"
    """Which build of the scheduler runs: its sources (`pure`), or `compiled` modules."""
    cores: int = 0
    """Cores that its tasks may need together, and one of them at most; 0: any number."""
    task_memory_bytes: int = 0
    """Memory that its tasks may need together; 0: any amount."""


class ConfigInfo(Request, frozen=True):
    """The current configuration; only administrators receive other users' limits."""

    values: list[ConfigValue]
    file: str = ""
    """The file that was read; empty: none."""


class PolicyInfo(Request, frozen=True):
    """The current policy and the available ones."""

    name: str
    parameters: dict[str, Any]
    available: dict[str, str]
    """Policy name -> one-line description."""
    set: str = ""
    """User and time of the change, as text; empty: the policy is the configured one."""
    configured: str = ""
    """Name of the configured policy."""
    packages: dict[str, str] = {}
    """Policy name -> the package that provides it."""
    failed: str = ""
    """Name of the policy that was set or configured and in whose place `name` decides, as it
    raised an error; empty: it has not failed."""
    fault: str = ""
    """That error."""


class NoteList(Request, frozen=True):
    """Events of the node, oldest first."""

    notes: list[Note]


class ModelList(Request, frozen=True):
    """A page of the measured execution times, in order."""

    samples: list[Sample]
    next: SamplePlace | None = None
    """`after` of the request for the next page; None: this is the last page."""
    hidden: int = 0
    """Number of omitted samples, of other users' own applications."""
    avoided: list[AvoidedPair] = []
    """Applications that avoid a resource: the caller's, or all for administrators."""
    loads: list[LearnedLoad] = []
    """Learned loads that are visible to the caller, on the first page."""


class DeletedSamples(Request, frozen=True):
    """Numbers of deleted times and loads, and some of the deleted failures."""

    count: int
    avoided: list[AvoidedPair] = []
    loads: int = 0


class UsageInfo(Request, frozen=True):
    """A user's storage in bytes, and the limits; None: unlimited."""

    user: int
    unended_tasks: int
    unended_tasks_limit: int | None
    unended_bytes: int
    """Records of unfinished tasks, mostly their parameters."""
    unended_limit: int | None
    history_bytes: int
    """Records of ended tasks, with their results."""
    answer_bytes: int
    """Replies to requests, kept a day so that no request is carried out twice."""
    stored_limit: int | None
    """Limit on the sum of all three; the oldest ended tasks are removed above it."""
    snapshot_bytes: int
    """Newest snapshots of unfinished tasks, in the user's own folder."""
    log_bytes: int
    """Reported output of unfinished tasks, in their logs."""
    priority_limit: int | None


class Error(Request, frozen=True):
    """The reason of a refusal, in one line."""

    code: str
    text: str


class Lagged(Message, frozen=True):
    """Pushed to a slow reader: changes were dropped, so it must list the tasks again."""

    dropped: int = 0


class TaskChanged(Message, frozen=True):
    """Pushed to subscribers: a task entered another state or made progress."""

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
    last_output: LastOutput | None = None
    """Of a failed task: the last output of its last worker."""
    trace: str = ""
    """Of a failed task: the Python traceback."""
    by: str = ""
    """The user who ordered it, named as owners are; empty: no user."""
    name: str = ""
    """The task's name, as its submitter chose it."""


class ResourceChanged(Message, frozen=True):
    """Pushed to subscribers: a resource takes tasks, or takes none any more."""

    name: str
    state: Literal["up", "draining", "lost", "unusable"]
    """As in `DeviceInfo`."""
    slots: int
    """Number of tasks that it can run at a time; 0: none now."""
    reason: str = ""
    """Why it takes no tasks; empty: it takes some."""


FromClient = (
    Submit
    | ListTasks
    | Explain
    | Estimate
    | Control
    | Amend
    | Migrate
    | Subscribe
    | Devices
    | Status
    | Usage
    | Policies
    | AddSamples
    | Models
    | Notes
    | DeleteSamples
    | DeleteTasks
    | Requeue
    | Renew
    | ShowConfig
    | Drain
    | TestDevices
    | Stop
)
ToClient = (
    Submitted
    | TaskList
    | Done
    | ParkedTasks
    | Renewed
    | Explained
    | Estimated
    | DeviceList
    | StatusInfo
    | ConfigInfo
    | PolicyInfo
    | ModelList
    | DeletedSamples
    | UsageInfo
    | NoteList
    | Error
    | TaskChanged
    | ResourceChanged
    | Lagged
)
