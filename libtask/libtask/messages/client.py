"""Requests of clients, and the replies and notifications of hetd."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from libtask.messages.base import (
    EXTRA_BYTES,
    MAX_IDS,
    MAX_RESOURCES,
    MAX_SAMPLES,
    MAX_TASKS,
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
    DeviceInfo,
    LastOutput,
    Note,
    Prospect,
    Reason,
    RequeuedTask,
    Sample,
    SamplePlace,
    TaskInfo,
    TaskSpec,
)


class Request(Message, frozen=True):
    """Base of what a client asks; the reply carries the same `request`."""

    request: Whole


class Change(Request, frozen=True, kw_only=True):
    """Base of the requests that change something."""

    key: NameText = ""
    """Idempotency key: asked again with the same key, it is answered as at first."""
    expires: float | None = None
    """On the node's monotonic clock, seconds: what comes later is refused."""


class Submit(Change, frozen=True):
    """Accept these tasks, all or none."""

    tasks: Annotated[list[TaskSpec], entries(MAX_TASKS)]
    worker: NameText = ""
    """Name of the submitting worker that will run the single task itself."""
    part_of: Whole = 0
    """First task of the submission that these belong to, where it takes several messages."""


class ListTasks(Request, frozen=True):
    """List tasks, newest first, each once; a page ends at some size as well."""

    ids: Ids | None = None
    """None: all that the caller may see."""
    mine: bool = False
    limit: Whole = 1000
    """Tasks in one page, at most `MAX_IDS`."""
    before: Whole | None = None
    """Page: only ids below this one."""
    detail: bool = False
    """With segments and parameters."""
    states: Annotated[list[TaskState], entries(MAX_RESOURCES)] = []
    """Only tasks in one of these; empty: in any."""
    since: Seconds | None = None
    """Only tasks that have not ended, or not before this (epoch seconds)."""
    user: Whole | None = None
    """Only this user's; others' are for rulers."""
    count: bool = False
    """Tell how many there are, not which."""


class Explain(Request, frozen=True):
    """Say why a task waits or runs where it does."""

    id: Whole


class Control(Change, frozen=True):
    """Cancel, hold, release or snapshot tasks, or send a signal to their commands."""

    verb: Literal["cancel", "hold", "release", "snapshot", "signal"]
    ids: Ids
    requeue: bool = False
    """Hold: commands leave their places, too, and begin again when they are released."""
    signal: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """Number of the signal to send."""
    reason: Reason = ""
    """Why they are cancelled, in their user's words."""


class Requeue(Change, frozen=True):
    """Submit tasks that have ended again, with all that was said of them.

    The reply has the new ones, in the order of the old; fewer, where their descriptions
    exceed a message: the others are to be asked for again.
    """

    ids: Ids
    """At most `MAX_TASKS`."""
    done: Annotated[list[RequeuedTask], entries(MAX_IDS)] = []
    """Those that were submitted again before: what comes after an old one comes after the
    new one."""


class DeleteTasks(Change, frozen=True):
    """Remove tasks that have ended from history; the reply is those that are gone."""

    ids: Ids


class Amend(Change, frozen=True):
    """Change what tasks that have not ended were submitted with."""

    ids: Ids
    priority: Whole | None = None
    """None: as it was."""
    deadline_s: float | None = None
    """Seconds from now to the new deadline; None: as it was."""
    no_deadline: bool = False
    """They have no deadline any more."""


class Migrate(Change, frozen=True):
    """Move a task to this resource at its next checkpoint; it stays there."""

    id: Whole
    resource: NameText


class Subscribe(Request, frozen=True):
    """Send `TaskChanged` for these tasks (None: all visible) from now on."""

    ids: Ids | None = None
    progress: bool = True


class Devices(Request, frozen=True):
    """List the resources."""


class Policies(Change, frozen=True):
    """Show the policy in force; with `set` or `configured`, change it first.

    What is set stays in force over restarts, whatever the configuration says.
    """

    set: NameText | None = None
    parameters: Annotated[dict[str, Any], packed_in(EXTRA_BYTES)] = {}
    configured: bool = False
    """Go back to the policy of the configuration."""


class Notes(Request, frozen=True):
    """Tell what happened to the node as a whole, the newest of it."""

    since: float = 0.0
    """Seconds since the epoch."""
    limit: int = 1000


class AddSamples(Change, frozen=True):
    """Store characterisation samples."""

    samples: Annotated[list[Sample], entries(MAX_SAMPLES)]


class Models(Request, frozen=True):
    """List the measured execution times that the caller may see."""

    after: SamplePlace | None = None
    """Page: only what comes behind this place."""
    limit: Whole = 1000


class DeleteSamples(Change, frozen=True):
    """Forget measured execution times, and failures; the reply is what is gone.

    Who is no ruler forgets failures of their own applications only.
    """

    names: Annotated[list[TypeText], entries(MAX_SAMPLES)] = []
    """Applications or types; empty: all."""
    resources: Annotated[list[NameText], entries(MAX_RESOURCES)] = []
    """Only what was measured, or failed, there; empty: everywhere."""


class Usage(Request, frozen=True):
    """Tell what is kept of a user, and what he may have."""

    user: Whole | None = None
    """Uid; None: the caller."""


class Status(Request, frozen=True):
    """Say how the daemon is, and what it has done since its start."""


class ShowConfig(Request, frozen=True):
    """Tell the configuration that is in force, and where each value comes from."""


class Drain(Change, frozen=True):
    """Keep a resource free of tasks (drain), over restarts too, or give it back."""

    resource: NameText
    on: bool
    """False: put it back into service."""


