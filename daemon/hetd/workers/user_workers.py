"""The launcher and the workers of one user, as the pool knows them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetd.transport.router import Peer


@dataclass(eq=False, slots=True)
class Worker:
    """A registered worker."""

    name: str
    uid: int
    route: bytes
    pid: int
    own: bool = False
    """Started by the user's own program: it runs only the task that it submitted."""
    task: int | None = None
    behind: list[int] = field(default_factory=list)
    """Tasks that it has after that one, in order."""
    aborting: set[int] = field(default_factory=set)
    """Unbound tasks whose `Abort` it has not answered yet."""
    leaving: bool = False
    """It accepts no further command."""
    started: int = 0
    """When its process started, in clock ticks since the boot; 0: unknown."""

    @property
    def tasks(self) -> list[int]:
        """All tasks that it has, in the order in which it runs them."""
        return [] if self.task is None else [self.task, *self.behind]

    def take(self, task: int) -> None:
        """Add a task behind the others."""
        if self.task is None:
            self.task = task
        else:
            self.behind.append(task)

    def drop(self, task: int) -> None:
        """Remove a task; the one behind it becomes the first."""
        if self.task == task:
            self.task = self.behind.pop(0) if self.behind else None
        else:
            self.behind.remove(task)


@dataclass(eq=False, slots=True)
class UserWorkers:
    """One user's launcher and workers."""

    launcher: Peer | None = None
    hung: bool = False
    """The launcher has not started the workers that it was asked for."""
    activity: int = 0
    """Messages by which the launcher showed that it works, so far."""
    idle: list[Worker] = field(default_factory=list)
    starting: set[str] = field(default_factory=set)
    """Workers that the launcher was asked for."""
    overdue: set[str] = field(default_factory=set)
    """Requested workers for which others were requested since; they may still come."""
    waiting: deque[int] = field(default_factory=deque)
    """Tasks that need a worker, in the order they asked."""
    paused: bool = False
    """The system had no process for a worker; wait for `ask_again`."""
    failed_starts: int = 0
    """Consecutive requests for which the system had no process."""
    supervised: set[str] = field(default_factory=set)
    """Workers that the launcher started, and whose exit it will report."""

    def stop_waiting(self) -> None:
        """Allow other workers to be requested in place of those that did not come."""
        self.overdue |= self.starting
        self.starting.clear()

    def expects(self, name: str) -> bool:
        return name in self.starting or name in self.overdue

    def settle_start(self, name: str) -> bool:
        """Remove a worker that came or failed from those requested.

        Returns:
            Whether it had been requested.

        """
        known = self.expects(name)
        self.starting.discard(name)
        self.overdue.discard(name)
        return known

    def forget_asked(self) -> None:
        """Forget all requested workers: the launcher was replaced or left."""
        self.starting.clear()
        self.overdue.clear()

    @property
    def hung_launcher(self) -> int:
        """Pid of the launcher if it hangs, else 0."""
        return self.launcher.pid if self.launcher is not None and self.hung else 0

    def record_activity(self) -> None:
        """Record that the launcher works."""
        self.activity += 1
        self.hung = False
