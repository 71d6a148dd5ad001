"""The vigil: for how long a running task may be silent before something is wrong.

Pure bookkeeping, of tasks that run; `Discipline` asks it what is overdue and acts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.system import SECOND

if TYPE_CHECKING:
    from hetsched.ids import Nanoseconds, TaskId

WORKER_S = 90.0
"""For a worker to come to a task that has a slot: launchers fork in milliseconds."""
USUAL_STRIPS = 20
"""A strip may take so many times as long as the task's strips usually take."""
COPY_BYTES_PER_S = 50e6
"""At least as fast is state copied, or written to a disk, at a checkpoint."""
SETTLED = 2
"""Reports, 0.1 s apart, after which strips alone are waited for: what is compiled at
the first strip has been by then."""


@dataclass(slots=True)
class Watched:
    """A running task, as the vigil knows it.

    Attributes:
        epoch: the binding that it runs under.
        copying: time that a checkpoint may take besides, for its state.
        least: time that any strip may take.
        heard: when it was told to run, or last reported strips.
        deadline: when it must have reached a checkpoint.
        served: whether it has a worker; if not, `deadline` is for one to come.
        reports: how often it reported strips.
        usual: the longest mean time of a strip that it reported.
        ordered: it was asked to yield, and reports put nothing off any more.

    """

    epoch: int
    copying: Nanoseconds
    least: Nanoseconds
    heard: Nanoseconds
    deadline: Nanoseconds
    served: bool = True
    reports: int = 0
    usual: Nanoseconds = 0
    ordered: bool = False


class Vigil:
    """Deadlines of running tasks.

    Args:
        strip_s: how long any strip may take, seconds.
        setup_s: how long loading, compiling and the first strip may take together, and
            how long saving may.
        memory: bytes of the machine; no task has more state to copy, whatever it says.

    """

    def __init__(self, strip_s: float, setup_s: float, memory: int = 1 << 62) -> None:
        self._strip = int(strip_s * SECOND)
        self._setup = int(setup_s * SECOND)
        self._memory = memory
        self._watched: dict[TaskId, Watched] = {}

    def begin(
        self,
        task: TaskId,
        epoch: int,
        state_bytes: int,
        now: Nanoseconds,
        *,
        patient: bool = False,
    ) -> None:
        """Watch a task that a worker was told to run.

        Args:
            task: which one.
            epoch: the binding that it runs under.
            state_bytes: what it says that it has to copy.
            now: the present instant.
            patient: whether any strip may take as long as setting up, and not less.

        """
        copied = min(max(state_bytes, 0), self._memory)
        copying = int(copied / COPY_BYTES_PER_S * SECOND)
        least = max(self._strip, self._setup) if patient else self._strip
        deadline = now + self._setup + copying
        self._watched[task] = Watched(epoch, copying, least, now, deadline)

    def allow(self, task: TaskId, seconds: float) -> None:
        """Let a task take so much longer to reach a checkpoint: it has to save its state."""
        watched = self._watched[task]
        watched.copying += int(seconds * SECOND)
        watched.deadline += int(seconds * SECOND)

    def await_worker(self, task: TaskId, epoch: int, now: Nanoseconds) -> None:
        """Watch a task that was told to run, and for which a worker has still to come."""
        known = self._watched.get(task)
        if known is not None and known.epoch == epoch and not known.served:
            return
        deadline = now + int(WORKER_S * SECOND)
        self._watched[task] = Watched(
            epoch, 0, self._strip, now, deadline, served=False
        )

    def watches(self, task: TaskId, epoch: int) -> bool:
        """Whether a task has a deadline under this binding."""
        known = self._watched.get(task)
        return known is not None and known.epoch == epoch

    def is_served(self, task: TaskId, epoch: int) -> bool:
        """Whether a task is watched that has its worker."""
        known = self._watched.get(task)
        return known is not None and known.epoch == epoch and known.served

    def progressed(
        self, task: TaskId, mean_strip_s: float, *, complete: bool, now: Nanoseconds
    ) -> None:
        """Take note of a report of strips; `complete`: the last one is done."""
        watched = self._watched.get(task)
        if watched is None:
            return
        watched.reports += 1
        # no strip took longer than the time that has gone by, whatever is reported
        mean = min(int(mean_strip_s * SECOND), now - watched.heard)
        watched.usual = max(watched.usual, mean)
        watched.heard = now
        if complete or watched.reports < SETTLED:
            watched.deadline = now + self._setup + watched.copying
        elif not watched.ordered:
            watched.deadline = now + self._limit(watched)

    def ordered(self, task: TaskId, now: Nanoseconds) -> None:
        """Take note that a task was asked to yield: it may finish its strip."""
        watched = self._watched.get(task)
        if watched is not None and not watched.ordered:
            watched.ordered = True
            if watched.reports >= SETTLED:
                watched.deadline = now + self._limit(watched)

    def postpone(self, task: TaskId, until: Nanoseconds) -> None:
        """Look at a task again at `until`."""
        watched = self._watched.get(task)
        if watched is not None:
            watched.deadline = until

    def forget(self, task: TaskId) -> None:
        """Stop watching a task."""
        self._watched.pop(task, None)

    def overdue(self, now: Nanoseconds) -> list[tuple[TaskId, int, str]]:
        """List (task, epoch, what is wrong) of those whose deadline is over."""
        late = [
            (task, watched)
            for task, watched in self._watched.items()
            if watched.deadline <= now
        ]
        return [(task, each.epoch, self._complaint(each)) for task, each in late]

    def tasks(self) -> list[TaskId]:
        """List the tasks that are watched."""
        return list(self._watched)

    def _limit(self, watched: Watched) -> Nanoseconds:
        return max(watched.least, USUAL_STRIPS * watched.usual) + watched.copying

    def _complaint(self, watched: Watched) -> str:
        if not watched.served:
            return f"no worker came for it in {WORKER_S:g} s"
        if watched.reports < SETTLED:
            seconds = (self._setup + watched.copying) / SECOND
            return f"no strip was finished in {seconds:.3g} s"
        seconds = self._limit(watched) / SECOND
        if watched.ordered:
            return f"did not yield within {seconds:.3g} s"
        return f"no checkpoint was reached in {seconds:.3g} s"
