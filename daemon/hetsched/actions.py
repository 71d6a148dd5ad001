"""Actions: what the scheduler wants its shell to do. Imperatives."""

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
    """Run the task on this resource; stage it first where it is not.

    Attributes:
        after: the task behind which the worker is to run it, in the same slot; None: it
            runs now.

    """

    task: TaskId
    epoch: int
    resource: str
    after: TaskId | None = None


class Begin(msgspec.Struct, frozen=True):
    """Take note that a task which was ordered behind another one runs from now on."""

    task: TaskId
    epoch: int


class Recall(msgspec.Struct, frozen=True):
    """Make the worker give back a task that was ordered behind another, if it is not begun."""

    task: TaskId
    epoch: int


class Preempt(msgspec.Struct, frozen=True):
    """Ask the running task to yield at its next checkpoint.

    `requeue`: whatever it has not saved may be lost.
    """

    task: TaskId
    epoch: int
    requeue: bool = False


class Suspend(msgspec.Struct, frozen=True):
    """Stop a running task where it is; not `on`: let it go on."""

    task: TaskId
    epoch: int
    on: bool


class Abort(msgspec.Struct, frozen=True):
    """Make the worker give the task up; a staged one at once, a running one at a checkpoint."""

    task: TaskId
    epoch: int


class Record(msgspec.Struct, frozen=True):
    """Keep and publish that a task entered a state.

    Attributes:
        event: name of what happened, for the task's story.
        resource: where it runs, or whose run queue it waits in.

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
    """Keep what is known against a pair; None: nothing any more."""

    pair: Pair
    circuit: Circuit | None


Action: TypeAlias = (
    Stage
    | Run
    | Begin
    | Recall
    | Preempt
    | Suspend
    | Abort
    | Record
    | SetTimer
    | KeepCircuit
)
