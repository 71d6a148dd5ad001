"""The scheduler's record of a task, and its states; how they follow is in `transitions`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from hetsched import events as e
from hetsched.accounts import NOBODY, OwnerAccount
from hetsched.ids import Nanoseconds, TaskId
from hetsched.limits import Needs
from libtask.errors import BugError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class State(StrEnum):
    """States of a task, as users see them."""

    HELD = "held"
    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    PREEMPTED = "preempted"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DROPPED = "dropped"

    @property
    def ended(self) -> bool:
        return self in _ENDED

    @property
    def placeable(self) -> bool:
        """Whether the task waits for a resource and for nothing else."""
        return self in PLACEABLE


RUNNING = State.RUNNING
COMPLETED = State.COMPLETED
"""Globals, for what every event compares with: a member of an enum is looked up at each use."""
PLACEABLE = (State.QUEUED, State.PREEMPTED)
NAMES = {state: state.value for state in State}
"""The values of the states; a look-up in a dict is quicker than that of an enum's value."""
_ENDED = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED, State.DROPPED})


class Step(StrEnum):
    """Causes of a change of state; the values stand in the task's story.

    Those named like an event are caused by that event. The scheduler itself takes the others.
    """

    TASK_RELEASED = "TaskReleased"
    TASK_CANCELLED = "TaskCancelled"
    TASK_HELD = "TaskHeld"
    TASK_YIELDED = "TaskYielded"
    TASK_FINISHED = "TaskFinished"
    TASK_FAILED = "TaskFailed"
    TASK_ABORTED = "TaskAborted"
    WORKER_LOST = "WorkerLost"
    DEPENDENCIES_AWAITED = "DependenciesAwaited"
    DEPENDENCY_ENDED = "DependencyEnded"
    DEPENDENCIES_MET = "DependenciesMet"
    INSTANT_AWAITED = "InstantAwaited"
    INSTANT_CAME = "InstantCame"
    PARTS_AWAITED = "PartsAwaited"
    PARTS_DONE = "PartsDone"
    DISPATCHED = "Dispatched"
    DROPPED = "Dropped"
    RETRIED = "Retried"
    RETURNED = "Returned"
    RESTORED = "Restored"
    RESTORED_WAITING = "RestoredWaiting"


LONGEST_FAILURE = 400
"""Characters kept of the reason why it failed on one of several resources."""


@dataclass(eq=False, slots=True)
class Row:
    """A row of the tables of estimates: what tasks of an owner with the same expectations share.

    The scheduler interns rows, so that they compare and hash by identity.

    Attributes:
        type: task type.
        kinds: kinds of resources for which there is an implementation.
        resources: names of the allowed resources; empty: any.
        work: amount of work, for types that were never measured.
        seconds: that the user expects, by resource or kind; empty: nothing was said.
        account: of the owner, as tasks of several owners take turns.

    """

    type: str
    kinds: frozenset[str]
    resources: frozenset[str]
    work: float
    seconds: Mapping[str, float] = field(default_factory=dict)
    account: OwnerAccount = NOBODY


class Yield(msgspec.Struct, frozen=True, tag=True):
    """A running task is to leave its resource at its next checkpoint.

    Attributes:
        destination: the resource to wait for then; None: the policy chooses one.
        makes_way: the slot is for the task that waits first there.
        requeue: progress that is not saved may be lost; set when a hold with it was released.

    """

    destination: str | None = None
    makes_way: bool = False
    requeue: bool = False


class Hold(msgspec.Struct, frozen=True, tag=True):
    """A running task is to wait for its owner.

    Attributes:
        yields: it was asked to leave its resource; otherwise it is suspended there.
        makes_way: the slot is for the task that waits first there.
        requeue: progress that is not saved may be lost.

    """

    yields: bool = False
    makes_way: bool = False
    requeue: bool = False


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """A running task is to end as cancelled, whatever was wanted before.

    Attributes:
        reason: for the owner.
        makes_way: the slot was for the task that waits first there, before the cancellation.

    """

    reason: str
    makes_way: bool = False


Intent: TypeAlias = Yield | Hold | Cancel
"""Request that a running task has to follow at its next checkpoint."""


