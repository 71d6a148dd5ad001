"""The launcher and the workers of one user, as the pool knows them."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from hetd.tasks.worker_key import WorkerKey
    from hetd.transport.router import Peer
    from hetd.workers.binding import Binding, Worker


@dataclass(eq=False, slots=True)
class UserWorkers:
    """One user's launcher and workers."""

    launcher: Peer | None = None
    hung: bool = False
    """The launcher has not started the workers that it was asked for."""
    yields: bool = False
    """The launcher exits when it has no workers: another one waits for that."""
    activity: int = 0
    """Messages by which the launcher showed that it works, so far."""
    idle: list[Worker] = field(default_factory=list)
    """Idle workers, the most recently used one last."""
    starting: dict[str, WorkerKey] = field(default_factory=dict)
    """Workers that the launcher was asked for."""
    overdue: dict[str, WorkerKey] = field(default_factory=dict)
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
        self.overdue.update(self.starting)
        self.starting.clear()

    def expects(self, name: str) -> bool:
        return name in self.starting or name in self.overdue

    def settle_start(self, name: str) -> WorkerKey | None:
        """Remove a worker that came or failed from those requested.

        Returns:
            The tasks that it can serve; None: it was not requested.

        """
        overdue = self.overdue.pop(name, None)
        return self.starting.pop(name, overdue)

    def take_idle(self, key: WorkerKey, inputs: Collection[int] = ()) -> Worker | None:
        """Return an idle worker for a task; it is not idle now.

        One that may have results of its `inputs` on a device, else the one used last.
        """
        chosen: Worker | None = None
        for worker in reversed(self.idle):
            if worker.key.serves(key):
                chosen = chosen or worker
                if not inputs or any(each in worker.results for each in inputs):
                    chosen = worker
                    break
        if chosen is not None:
            self.idle.remove(chosen)
        return chosen

    def take_waiting(self, key: WorkerKey) -> Binding | None:
        """Return the first task that waits for such a worker; it does not wait now."""
        for binding in self.waiting:
            if key.serves(binding.key):
                self.waiting.remove(binding)
                return binding
        return None

    def first_lacking(self, key: WorkerKey) -> Binding | None:
        """Return the first waiting task if fewer such workers were requested than wait."""
        waiting = [binding for binding in self.waiting if binding.key == key]
        requested = sum(each == key for each in self.starting.values())
        return waiting[0] if len(waiting) > requested else None

    def missing(self) -> dict[WorkerKey, int]:
        """Count the workers that waiting tasks need and that were not requested."""
        needed = Counter(binding.key for binding in self.waiting)
        return dict(needed - Counter(self.starting.values()))

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
