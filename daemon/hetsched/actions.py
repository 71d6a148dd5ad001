"""Actions: what the scheduler asks its shell to do. Their names are imperatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from hetsched.breaker import Circuit, Pair
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.tasks import State


class Stage(msgspec.Struct, frozen=True):
    """Bind the task to a worker and load its inputs."""

    task: TaskId
    epoch: int


class Run(msgspec.Struct, frozen=True):
    """Run the task on this resource; stage it first if it is not staged.

    Attributes:
        after: the task behind which the worker runs it, in the same slot; None: it runs
            now.

    """

    task: TaskId
    epoch: int
    resource: str
    after: TaskId | None = None


class Begin(msgspec.Struct, frozen=True):
    """Note that a task which was dispatched behind another one has started."""

    task: TaskId
    epoch: int


class Recall(msgspec.Struct, frozen=True):
    """Make the worker give back a task of a train, unless it has started."""

    task: TaskId
    epoch: int


class Preempt(msgspec.Struct, frozen=True):
    """Ask the running task to yield at its next checkpoint.

    `requeue`: progress that is not saved may be lost.
    """

    task: TaskId
    epoch: int
    requeue: bool = False


class Split(msgspec.Struct, frozen=True):
    """Ask the running task to stop at this share of its work; `StripsGiven` answers."""

    task: TaskId
    epoch: int
    limit: float


class Suspend(msgspec.Struct, frozen=True):
    """Stop the process of a running task; not `on`: resume it."""

    task: TaskId
    epoch: int
    on: bool


class Abort(msgspec.Struct, frozen=True):
    """Make the worker abort the task: a staged one at once, a running one at a checkpoint."""

    task: TaskId
    epoch: int


class Record(msgspec.Struct, frozen=True):
    """Store and publish that a task entered a state.

    Attributes:
        event: name of what happened, for the task's history.
        resource: where it runs, or in whose run queue it waits.

    """

    task: TaskId
    state: State
    event: str
    resource: str | None = None
    reason: str | None = None


class SetTimer(msgspec.Struct, frozen=True):
    """Send `TimerFired` at this instant; replaces an earlier timer."""

    at: Nanoseconds


class KeepCircuit(msgspec.Struct, frozen=True):
    """Store the circuit of a pair; None: delete it."""

    pair: Pair
    circuit: Circuit | None


Action: TypeAlias = (
    Stage
    | Run
    | Begin
    | Recall
    | Preempt
    | Split
    | Suspend
    | Abort
    | Record
    | SetTimer
    | KeepCircuit
)