WAITS_IN_WORKER = (State.PREEMPTED, State.HELD, State.WAITING)
"""States in which a task may have a worker and no resource."""


class TaskRuntime(msgspec.Struct, omit_defaults=True):
    """The part of the scheduler's record of a task that outlives the shell.

    The shell stores this object, and passes it back after a restart.

    Attributes:
        resource: where it runs, or in whose run queue it waits.
        epoch: number of the current binding to a worker; 0 before the first.
        bound: whether a worker holds it (staged, running or preempted).
        intent: what is wanted of it while it runs; None: nothing, or it does not run.
        suspended: whether its process is stopped on its resource.
        pinned: the only resource on which its owner wants it; `excluded`: where it failed.
        failures: resource -> reason of its last failure there.
        checkpointed: whether it has reached a checkpoint since it came to its resource.
        not_started: it was dispatched behind others of a train and is not known to have
            started.
        progress: share done, 0 to 1, as last reported.
        kept: share that a snapshot holds, which survives the loss of a worker.
        furthest: the largest share that was ever done.
        attempts: bindings to a worker that were lost since `furthest` last grew.
        retried: how often it was run again after it had failed by itself.
        limit: share of the work at which it stops: others do the rest, as its parts.
        parts: the parts that were made of it, in the order of their creation.
        lent: whether its slot is that of a task which waits for it (`hetsched.lending`).

    """

    state: State = State.QUEUED
    resource: str | None = None
    epoch: int = 0
    bound: bool = False
    intent: Intent | None = None
    suspended: bool = False
    pinned: str | None = None
    excluded: frozenset[str] = frozenset()
    failures: dict[str, str] = {}
    checkpointed: bool = False
    not_started: bool = False
    progress: float = 0.0
    kept: float = 0.0
    furthest: float = 0.0
    attempts: int = 0
    retried: int = 0
    limit: float = 1.0
    parts: tuple[TaskId, ...] = ()
    lent: bool = False

    def durable(self) -> TaskRuntime:
        """Return a copy of the durable fields, without the rest of a live record."""
        return TaskRuntime(*durable_values(self))

    @property
    def left(self) -> float:
        """The share of the whole work that it still has to do itself, as last reported."""
        return max(self.limit - self.progress, 0.0)

    @property
    def runs(self) -> bool:
        """Whether it was given to a worker to run, and not behind others of a train."""
        return self.state is State.RUNNING and not self.not_started

    @property
    def in_worker(self) -> bool:
        """Whether a worker holds its state. Workers drop staged tasks at a restart."""
        return self.bound and (self.runs or self.state in WAITS_IN_WORKER)

    def reach(self, progress: float) -> None:
        """Record progress; a share that was never reached before resets the attempts."""
        self.progress = progress
        if progress > self.furthest:
            self.furthest = progress
            self.attempts = 0

    def record_failure(self, resource: str, reason: str) -> None:
        """Record why it failed on a resource, in a new dict: the old one may be stored elsewhere."""
        self.failures = {**self.failures, resource: reason[:LONGEST_FAILURE]}

    def failure_reason(self, reason: str) -> str:
        """Return why it fails, with the reason of each resource if there are several."""
        if len(self.failures) <= 1:
            return reason
        each = [f"{name}: {why}" for name, why in self.failures.items()]
        return f"failed on {len(self.failures)} resources: {'; '.join(each)}"

    @property
    def preempting(self) -> bool:
        """Whether a running task was asked to yield, and not to end."""
        intent = self.intent
        return isinstance(intent, Yield) or (isinstance(intent, Hold) and intent.yields)

    @property
    def destination(self) -> str | None:
        """The resource that a yielding task is to wait for; None: not known, or none."""
        return self.intent.destination if isinstance(self.intent, Yield) else None

    @property
    def holding(self) -> bool:
        """Whether a running task is to be held."""
        return isinstance(self.intent, Hold)

    @property
    def cancelling(self) -> str | None:
        """Why a running task is to end as cancelled; None: it is not."""
        return self.intent.reason if isinstance(self.intent, Cancel) else None

    @property
    def makes_way(self) -> bool:
        """Whether its slot is for the task that waits first for its resource."""
        return self.intent is not None and self.intent.makes_way

    @property
    def requeuing(self) -> bool:
        """Whether it may lose progress that is not saved as it yields."""
        return isinstance(self.intent, Yield | Hold) and self.intent.requeue

    @property
    def leaving(self) -> bool:
        """Whether a running task was asked to yield or to end."""
        return self.preempting or isinstance(self.intent, Cancel)


