"""A worker's terms: what it is told when it is made, and how long it serves."""

from __future__ import annotations

import gc
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.worker.environment import memory_in_use

if TYPE_CHECKING:
    from libtask.messages import TaskSpec
    from libtask.phase import PhasePage

BIG = 64 << 20
"""Bytes of a task that are worth a garbage collection when it ends."""
LOOKED_AT_MEMORY = 256
"""Tasks between two looks at the worker's own memory."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What a worker is told when it is started.

    Attributes:
        name: its name with hetd.
        socket: hetd's socket.
        log: the file that is its standard output and error; empty: a terminal.
        own: it is the user's own program, and ends with its first task.
        tasks: it retires after so many.
        growth: it retires when it has grown by so many bytes.
        snapshots: folder of its user's snapshots; empty: it writes none.
        disposal_s: seconds that an ended task's objects may take to go; the process is
            killed then, as it hears no order meanwhile; 0: any time. It takes SIGALRM and
            the interval timer, which only a process made for it can give.
        processes: processes and threads that its user may have; 0: any number.
        page: where it says what it does just now; None: nobody wants to know.

    """

    name: str
    socket: Path
    log: str = ""
    own: bool = False
    tasks: int = 10_000
    growth: int = 1 << 30
    snapshots: str = ""
    disposal_s: float = 0.0
    processes: int = 0
    page: PhasePage | None = None


class Lifetime:
    """How long a worker has served; see `WorkerOptions` for how long it may.

    Args:
        terms: what it was told when it was made.

    """

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._tasks = 0
        self._memory_limit = memory_in_use() + options.growth

    def is_over(self, spec: TaskSpec, seconds: float) -> bool:
        """Give the memory of an ended task back; say whether it is time to retire.

        Args:
            spec: the task.
            seconds: what it took.

        """
        if self._options.disposal_s:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        self._tasks += 1
        big = spec.input_bytes + spec.state_bytes >= BIG
        if big:
            gc.collect()
        looks = big or seconds > 1 or self._tasks % LOOKED_AT_MEMORY == 0
        if looks and memory_in_use() > self._memory_limit:
            return True
        return self._tasks >= self._options.tasks

    def begin_disposal(self) -> None:
        """Let the kernel end this process if `is_over` is not asked soon.

        An application's `__del__` may hang, and this process would hear no order any more.
        """
        if not self._options.disposal_s:
            return
        if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, self._options.disposal_s)
