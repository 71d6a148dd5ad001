"""Deadlines: how long a running task may take until it reports.

The watchdog calls this module. Each deadline lies in the task's `Binding`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.system import SECOND

if TYPE_CHECKING:
    from hetsched.ids import Nanoseconds

WORKER_S = 90.0
"""For a worker to register for a task that has a slot: forks take milliseconds."""
USUAL_STRIPS = 20
"""A strip may take this many times as long as the task's usual strips."""
COPY_BYTES_PER_S = 50e6
"""Slowest rate at which state is copied, or written to a disk, at a checkpoint."""
NEVER: Nanoseconds = 1 << 62
"""Deadline of a task without one."""
SETTLED = 2
"""Reports, 0.1 s apart, after which only strips count: kernels are compiled by then."""


@dataclass(slots=True)
class WatchedTask:
    """A running task and its deadline.

    Attributes:
        copying: additional time for a checkpoint to copy its state, nanoseconds.
        least: time that any strip may take, nanoseconds.
        heard: when it began to run, or last reported strips.
        deadline: when it must have reached a checkpoint.
        served: whether it has a worker; if not, `deadline` is for one to register.
        reports: number of its reports of strips.
        usual: longest mean time of a strip that it reported, nanoseconds.
        ordered: it was asked to yield; reports extend the deadline no longer.

    """

    copying: Nanoseconds
    least: Nanoseconds
    heard: Nanoseconds
    deadline: Nanoseconds
    served: bool = True
    reports: int = 0
    usual: Nanoseconds = 0
    ordered: bool = False

    def extend(self, duration: Nanoseconds) -> None:
        """Give the task more time to reach each checkpoint: it has to save its state."""
        self.copying += duration
        self.deadline += duration


class Deadlines:
    """Deadlines of running tasks.

    Args:
        strip_s: seconds that any strip may take.
        setup_s: seconds for loading, compiling and the first strip together, and for
            saving.
        memory: bytes of the machine; caps the state that a task claims to have.

    """

    def __init__(self, strip_s: float, setup_s: float, memory: int = 1 << 62) -> None:
        self._strip = int(strip_s * SECOND)
        self._setup = int(setup_s * SECOND)
        self._memory = memory

    def begin(
        self,
        state_bytes: int,
        now: Nanoseconds,
        *,
        patient: bool = False,
        endless: bool = False,
    ) -> WatchedTask:
        """Return the deadline of a task that begins to run in a worker.

        Args:
            state_bytes: bytes of state that it claims to copy.
            now: the present instant.
            patient: whether any strip may take as long as setting up.
            endless: whether it has no checkpoints, and no deadline.

        """
        if endless:
            return WatchedTask(0, self._strip, now, NEVER)
        copied = min(max(state_bytes, 0), self._memory)
        copying = int(copied / COPY_BYTES_PER_S * SECOND)
        least = max(self._strip, self._setup) if patient else self._strip
        return WatchedTask(copying, least, now, now + self._setup + copying)

    def await_worker(self, now: Nanoseconds) -> WatchedTask:
        """Return the deadline for a worker to register for a task."""
        deadline = now + int(WORKER_S * SECOND)
        return WatchedTask(0, self._strip, now, deadline, served=False)

    def progressed(
        self,
        watched: WatchedTask,
        mean_strip_s: float,
        *,
        complete: bool,
        now: Nanoseconds,
    ) -> None:
        """Renew a deadline after a report of strips; `complete`: the last one is done."""
        watched.reports += 1
        # no strip took longer than the time since the last report
        mean = min(int(mean_strip_s * SECOND), now - watched.heard)
        watched.usual = max(watched.usual, mean)
        watched.heard = now
        if complete or watched.reports < SETTLED:
            watched.deadline = now + self._setup + watched.copying
        elif not watched.ordered:
            watched.deadline = now + self._limit(watched)

    def ordered(self, watched: WatchedTask, now: Nanoseconds) -> None:
        """Set the deadline of a task that was asked to yield: it may finish its strip."""
        if not watched.ordered:
            watched.ordered = True
            if watched.reports >= SETTLED:
                watched.deadline = now + self._limit(watched)

    def complaint(self, watched: WatchedTask) -> str:
        """Describe a missed deadline."""
        if not watched.served:
            return f"no worker came for it in {WORKER_S:g} s"
        if watched.reports < SETTLED:
            seconds = (self._setup + watched.copying) / SECOND
            return f"no strip was finished in {seconds:.3g} s"
        seconds = self._limit(watched) / SECOND
        if watched.ordered:
            return f"did not yield within {seconds:.3g} s"
        return f"no checkpoint was reached in {seconds:.3g} s"

    def _limit(self, watched: WatchedTask) -> Nanoseconds:
        return max(watched.least, USUAL_STRIPS * watched.usual) + watched.copying
