"""Events: facts about the world that the shell passes to the scheduler.

Their names are past participles. `epoch` is a fence: it numbers the bindings of a task to
workers, and an event of an older binding is ignored.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.limits import Needs, Quotas

Cause: TypeAlias = Literal["crash", "hang", "killed", "stuck", "program", "binary"]
"""How a task failed. `crash`: the worker exited, or died by a signal that it caused; `hang`: it
reached no checkpoint in time; `killed`: another process, or the kernel for want of memory,
killed it; `stuck`: it could not be killed; `program`: the program does not compile; `binary`:
its prebuilt binary is missing or wrong."""


class TaskInput(msgspec.Struct, frozen=True):
    """A result that a task reads: of which task, and how many bytes it has."""

    task: TaskId
    bytes: int = 0


class TaskSubmitted(msgspec.Struct, frozen=True):
    """A task was accepted.

    Attributes:
        type: row of the characterisation tables, e.g. `heat/4096`.
        kinds: kinds of resources the application has implementations for.
        resources: names the task may use; empty: any.
        seconds: that its user expects of it, by resource or kind.
        after: unfinished tasks that must end first; all but the following must complete.
        after_any: those of `after` that may end in any way.
        after_notok: those of `after` of which one at least must not complete: if all do,
            the task is not needed and is cancelled.
        notok_met: whether such a task ended before without completing.
        work: amount of work, in the application's own units.
        deadline: instant by which it should finish.
        strips: number of equal strips it is cut into; None: the runtime sizes them to
            its target interval.
        served: whether a worker of its own waits for it, so that none must be started.
        migration_s: time of a move without that of copying `state_bytes`, in seconds.
        app: its application, as the circuit breaker knows it; empty: its type.
        version: of that application.
        preemptible: whether it may be stopped, to go on elsewhere.
        weight: how many steps of `Limits.at_once` a change of it takes; above 1 for a
            large record.
        single: whether it is never dispatched in a train.
        workers: the workers that can serve it: the tasks of a train have the same.
        job: name of the owner's job that it belongs to; empty: that of the tasks that it
            comes after.
        inputs: results of other tasks that it reads; those tasks are in `after` too,
            unless they have ended.
        needs: None: nothing but a slot is counted for it.
        time_limit_s: time for which it may run, in seconds.
        retries: how often it is run again after failures of its own.
        begin: instant before which it does not begin; 0: none.
        array: name of the owner's array that it is a member of.
        at_once: members of that array that may run at once; 0: any number.
        parallel: whether its strips are independent, so that several resources can do
            them at once.
        merge_s: time to set up a part of it and to merge the results, in seconds.
        part_of: the task of which it is a part; None: it is a whole one.
        start: share of the work at which a part starts.

    """

    task: TaskId
    type: str
    kinds: frozenset[str]
    owner: int = 0
    resources: frozenset[str] = frozenset()
    seconds: tuple[tuple[str, float], ...] = ()
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
    workers: tuple[str, str | None] = ("", "")
    job: str = ""
    inputs: tuple[TaskInput, ...] = ()
    needs: Needs | None = None
    time_limit_s: float = math.inf
    after_any: frozenset[TaskId] = frozenset()
    after_notok: frozenset[TaskId] = frozenset()
    notok_met: bool = False
    retries: int = 0
    begin: Nanoseconds = 0
    array: str = ""
    at_once: int = 0
    parallel: bool = False
    merge_s: float = 0.0
    part_of: TaskId | None = None
    start: float = 0.0


class TaskFound(msgspec.Struct, frozen=True):
    """A worker registered that runs a task on this resource.

    The daemon may have sent the command just before it crashed, without recording it.
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


class OthersAwaited(msgspec.Struct, frozen=True):
    """The code of a running task waits for other tasks; `others` empty: it goes on."""

    task: TaskId
    epoch: int
    others: tuple[TaskId, ...]


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


class StripsGiven(msgspec.Struct, frozen=True):
    """The worker of a running task will stop before the strips that it was asked for.

    Attributes:
        part: the part that does them, from `part.start` to where the task would have
            stopped; None: too few were left, and the worker goes on.
        granule: share of the whole work at whose multiples parts begin; 0: anywhere.

    """

    task: TaskId
    epoch: int
    part: TaskSubmitted | None = None
    granule: float = 0.0


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
    """A worker loaded the task again, and continues from a snapshot with this progress."""

    task: TaskId
    epoch: int
    progress: float


class TaskParked(msgspec.Struct, frozen=True):
    """A worker unloaded a waiting task, all of whose progress is on disk."""

    task: TaskId
    epoch: int


class TaskFinished(msgspec.Struct, frozen=True):
    """A task completed with a result."""

    task: TaskId
    epoch: int


class TaskFailed(msgspec.Struct, frozen=True):
    """A task failed.

    Attributes:
        elsewhere: whether it may succeed on another resource; it is then started again,
            and never where it failed unless its owner moves it there.
        whole_kind: whether all resources of that kind are excluded with it.
        cause: if set, the failure counts against its application on that resource.

    """

    task: TaskId
    epoch: int
    reason: str
    elsewhere: bool = False
    whole_kind: bool = False
    cause: Cause | None = None


