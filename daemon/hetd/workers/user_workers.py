"""The launcher and the workers of one user, as the pool knows them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetd.transport.router import Peer


@dataclass(eq=False, slots=True)
class Worker:
    """A worker that said hello."""

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
    """Tasks, no longer its own, that it was told to give up and has not answered for."""
    leaving: bool = False
    """It takes no further order."""
    started: int = 0
    """When its process started, in clock ticks since the boot; 0: not known."""

    @property
    def tasks(self) -> list[int]:
        """All tasks that it has, in the order in which it runs them."""
        return [] if self.task is None else [self.task, *self.behind]

    def take(self, task: int) -> None:
        """Have one more task, after the others."""
        if self.task is None:
            self.task = task
        else:
            self.behind.append(task)

    def drop(self, task: int) -> None:
        """Have a task no more; the next one is its first."""
        if self.task == task:
            self.task = self.behind.pop(0) if self.behind else None
        else:
            self.behind.remove(task)


@dataclass(eq=False, slots=True)
class UserWorkers:
    """One user's launcher and workers."""

    launcher: Peer | None = None
    hung: bool = False
    """The launcher has not made the workers that it was asked for."""
    activity: int = 0
    """Signs of life of the launcher so far."""
    idle: list[Worker] = field(default_factory=list)
    starting: set[str] = field(default_factory=set)
    """Workers that the launcher was asked for."""
    overdue: set[str] = field(default_factory=set)
    """Such for which others were asked for since; they may still come."""
    waiting: deque[int] = field(default_factory=deque)
    """Tasks that need a worker, in the order they asked."""
    paused: bool = False
    """The system had no process for a worker: none is asked for before `ask_again`."""
    failed_starts: int = 0
    """How often in a row that was so."""
    supervised: set[str] = field(default_factory=set)
    """Workers that the launcher made: it will tell how they end."""

    def stop_waiting(self) -> None:
        """Let other workers be asked for in place of those that did not come."""
        self.overdue |= self.starting
        self.starting.clear()

    def expects(self, name: str) -> bool:
        return name in self.starting or name in self.overdue

    def settle_start(self, name: str) -> bool:
        """Take note of a worker that came, or never will; False: nobody asked for it."""
        known = self.expects(name)
        self.starting.discard(name)
        self.overdue.discard(name)
        return known

    def forget_asked(self) -> None:
        """Forget what the launcher was asked for: there is another one, or none."""
        self.starting.clear()
        self.overdue.clear()

    @property
    def hung_launcher(self) -> int:
        """Process of the launcher if it hangs; 0: it does not, or there is none."""
        return self.launcher.pid if self.launcher is not None and self.hung else 0

    def record_activity(self) -> None:
        """Take note that the launcher does something."""
        self.activity += 1
        self.hung = False
