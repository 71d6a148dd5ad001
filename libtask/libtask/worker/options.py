"""The options of a worker, and the limits of its lifetime."""

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
"""Bytes of a task's data from which a garbage collection runs at its end."""
LOOKED_AT_MEMORY = 256
"""Number of tasks between two checks of the worker's memory."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of a worker.

    Attributes:
        name: its name in messages to hetd.
        socket: hetd's socket.
        log: file of its standard output and error; empty: a terminal.
        own: it is the user's own program and exits after its first task.
        tasks: number of tasks after which it exits.
        growth: growth of its memory in bytes after which it exits.
        snapshots: folder of its user's snapshots; empty: it writes none.
        disposal_s: seconds for freeing an ended task's objects, after which the kernel
            kills the process, which cannot receive commands meanwhile; 0: unlimited.
            Uses SIGALRM and the interval timer, so the process must be dedicated.
        processes: maximum processes and threads of its user; 0: unlimited.
        page: page for its current phase; None: not recorded.
        origin: name of the attachment with its origin; empty: that of its launcher.

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
    origin: str = ""


class Lifetime:
    """The age of a worker, and its limits.

    Args:
        options: the worker's options, with the limits.

    """

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._tasks = 0
        self._memory_limit = memory_in_use() + options.growth

    def is_over(self, spec: TaskSpec, seconds: float) -> bool:
        """Free the memory of an ended task; return whether the worker must exit.

        Args:
            spec: the task.
            seconds: its duration.

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
        """Start a timer that kills this process unless `is_over` is called soon.

        An application's `__del__` may hang, and the process would receive no commands.
        """
        if not self._options.disposal_s:
            return
        if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, self._options.disposal_s)
