"""Cleanup of processes that an ended task leaves running.

A worker serves the user's next task only if its state is as good as a new process's.
"""

from __future__ import annotations

import signal
import sys

from libtask.kept_threads import stray_threads
from libtask.processes import end_children, has_children

PATIENCE_S = 2.0
"""Seconds for killed processes to exit; only a process stuck in a driver takes longer."""


class TaskCleanup:
    """Ends the processes that tasks leave; created before the first task starts."""

    def __init__(self) -> None:
        self._on_terminate = signal.getsignal(signal.SIGTERM)

    def end_processes(self) -> bool:
        """End every process that the ended task started.

        Returns:
            Whether the worker can serve another task. It cannot if a thread still
            runs, a process does not exit, or the task replaced the SIGTERM handler.

        """
        replaced = signal.getsignal(signal.SIGTERM) is not self._on_terminate
        return self._kill_children() and not replaced and not stray_threads()

    def _kill_children(self) -> bool:
        # A single system call if there are none, which is the usual case.
        if not has_children():
            return True
        ended = end_children(PATIENCE_S)
        if not ended:
            sys.stderr.write("libtask: processes that the task started do not exit\n")
        return ended
