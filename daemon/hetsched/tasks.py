"""The scheduler's record of a task, its states, and the table of transitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from hetsched import events as e
from libtask.errors import BugError

if TYPE_CHECKING:
    from hetsched.ids import Nanoseconds, TaskId


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
        """Whether the task waits for a resource, and for nothing else."""
        return self in PLACEABLE


PLACEABLE = (State.QUEUED, State.PREEMPTED)
_ENDED = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED, State.DROPPED})

# What an event does to a state. An absent pair is impossible and raises; pairs with the
# same state on both sides are told and change nothing. `Dispatched`, `Dropped`,
# `Retried`, `Restored…` and `Dependenc...` are steps of the scheduler itself.
TRANSITIONS: dict[tuple[State, str], State] = {
    (State.HELD, "TaskReleased"): State.QUEUED,
    (State.HELD, "TaskCancelled"): State.CANCELLED,
    (State.HELD, "WorkerLost"): State.HELD,
    (State.HELD, "DependenciesAwaited"): State.WAITING,
    (State.HELD, "DependencyEnded"): State.CANCELLED,
    (State.WAITING, "DependenciesMet"): State.QUEUED,
    (State.WAITING, "DependencyEnded"): State.CANCELLED,
    (State.WAITING, "TaskHeld"): State.HELD,
    (State.WAITING, "TaskCancelled"): State.CANCELLED,
    (State.QUEUED, "DependenciesAwaited"): State.WAITING,
    (State.QUEUED, "Restored"): State.RUNNING,
    (State.QUEUED, "RestoredWaiting"): State.PREEMPTED,
    (State.QUEUED, "Dispatched"): State.RUNNING,
    (State.QUEUED, "TaskHeld"): State.HELD,
    (State.QUEUED, "TaskCancelled"): State.CANCELLED,
    (State.QUEUED, "Dropped"): State.DROPPED,
    (State.QUEUED, "TaskFailed"): State.FAILED,
    (State.QUEUED, "WorkerLost"): State.QUEUED,
    (State.PREEMPTED, "Restored"): State.RUNNING,
    (State.PREEMPTED, "TaskFinished"): State.COMPLETED,
    (State.HELD, "TaskFinished"): State.COMPLETED,
    (State.PREEMPTED, "Dispatched"): State.RUNNING,
    (State.PREEMPTED, "TaskHeld"): State.HELD,
    (State.PREEMPTED, "TaskCancelled"): State.CANCELLED,
    (State.PREEMPTED, "Dropped"): State.DROPPED,
    (State.PREEMPTED, "TaskFailed"): State.FAILED,
    (State.PREEMPTED, "WorkerLost"): State.QUEUED,
    (State.RUNNING, "TaskYielded"): State.PREEMPTED,
    (State.RUNNING, "TaskFinished"): State.COMPLETED,
    (State.RUNNING, "TaskFailed"): State.FAILED,
    (State.RUNNING, "TaskAborted"): State.CANCELLED,
    (State.RUNNING, "Retried"): State.QUEUED,
    (State.RUNNING, "Returned"): State.QUEUED,
    (State.RUNNING, "WorkerLost"): State.QUEUED,
}


LONGEST_STORY = 200
"""Steps kept of a task's story; one that is moved all the time must not fill memory."""
LONGEST_FAILURE = 400
"""Characters kept of the reason why it failed on one of several resources."""


@dataclass(eq=False, slots=True)
class Row:
    """What tasks with the same expectations share: a row of the tables.

    Interned by the scheduler, so that rows compare and hash by identity.

    Attributes:
        type: task type.
        kinds: kinds of resources with an implementation.
        resources: allowed names; empty: any.
        work: amount of work, for types never measured.

    """

    type: str
    kinds: frozenset[str]
    resources: frozenset[str]
    work: float


