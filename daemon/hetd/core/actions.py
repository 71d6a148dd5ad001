"""Actions: what the scheduler wants its shell to do. Imperatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from hetd.core.events import Nanoseconds, TaskId
    from hetd.core.tasks import State


@dataclass(frozen=True, slots=True)
class Stage:
    """Bind the task to a worker and load its inputs."""

    task: TaskId
    epoch: int


@dataclass(frozen=True, slots=True)
class Run:
    """Run the task on this resource; stage it first where it is not."""

    task: TaskId
    epoch: int
    resource: str


@dataclass(frozen=True, slots=True)
class Preempt:
    """Ask the running task to yield at its next checkpoint."""

    task: TaskId
    epoch: int


@dataclass(frozen=True, slots=True)
class Abort:
    """Make the worker give the task up; a staged one at once, a running one at a checkpoint."""

    task: TaskId
    epoch: int


@dataclass(frozen=True, slots=True)
class Record:
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


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Send `TimerFired` at this instant; replaces an earlier timer."""

    at: Nanoseconds


Action: TypeAlias = Stage | Run | Preempt | Abort | Record | SetTimer
