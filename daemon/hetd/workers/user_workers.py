"""The launcher and the workers of one user, as the pool knows them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetd.transport.router import Peer
    from hetd.workers.binding import Binding, Worker


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
    waiting: deque[Binding] = field(default_factory=deque)
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
