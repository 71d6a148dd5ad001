"""Events: what happened in the world, told to the scheduler by its shell.

Past participles. `epoch` fences: it names one binding of a task to a worker, and an
event of an older binding is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.limits import Quotas

Cause: TypeAlias = Literal["crash", "hang", "killed", "stuck", "program", "binary"]
"""How it failed: the worker ended by itself or by a signal of its own making; it reached no
checkpoint in time; somebody killed it, maybe the kernel for memory; nothing ended it; the
program does not compile; its prebuilt binary is missing or wrong."""


class TaskSubmitted(msgspec.Struct, frozen=True):
    """A task was accepted.

    Attributes:
        type: row of the characterisation tables, e.g. `heat/4096`.
        kinds: kinds of resources the application has implementations for.
        resources: names the task may use; empty: any.
        after: unfinished tasks that must complete first.
        work: amount of work, in the application's own units.
        deadline: instant by which it should finish.
        strips: equal strips it is cut into, where that is known; None: the runtime
            sizes them to its target interval.
        served: a worker of its own waits for it, whoever makes workers for others.
        migration_s: time that a move takes besides that for `state_bytes`, in seconds.
        app: its application, as the circuit breaker knows it; empty: its type.
        version: of that application.
        preemptible: whether it may be stopped, to go on elsewhere.
        weight: what a change of it counts, where many are dealt with bit by bit: its
            record may be large.
        single: whether it is never ordered together with others.

    """

    task: TaskId
    type: str
    kinds: frozenset[str]
    owner: int = 0
    resources: frozenset[str] = frozenset()
    priority: int = 0
    after: tuple[TaskId, ...] = ()
    hold: bool = False
    work: float = 1.0
    input_bytes: int = 0
    state_bytes: int = 0
    deadline: Nanoseconds | None = None
    strips: int | None = None
    served: bool = False
    migration_s: float = 0.0
    app: str = ""
    version: str = ""
    weight: int = 1
    preemptible: bool = True
    single: bool = False


class TaskRestored(msgspec.Struct, frozen=True):
    """A task with a history that had not ended when the daemon stopped.

    Tasks are restored in the order of their ids, so that those it comes after are known.

    Attributes:
        resource: where it was running; None: it waited, or was held.
        epoch: its binding to a worker that may still hold it; 0: none does.
        progress: share done, 0 to 1.
        kept: the part of it that a snapshot holds.
        attempts: bindings that it has lost without progress.
        failures: resource -> why it failed there; `excluded`: where it is not to run again.
        checkpointed: it has reached a checkpoint where it was running.

    """

    submitted: TaskSubmitted
    resource: str | None
    epoch: int
    progress: float = 0.0
    kept: float = 0.0
    attempts: int = 0
    failures: dict[str, str] = {}
    excluded: frozenset[str] = frozenset()
    checkpointed: bool = False


class TaskFound(msgspec.Struct, frozen=True):
    """A worker greets that runs a task, on this resource.

    The order to do so may have left in the moment before a crash of the daemon, so that
    its record does not know.
    """

    task: TaskId
    epoch: int
    resource: str


class TaskReady(msgspec.Struct, frozen=True):
    """The inputs of a staged task are loaded."""

    task: TaskId
    epoch: int


class TaskStarted(msgspec.Struct, frozen=True):
    """A task that was ordered behind others has begun, as a report of its worker shows."""

    task: TaskId
    epoch: int


class StripsDone(msgspec.Struct, frozen=True):
    """Strips were finished.

    Attributes:
        progress: share of the whole task that is done, 0 to 1.
        share: share of the whole task that these strips make up.
        seconds: computing time of these strips.

    """

    task: TaskId
    epoch: int
    progress: float
    share: float = 0.0
    seconds: float = 0.0


class TaskYielded(msgspec.Struct, frozen=True):
    """A task stopped at a checkpoint; its device memory is free."""

    task: TaskId
    epoch: int
    progress: float


class SnapshotTaken(msgspec.Struct, frozen=True):
    """A snapshot of the task is on disk; `progress`: the share done that it holds."""

    task: TaskId
    epoch: int
    progress: float


class TaskResumed(msgspec.Struct, frozen=True):
    """A worker loaded the task anew, and goes on from a snapshot with this progress."""

    task: TaskId
    epoch: int
    progress: float


class TaskParked(msgspec.Struct, frozen=True):
    """A worker gave up a task that waited in it: all of its progress is on disk."""

    task: TaskId
    epoch: int


class TaskFinished(msgspec.Struct, frozen=True):
    """A task came to its end, with a result."""

    task: TaskId
    epoch: int


class TaskFailed(msgspec.Struct, frozen=True):
    """A task ended with an error; `elsewhere`: another resource may succeed.

    It then starts anew, never again where it failed unless its owner moves it there.
    With `whole_kind` never again on any resource of that kind. With a `cause` it counts
    against its application on that resource.
    """

    task: TaskId
    epoch: int
    reason: str
    elsewhere: bool = False
    whole_kind: bool = False
    cause: Cause | None = None


class TaskAborted(msgspec.Struct, frozen=True):
    """A worker gave a task up, as asked."""

    task: TaskId
    epoch: int


class TaskCancelled(msgspec.Struct, frozen=True):
    """The user wants the task gone."""

    task: TaskId
    reason: str = "cancelled by its owner"


class TaskHeld(msgspec.Struct, frozen=True):
    """The user wants the task to wait, from its next checkpoint on.

    One that is not preemptible stays where it runs, stopped; with `requeue` it leaves, too,
    and begins anew when it is released.
    """

    task: TaskId
    requeue: bool = False


class TaskReleased(msgspec.Struct, frozen=True):
    """The user lets a held task go on."""

    task: TaskId


class TaskMoved(msgspec.Struct, frozen=True):
    """The user wants the task on this resource, and nowhere else, from now on."""

    task: TaskId
    resource: str


class TaskAmended(msgspec.Struct, frozen=True):
    """The user wants another priority or deadline for a task; both as from now on."""

    task: TaskId
    priority: int
    deadline: Nanoseconds | None


class WorkerLost(msgspec.Struct, frozen=True):
    """The worker that held a task is gone; `elsewhere`: not there again, if possible.

    `begun`: whether it is known to have had one; if not, that is no attempt. With a `cause`
    it counts against the task's application on that resource, unless the task had reached
    a checkpoint there. `unserved`: it had a place, and none came for it: others go first.
    """

    task: TaskId
    epoch: int
    reason: str
    elsewhere: bool = False
    begun: bool = True
    cause: Cause | None = None
    unserved: bool = False


class ResourceLost(msgspec.Struct, frozen=True):
    """A resource does not work any more; what ran there is lost."""

    resource: str
    reason: str = ""


class ResourceReturned(msgspec.Struct, frozen=True):
    """A lost or drained resource can be used again."""

    resource: str


class ResourceRecovered(msgspec.Struct, frozen=True):
    """A lost resource works again; one that is drained stays so."""

    resource: str


class SlotsBlocked(msgspec.Struct, frozen=True):
    """Processes that nothing can end hold on to so many slots of a resource now.

    What ran in them is lost to them at the same instant, and goes on in others.
    """

    resource: str
    slots: int
    reason: str = ""


class ResourceDrained(msgspec.Struct, frozen=True):
    """A resource is to take no further task; running ones move at a checkpoint."""

    resource: str


class QuotasChanged(msgspec.Struct, frozen=True):
    """What users' tasks may take has changed."""

    quotas: Quotas


