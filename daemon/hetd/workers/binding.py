"""Workers, and the tasks that are bound to them or wait for one.

The pool makes a binding when a task is bound, and deletes it when the task is released. The
watchdog and the reports keep in it what they know of the task while it is bound.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hetd.tasks.worker_key import ANY_LAUNCHERS, WorkerKey

if TYPE_CHECKING:
    from hetd.tasks.page import HoldingProcess
    from hetd.workers.deadlines import WatchedTask
    from hetsched.ids import TaskId
    from libtask.messages import Message

REMEMBERED = 64
"""Tasks of a worker whose results are looked for."""


@dataclass(eq=False, slots=True)
class Binding:
    """A task and its worker.

    Attributes:
        owner: uid of the task's owner.
        epoch: its number; reports with another number are late. 0: the task is reserved for
            the program that submitted it, and no command was sent yet.
        worker: None while the task waits for one.
        expected: whether an unknown worker held the task before a restart, and has not
            registered since.
        backlog: commands for the worker that the task waits for.
        leader: task without a worker behind which this one runs; None: there is none.
        followers: tasks that run behind this one, which has no worker yet.
        watched: its deadline; None: it does not run.
        kill_reason: why its worker is being killed; empty: it is not. The task then avoids
            the resource.
        registered_again: whether its worker has registered with it, and has not reported
            since.
        told_to_run: whether `Run` was sent to its worker since that registered.
        key: its worker serves tasks with this key.
        device: accelerator that it was sent to; empty: none.

    """

    task: TaskId
    owner: int
    epoch: int
    worker: Worker | None = None
    expected: bool = False
    backlog: list[Message] = field(default_factory=list)
    leader: Binding | None = None
    followers: list[Binding] = field(default_factory=list)
    watched: WatchedTask | None = None
    kill_reason: str = ""
    registered_again: bool = False
    told_to_run: bool = False
    key: WorkerKey = ANY_LAUNCHERS
    device: str = ""

    @property
    def waits(self) -> bool:
        """Whether the task is in the queue of tasks that need a worker."""
        return self.worker is None and not self.expected

    @property
    def awaits_return(self) -> bool:
        """Whether its worker has not registered since a restart of the daemon."""
        return self.expected if self.worker is None else not self.worker.route


@dataclass(eq=False, slots=True)
class Worker:
    """A registered worker."""

    name: str
    uid: int
    route: bytes
    pid: int
    own: bool = False
    """Started by the user's own program: it runs only the task that it submitted."""
    bindings: list[Binding] = field(default_factory=list)
    """Tasks that it has, in the order in which it runs them."""
    aborting: set[int] = field(default_factory=set)
    """Unbound tasks whose `Abort` it has not answered yet."""
    process_ended: bool = False
    """Its process has ended, and its launcher has not said how."""
    leaving: bool = False
    """It accepts no further command."""
    served: bool = False
    """It may have had a task to its end, and have imported code that others do not need."""
    started: int = 0
    """When its process started, in clock ticks since the boot; 0: unknown."""
    process: HoldingProcess | None = None
    """Its process, as the pages of the tasks name it that it holds; None: not made yet."""
    key: WorkerKey = ANY_LAUNCHERS
    results: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """The last tasks that it ran on accelerators, where results of theirs may stay."""
