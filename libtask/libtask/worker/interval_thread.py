"""Threads that serve the link while the main thread computes a task.

The main thread reads messages between tasks and at checkpoints. A call of a function has no
checkpoint: without these threads, the tasks behind one that takes unexpectedly long would wait
for it, although hetd has recalled them to run them elsewhere, so would the ends of tasks before
it that are held back (`Link.send_batched`), and a call that is cancelled would compute on.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from libtask.kept_threads import keep

if TYPE_CHECKING:
    from collections.abc import Callable


class IntervalThread:
    """Calls a function at intervals, as long as that is needed.

    Args:
        name: of the thread.
        interval_s: seconds between two calls; each keeps the main thread from computing.
        serve: the function; returns whether it must be called again.

    """

    def __init__(self, name: str, interval_s: float, serve: Callable[[], bool]) -> None:
        self._name = name
        self._interval_s = interval_s
        self._serve = serve
        self._needed = threading.Event()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Call the function from now on, until that is not needed any more."""
        if self._needed.is_set():
            return
        self._needed.set()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=self._name, daemon=True
            )
            keep(self._thread)
            self._thread.start()

    def _run(self) -> None:
        while True:
            self._needed.wait()
            time.sleep(self._interval_s)
            self._needed.clear()
            if self._serve():
                self._needed.set()
