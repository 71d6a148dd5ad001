"""The vigil: for how long a running task may be silent before something is wrong.

Pure bookkeeping, of tasks that run; `Discipline` asks it what is overdue and acts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetd.core.system import SECOND

if TYPE_CHECKING:
    from hetd.core.events import Nanoseconds, TaskId

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
        deadline: when it must have reached a checkpoint.
        reports: how often it reported strips.
        usual: the longest mean time of a strip that it reported.
        ordered: it was asked to yield, and reports put nothing off any more.

    """

    epoch: int
    copying: Nanoseconds
    deadline: Nanoseconds
    reports: int = 0
    usual: Nanoseconds = 0
    ordered: bool = False


class Vigil:
    """Deadlines of running tasks.

    Args:
        strip_s: how long any strip may take, seconds.
        setup_s: how long loading, compiling and the first strip may take together, and
            how long saving may.

    """

    def __init__(self, strip_s: float, setup_s: float) -> None:
        self._strip = int(strip_s * SECOND)
        self._setup = int(setup_s * SECOND)
        self._watched: dict[TaskId, Watched] = {}

    def begin(
        self, task: TaskId, epoch: int, state_bytes: int, now: Nanoseconds
    ) -> None:
        """Watch a task that was told to run, or that changed its worker."""
        copying = int(state_bytes / COPY_BYTES_PER_S * SECOND)
        self._watched[task] = Watched(epoch, copying, now + self._setup + copying)

    def progressed(
        self, task: TaskId, mean_strip_s: float, *, complete: bool, now: Nanoseconds
    ) -> None:
        """Take note of a report of strips; `complete`: the last one is done."""
        watched = self._watched.get(task)
        if watched is None:
            return
        watched.reports += 1
        watched.usual = max(watched.usual, int(mean_strip_s * SECOND))
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
        return max(self._strip, USUAL_STRIPS * watched.usual) + watched.copying

    def _complaint(self, watched: Watched) -> str:
        if watched.reports < SETTLED:
            seconds = (self._setup + watched.copying) / SECOND
            return f"no strip was finished in {seconds:.3g} s"
        seconds = self._limit(watched) / SECOND
        if watched.ordered:
            return f"did not yield within {seconds:.3g} s"
        return f"no checkpoint was reached in {seconds:.3g} s"
