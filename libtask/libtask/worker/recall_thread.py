"""The thread that serves the link while the main thread computes a task.

The main thread reads messages between tasks and at checkpoints. A call of a function has no
checkpoint: without this thread, the tasks behind one that takes unexpectedly long would wait for
it, although hetd has recalled them to run them elsewhere, and so would the ends of tasks before
it that are held back (`Link.send_batched`).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from libtask.kept_threads import keep

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVAL_S = 0.01
"""Seconds between two looks at the link; a look keeps the main thread from computing."""


class RecallThread:
    """Serves the link at intervals, as long as that is needed.

    Args:
        serve: serves the link once; returns whether it must be served again.

    """

    def __init__(self, serve: Callable[[], bool]) -> None:
        self._serve = serve
        self._needed = threading.Event()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Serve the link from now on, until that is not needed any more."""
        if self._needed.is_set():
            return
        self._needed.set()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="hetd-recalls", daemon=True
            )
            keep(self._thread)
            self._thread.start()

    def _run(self) -> None:
        while True:
            self._needed.wait()
            time.sleep(INTERVAL_S)
            self._needed.clear()
            if self._serve():
                self._needed.set()