class OwnerUnattended(msgspec.Struct, frozen=True):
    """Nobody makes workers for a user's tasks: those that have none keep out of the way."""

    owner: int


class OwnerAttended(msgspec.Struct, frozen=True):
    """Workers can be made for a user's tasks again."""

    owner: int


class TrialDue(msgspec.Struct, frozen=True):
    """The instant of `Scheduler.next_trial` has come: one task may try what was avoided."""


class TrainOverdue(msgspec.Struct, frozen=True):
    """The instant of `Scheduler.next_recall` has come: a train takes longer than expected."""


class FailuresForgotten(msgspec.Struct, frozen=True):
    """Nothing is to be avoided any more of what is chosen.

    Attributes:
        owner: whose applications; None: everybody's.
        apps: which of them; empty: all.
        resources: where; empty: everywhere.

    """

    owner: int | None = None
    apps: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()


class NodeStarted(msgspec.Struct, frozen=True):
    """All tasks that there were before the start are taken up; the policy places them."""


class NodeStopping(msgspec.Struct, frozen=True):
    """All tasks are to stop at their next checkpoint, and none is to start."""


class TimerFired(msgspec.Struct, frozen=True):
    """The instant of the last `SetTimer` has come."""


class PolicyChanged(msgspec.Struct, frozen=True):
    """Another policy has taken over; it places every waiting task again."""


Event: TypeAlias = (
    TaskSubmitted
    | TaskFound
    | TaskReady
    | TaskStarted
    | StripsDone
    | TaskYielded
    | SnapshotTaken
    | TaskResumed
    | TaskParked
    | TaskFinished
    | TaskFailed
    | TaskAborted
    | TaskCancelled
    | TaskHeld
    | TaskReleased
    | TaskMoved
    | TaskAmended
    | WorkerLost
    | ResourceLost
    | ResourceReturned
    | ResourceRecovered
    | SlotsBlocked
    | ResourceDrained
    | QuotasChanged
    | OwnerUnattended
    | OwnerAttended
    | TrialDue
    | TrainOverdue
    | FailuresForgotten
    | NodeStarted
    | NodeStopping
    | TimerFired
    | PolicyChanged
)
