"""Leftovers: what an ended task leaves running in its worker, or below it.

A worker serves the user's next task only as a process that could as well be fresh.
"""

from __future__ import annotations

import signal
import sys
import threading

from libtask.processes import end_children, has_children

PATIENCE_S = 2.0
"""For the end of what was killed; longer takes only what a driver holds on to."""


class TaskCleanup:
    """Clears away what tasks leave; made before the first of them begins."""

    def __init__(self) -> None:
        self._on_terminate = signal.getsignal(signal.SIGTERM)

    def end_processes(self) -> bool:
        """End every process that the ended task started.

        Returns:
            Whether the worker can serve another task. It cannot beside a thread that
            still runs, with processes that do not end, or deaf to signals.

        """
        deaf = signal.getsignal(signal.SIGTERM) is not self._on_terminate
        return self._kill_children() and not deaf and not _threads()

    def _kill_children(self) -> bool:
        # One system call where there are none, as after nearly every task.
        if not has_children():
            return True
        ended = end_children(PATIENCE_S)
        if not ended:
            sys.stderr.write("libtask: processes that the task started do not end\n")
        return ended


def _threads() -> list[threading.Thread]:
    """List the Python threads beside this one; those of native libraries are warm."""
    own = threading.current_thread()
    return [thread for thread in threading.enumerate() if thread is not own]