class TestDevices(Change, frozen=True):
    """Begin the self-test of resources; `Devices` tells what comes of it."""

    __test__: ClassVar[bool] = False  # no test of pytest's

    resources: Annotated[list[NameText], entries(MAX_RESOURCES)] = []
    """Empty: all that an OpenCL driver serves."""


class Stop(Change, frozen=True):
    """End the daemon; running tasks go on."""


class Submitted(Request, frozen=True):
    """The tasks are durable, under these ids."""

    ids: list[int]
    launcher: bool = True
    """Whether the caller's launcher is connected; else nobody makes workers for them."""


class TaskList(Request, frozen=True):
    """A page of tasks, as asked for; `total` counts all those that have not ended."""

    tasks: list[TaskInfo]
    total: int = 0
    next: int | None = None
    """Where the next page begins: ask again, with this as `before`; None: that was all."""
    count: int = 0
    """How many there are, where that was asked for."""


class Explained(Request, frozen=True):
    """Why a task is where it is, and what it has to expect of every resource."""

    id: int
    state: TaskState
    why: str
    """What it does or waits for, after "task 7 "."""
    policy: str = ""
    rule: str = ""
    """The rule that put it there; empty: the policy names none."""
    objective: str = "performance"
    resource: str | None = None
    prospects: list[Prospect] = []


class Done(Request, frozen=True):
    """It is done, for these tasks."""

    ids: list[int] = []


class DeviceList(Request, frozen=True):
    """The resources."""

    devices: list[DeviceInfo]


class StatusInfo(Request, frozen=True):
    """How the daemon is. Sums count from its start; none ever shrinks."""

    version: str
    pid: int
    policy: str
    started: float
    """Seconds since the epoch."""
    tasks: dict[str, int]
    """State -> tasks in it now; of the states in which tasks have ended: since the start."""
    records: dict[str, int]
    """Changes of tasks, by the event that made them: placed, dispatched, yielded…"""
    migrations: int
    decided: int
    """Events that the scheduler took in; `deciding_s`: time that it took for them."""
    deciding_s: float
    commits: int
    commit_s: float
    """Time that commits took, from the order to the end, summed up."""
    refused: int
    """Messages that could not be understood."""
    workers: int
    launchers: int
    watchers: int
    memory_bytes: int
    """Resident memory of the daemon."""
    shortage: str | None = None
    """Why nothing new may come in; None: the store has room."""
    config_file: str = ""
    """Empty: there is none."""
    state: str = ""
    """The folder of the store."""
    log: str = ""
    """A file, or `journal`; empty: it goes elsewhere."""
    managed: bool = False
    """Whether a service manager started the daemon."""
    command_policy: str = ""
    """The policy that the command line names."""


class ConfigInfo(Request, frozen=True):
    """The configuration in force; of other users' limits only rulers are told."""

    values: list[ConfigValue]
    file: str = ""
    """Which was read; empty: there is none."""


class PolicyInfo(Request, frozen=True):
    """The policy in force, and those there are."""

    name: str
    parameters: dict[str, Any]
    available: dict[str, str]
    """Policy name -> one-line description."""
    set: str = ""
    """Who set it and when, as text; empty: it is the configured one."""
    configured: str = ""
    """Name of the policy of the configuration."""
    packages: dict[str, str] = {}
    """Policy name -> the package that brings it."""


class NoteList(Request, frozen=True):
    """What happened to the node, oldest first."""

    notes: list[Note]


class ModelList(Request, frozen=True):
    """A page of the measured execution times, in order."""

    samples: list[Sample]
    next: SamplePlace | None = None
    """The place of the last one, where more come behind it."""
    hidden: int = 0
    """How many were left out on the way: other users' own applications."""
    avoided: list[AvoidedPair] = []
    """What is known against applications: the asker's own, or everybody's for rulers."""


class DeletedSamples(Request, frozen=True):
    """What was forgotten: how many measured times, and some of the failures."""

    count: int
    avoided: list[AvoidedPair] = []


class UsageInfo(Request, frozen=True):
    """What is kept of a user, in bytes, and the limits; None: there is none."""

    user: int
    unended_tasks: int
    unended_tasks_limit: int | None
    unended_bytes: int
    """Records of tasks that have not ended, mostly their parameters."""
    unended_limit: int | None
    history_bytes: int
    """Records of tasks that have ended, with their results."""
    answer_bytes: int
    """Answers to requests, kept a day so that none is carried out twice."""
    stored_limit: int | None
    """Of all three; beyond it the oldest ended tasks leave."""
    snapshot_bytes: int
    """Newest snapshots of tasks that have not ended, in the user's own folder."""
    log_bytes: int
    """Output of tasks that have not ended, as far as it was reported; in their logs."""
    priority_limit: int | None


class Error(Request, frozen=True):
    """A refused request: why, in one line."""

    code: str
    text: str


class Lagged(Message, frozen=True):
    """Pushed to who reads too slowly: changes were left out; ask how things are now."""

    dropped: int = 0


class TaskChanged(Message, frozen=True):
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
    last_output: LastOutput | None = None
    """Of a task that has failed: what its last worker wrote last."""
    trace: str = ""
    """Of a task that has failed: where in its Python code."""
    by: str = ""
    """Who ordered it, as owners are named; empty: nobody did."""


FromClient = (
    Submit
    | ListTasks
    | Explain
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
    | ShowConfig
    | Drain
    | TestDevices
    | Stop
)
ToClient = (
    Submitted
    | TaskList
    | Done
    | Explained
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
    | Lagged
)