class TaskAborted(msgspec.Struct, frozen=True):
    """A worker aborted a task, or gave it back, as it was asked."""

    task: TaskId
    epoch: int


class TaskCancelled(msgspec.Struct, frozen=True):
    """The user cancelled the task."""

    task: TaskId
    reason: str = "cancelled by its owner"


class TaskHeld(msgspec.Struct, frozen=True):
    """The user wants the task to wait, from its next checkpoint on.

    A task that is not preemptible is suspended where it runs. With `requeue` it leaves its
    resource, and starts again from its beginning when it is released.
    """

    task: TaskId
    requeue: bool = False


class TaskReleased(msgspec.Struct, frozen=True):
    """The user released a held task."""

    task: TaskId


class TaskMoved(msgspec.Struct, frozen=True):
    """The user wants the task on this resource only, from now on."""

    task: TaskId
    resource: str


class TaskAmended(msgspec.Struct, frozen=True):
    """The user changed the priority or the deadline of a task; both are the new values."""

    task: TaskId
    priority: int
    deadline: Nanoseconds | None


class WorkerLost(msgspec.Struct, frozen=True):
    """The worker that held a task is gone.

    Attributes:
        elsewhere: whether the task should not run there again, if it can run elsewhere.
        begun: whether a worker is known to have held it; if not, no attempt is counted.
        cause: if set, the loss counts against the task's application on that resource,
            unless the task had reached a checkpoint there.
        unserved: whether it had a slot for which no worker came; others then go first.

    """

    task: TaskId
    epoch: int
    reason: str
    elsewhere: bool = False
    begun: bool = True
    cause: Cause | None = None
    unserved: bool = False


class ResourceLost(msgspec.Struct, frozen=True):
    """A resource is out of service; the tasks that run there have to yield."""

    resource: str
    reason: str = ""


class ResourceReturned(msgspec.Struct, frozen=True):
    """A lost or drained resource can be used again."""

    resource: str


class ResourceRecovered(msgspec.Struct, frozen=True):
    """A lost resource works again; a drained one stays drained."""

    resource: str


class SlotsBlocked(msgspec.Struct, frozen=True):
    """This number of slots of a resource is blocked by processes that cannot be ended.

    The tasks that ran in them are lost at the same instant, and run again in other slots.
    """

    resource: str
    slots: int
    reason: str = ""


class ResourceDrained(msgspec.Struct, frozen=True):
    """A resource accepts no further task; running ones move at a checkpoint."""

    resource: str


class QuotasChanged(msgspec.Struct, frozen=True):
    """The quotas of users changed."""

    quotas: Quotas


class OwnerUnattended(msgspec.Struct, frozen=True):
    """A user has no launcher: tasks that need a new worker are deferred."""

    owner: int


class OwnerAttended(msgspec.Struct, frozen=True):
    """A user has a launcher again that can start workers."""

    owner: int


class TrialDue(msgspec.Struct, frozen=True):
    """The instant of `Scheduler.next_trial` has come: a task may try a half-open pair."""


class TrainOverdue(msgspec.Struct, frozen=True):
    """The instant of `Scheduler.next_recall` has come: a train is overdue."""


class BeginningDue(msgspec.Struct, frozen=True):
    """The instant of `Scheduler.next_beginning` has come: a task may begin."""


class TimeStepped(msgspec.Struct, frozen=True):
    """The time of day jumped: tasks that begin at a time of day begin `later` (negative: earlier)."""

    later: Nanoseconds


class FailuresForgotten(msgspec.Struct, frozen=True):
    """The failures of the selected applications and resources do not count any more.

    Attributes:
        owner: owner of the applications; None: all owners.
        apps: names of the applications; empty: all.
        resources: names of the resources; empty: all.

    """

    owner: int | None = None
    apps: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()


class CounterReading(msgspec.Struct, frozen=True):
    """Samples of one performance counter of a shared resource.

    Attributes:
        shared: name of the shared resource.
        counter: name in `belief.COUNTERS`.
        mean: of the samples; `deviation`: their standard deviation.
        samples: their number.

    """

    shared: str
    counter: str
    mean: float
    deviation: float
    samples: int


class CountersRead(msgspec.Struct, frozen=True):
    """Performance counters were read; those that are missing are left out."""

    readings: tuple[CounterReading, ...]


class NodeStarted(msgspec.Struct, frozen=True):
    """All tasks of the time before the start are restored; the policy places them."""


class NodeStopping(msgspec.Struct, frozen=True):
    """The node stops: all tasks yield at their next checkpoint, and none starts."""


class TimerFired(msgspec.Struct, frozen=True):
    """The instant of the last `SetTimer` has come."""


class PolicyChanged(msgspec.Struct, frozen=True):
    """Another policy was set; it places every waiting task again."""


Event: TypeAlias = (
    TaskSubmitted
    | TaskFound
    | TaskReady
    | TaskStarted
    | StripsDone
    | StripsGiven
    | TaskYielded
    | SnapshotTaken
    | TaskResumed
    | TaskParked
    | OthersAwaited
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
    | BeginningDue
    | TimeStepped
    | FailuresForgotten
    | CountersRead
    | NodeStarted
    | NodeStopping
    | TimerFired
    | PolicyChanged
)