@dataclass(eq=False, slots=True)
class TaskRecord:
    """A task as the scheduler knows it. Policies read it and never write it.

    Attributes:
        resource: where it runs, or whose run queue it waits in.
        turn: where it stands among tasks of several users that are alike otherwise.
        epoch: the current binding to a worker; 0 before the first.
        bound: whether a worker holds it (staged, running or preempted).
        preempting: a yield was asked for.
        destination: where it goes once it has yielded.
        makes_way: it was asked to yield for a task that waits where it runs.
        holding: it is to be held once it has yielded.
        suspended: it is stopped where it runs; `requeuing`: it is to leave, and to begin anew.
        cancelling: why it was asked to give up while running.
        pinned: the only resource its owner wants it on; `excluded`: where it failed.
        failures: resource -> why it failed there, last.
        checkpointed: whether it has reached a checkpoint since it came to its resource.
        unmet: unfinished tasks that must complete first.
        progress: share done, 0 to 1, as last reported at `progress_at`.
        turned: `ResourceState.turned` of its resource at `progress_at`, if that is shared.
        kept: the part of it that a snapshot holds: what a lost worker does not take along.
        furthest: the largest share that was ever done.
        attempts: bindings to a worker lost since it last got further.
        since: instant at which it came to its present resource; `progress_then`: the
            share done by then.
        last_resource: where it runs, or ran last; `came_from`: where it ran before that;
            `moves`: how often it went on elsewhere.
        rule: the rule that put it where it is, or sends it away, for users.
        train: the tasks that one worker has in one slot, in order, this one among them;
            None: it is alone there.
        unbegun: it was ordered behind others of a train and is not known to have begun;
            `recalled`: its worker was asked to give it back then.
        alone: it is never to be in a train again: one of its worker's was lost.

    """

    id: TaskId
    row: Row
    submitted: e.TaskSubmitted
    arrival: Nanoseconds
    sequence: int
    state: State = State.QUEUED
    resource: str | None = None
    rank: float = 0.0
    turn: float = 0.0
    epoch: int = 0
    bound: bool = False
    preempting: bool = False
    holding: bool = False
    suspended: bool = False
    requeuing: bool = False
    cancelling: str | None = None
    destination: str | None = None
    makes_way: bool = False
    pinned: str | None = None
    excluded: frozenset[str] = frozenset()
    failures: dict[str, str] = field(default_factory=dict)
    checkpointed: bool = False
    unmet: set[TaskId] | frozenset[TaskId] = frozenset()
    progress: float = 0.0
    progress_at: Nanoseconds = 0
    turned: Nanoseconds = 0
    kept: float = 0.0
    furthest: float = 0.0
    since: Nanoseconds = 0
    progress_then: float = 0.0
    last_resource: str | None = None
    came_from: str | None = None
    moves: int = 0
    rule: str = ""
    train: list[TaskRecord] | None = None
    unbegun: bool = False
    recalled: bool = False
    alone: bool = False
    attempts: int = 0
    story: list[tuple[Nanoseconds, State, str, State]] = field(default_factory=list)

    def get_to(self, progress: float) -> None:
        """Note a share done; one never reached before gives it all its attempts back."""
        self.progress = progress
        if progress > self.furthest:
            self.furthest = progress
            self.attempts = 0

    def note_failure(self, resource: str, reason: str) -> None:
        """Note why it failed on a resource; the journal may hold the former dict."""
        self.failures = {**self.failures, resource: reason[:LONGEST_FAILURE]}

    def why_failed(self, reason: str) -> str:
        """Tell why it fails: for each resource, where it failed on several."""
        if len(self.failures) <= 1:
            return reason
        each = (f"{name}: {why}" for name, why in self.failures.items())
        return f"failed on {len(self.failures)} resources: {'; '.join(each)}"

    @property
    def preemptible(self) -> bool:
        """Whether it may be stopped, to go on elsewhere."""
        return self.submitted.preemptible

    @property
    def priority(self) -> int:
        return self.submitted.priority

    def advance(self, event: str, now: Nanoseconds) -> State:
        """Enter the state that `event` leads to.

        Raises:
            BugError: the event is impossible in the present state.

        """
        successor = TRANSITIONS.get((self.state, event))
        if successor is None:
            raise BugError(
                f"task {self.id}: {event} is impossible while {self.state}; "
                f"its story: {self.tell()}"
            )
        if len(self.story) >= LONGEST_STORY:
            del self.story[: LONGEST_STORY // 2]
        self.story.append((now, self.state, event, successor))
        self.state = successor
        return successor

    def tell(self) -> str:
        """Tell what the task went through, in one line."""
        return "; ".join(
            f"{now}: {before} -{event}-> {after}"
            for now, before, event, after in self.story
        )