durable_values: Callable[[TaskRuntime], tuple[Any, ...]]
durable_values = attrgetter(*TaskRuntime.__struct_fields__)
"""Returns the durable fields of a record, in the order of `TaskRuntime`."""


class TaskRecord(TaskRuntime, kw_only=True, eq=False):
    """A task as the scheduler knows it. Policies only read it.

    Attributes:
        charge: what its owner is charged for the rest of it, in virtual seconds.
        unmet: unfinished tasks that must end first, as the conditions of its submission say.
        needed: whether a task of `after_notok` did not complete, or there is none.
        not_before: instant before which it may not begin.
        progress_at: instant at which `progress` was reported.
        attained: `ResourceState.attained` of its resource at `progress_at`, if that is shared.
        since: instant at which it came to its present resource; `progress_then`: the
            share done by then.
        last_resource: where it runs, or ran last; `came_from`: where it ran before that;
            `moves`: how often it changed resources; `tried`: those on which its
            application had not been measured when it moved there, and was to be tried.
        rule: name of the rule that placed or preempted it, for users.
        train: the tasks that one worker has in one slot, in order, with this one;
            None: it has the slot to itself.
        recalled: its worker was asked to give it back, as it has not started.
        never_in_train: it was in a train whose worker was lost, and must not be in one again.
        needs: its needs while it runs, at most what the node has.
        gated: number of releases of needs when it was refused a free slot; -1: it was not.
        splits_for: the resource for which its worker was asked to give up strips.
        granule: share of its work at whose multiples parts begin, as its worker said; 0:
            it was not asked.
        parts_left: those of its parts that have not ended.

    """

    id: TaskId
    row: Row
    submitted: e.TaskSubmitted
    arrival: Nanoseconds
    sequence: int
    rank: float = 0.0
    charge: float = 0.0
    unmet: set[TaskId] | frozenset[TaskId] = frozenset()
    needed: bool = True
    not_before: Nanoseconds = 0
    progress_at: Nanoseconds = 0
    attained: Nanoseconds = 0
    since: Nanoseconds = 0
    progress_then: float = 0.0
    last_resource: str | None = None
    came_from: str | None = None
    moves: int = 0
    tried: tuple[str, ...] = ()
    rule: str = ""
    train: list[TaskRecord] | None = None
    recalled: bool = False
    never_in_train: bool = False
    needs: Needs | None = None
    gated: int = -1
    splits_for: str | None = None
    granule: float = 0.0
    parts_left: frozenset[TaskId] = frozenset()
    story: list[tuple[Nanoseconds, State, Step, State]] = []

    @property
    def assigned_to(self) -> str:
        """Name of the resource of a task that runs, or waits for a resource.

        Raises:
            BugError: it has no resource.

        """
        if self.resource is None:
            raise BugError(
                f"task {self.id} is {self.state}, on no resource: {self.describe_story()}"
            )
        return self.resource

    @property
    def lasting_moves(self) -> int:
        """Number of its moves, without those that only tried a resource."""
        return self.moves - len(self.tried)

    @property
    def preemptible(self) -> bool:
        """Whether it may be stopped and continued elsewhere."""
        return self.submitted.preemptible

    @property
    def gives_strips(self) -> bool:
        """Whether strips that its worker gave up now become a part."""
        return self.splits_for is not None and self.intent is None

    @property
    def awaits_parts(self) -> bool:
        """Whether it has done its own strips, and parts of it have not."""
        return bool(self.parts_left) and not self.left

    @property
    def priority(self) -> int:
        return self.submitted.priority

    def describe_story(self) -> str:
        """Return the task's steps in one line."""
        return "; ".join(
            f"{now}: {before} -{step}-> {after}"
            for now, before, step, after in self.story
        )
