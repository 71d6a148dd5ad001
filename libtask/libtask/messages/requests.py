"""Hello, what clients ask, and what hetd answers and tells them."""

from __future__ import annotations

from typing import Any, Literal

from libtask.messages.base import PROTOCOL, Message, Name, TaskState, Whole
from libtask.messages.parts import (
    DeviceInfo,
    Note,
    Prospect,
    Sample,
    SnapshotTerms,
    TaskInfo,
    TaskSpec,
)


class Hello(Message, frozen=True):
    """First message of every peer."""

    role: Literal["client", "launcher", "worker"]
    protocol: Whole = PROTOCOL
    pid: Whole = 0
    worker: Name = ""
    """Worker's name, given by its launcher (`libtask.main`: by itself)."""
    task: Whole | None = None
    """Worker: the task it still holds, after a reconnect."""
    epoch: Whole = 0
    own: bool = False
    """Worker started by the user's own program: it runs just the task it submits."""
    resource: str = ""
    """Worker: where the task that it holds runs; empty: it waits, or is about to end."""
    workers: list[str] = []
    """Launcher: its workers of whom anything is there."""


class Welcome(Message, frozen=True):
    """hetd's answer to Hello."""

    protocol: int
    version: str
    pid: int
    launcher: bool
    """Whether the caller's launcher is connected."""
    interval_ns: int = 50_000_000
    """Target interval between checkpoints."""
    snapshots: SnapshotTerms = SnapshotTerms()
    """Worker: when to write them."""
    log_bytes: int = 64 << 20
    """Launcher: the disk that a worker's log may take; 0: any."""
    processes: int = 0
    """Launcher: processes and threads that its user may have; 0: any number."""
    hung_launcher: int = 0
    """Process of the caller's launcher if it does not answer; 0: it does, or is none."""


class Request(Message, frozen=True):
    """Base of what a client asks; the reply carries the same `request`."""

    request: Whole


class Change(Request, frozen=True, kw_only=True):
    """Base of the requests that change something."""

    key: str = ""
    """Idempotency key: asked again with the same key, it is answered as at first."""
    expires: float | None = None
    """On the node's monotonic clock, seconds: what comes later is refused."""


class Submit(Change, frozen=True):
    """Accept these tasks, all or none."""

    tasks: list[TaskSpec]
    worker: str = ""
    """Name of the submitting worker that will run the single task itself."""


class ListTasks(Request, frozen=True):
    """List tasks, newest first."""

    ids: list[Whole] | None = None
    """None: all that the caller may see."""
    mine: bool = False
    limit: Whole = 1000
    before: Whole | None = None
    """Page: only ids below this one. Newest first."""
    detail: bool = False
    """With segments and parameters."""


class Explain(Request, frozen=True):
    """Say why a task waits or runs where it does."""

    id: Whole


class Control(Change, frozen=True):
    """Cancel, hold, release or snapshot tasks."""

    verb: Literal["cancel", "hold", "release", "snapshot"]
    ids: list[Whole]


class Amend(Change, frozen=True):
    """Change what tasks that have not ended were submitted with."""

    ids: list[Whole]
    priority: Whole | None = None
    """None: as it was."""
    deadline_s: float | None = None
    """Seconds from now to the new deadline; None: as it was."""
    no_deadline: bool = False
    """They have no deadline any more."""


class Migrate(Change, frozen=True):
    """Move a task to this resource at its next checkpoint; it stays there."""

    id: Whole
    resource: str


class Watch(Request, frozen=True):
    """Send `TaskChanged` for these tasks (None: all visible) from now on."""

    ids: list[Whole] | None = None
    progress: bool = True


class Devices(Request, frozen=True):
    """List the resources."""


class Policies(Change, frozen=True):
    """Show the policy in force; with `set` or `configured`, change it first.

    What is set stays in force over restarts, whatever the configuration says.
    """

    set: str | None = None
    parameters: dict[str, Any] = {}
    configured: bool = False
    """Go back to the policy of the configuration."""


class Notes(Request, frozen=True):
    """Tell what happened to the node as a whole, the newest of it."""

    since: float = 0.0
    """Seconds since the epoch."""
    limit: int = 1000


class Learn(Change, frozen=True):
    """Store characterisation samples."""

    samples: list[Sample]


class Models(Request, frozen=True):
    """List the measured execution times."""


class Forget(Change, frozen=True):
    """Forget measured execution times; the reply is the list of those that are gone."""

    names: list[str] = []
    """Applications or types; empty: all."""
    resources: list[str] = []
    """Only what was measured there; empty: everywhere."""


class Status(Request, frozen=True):
    """Say how the daemon is, and what it has done since its start."""


class Occupy(Change, frozen=True):
    """Keep a resource free of tasks (drain), over restarts too, or give it back."""

    resource: str
    drain: bool


class Stop(Change, frozen=True):
    """End the daemon; running tasks go on."""


class Submitted(Request, frozen=True):
    """The tasks are durable, under these ids."""

    ids: list[int]
    launcher: bool = True
    """Whether the caller's launcher is connected; else nobody makes workers for them."""


class TaskList(Request, frozen=True):
    """Tasks, as asked for; `total` counts those that have not ended."""

    tasks: list[TaskInfo]
    total: int = 0


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


class NoteList(Request, frozen=True):
    """What happened to the node, oldest first."""

    notes: list[Note]


class ModelList(Request, frozen=True):
    """The measured execution times."""

    samples: list[Sample]


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
