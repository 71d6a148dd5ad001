"""The log: written by a thread, so that the loop never waits for its reader.

Standard error may be a pipe whose reader has stopped, or a terminal that is held. Lines
without room are counted and dropped; their number is logged when there is room again.
"""

from __future__ import annotations

import logging
import os
import queue
import select
import threading
import time
from typing import TYPE_CHECKING

from libtask.plaintext import one_line, visible

if TYPE_CHECKING:
    from types import TracebackType

STANDARD_ERROR = 2
LINES = 1000
"""Lines kept for a reader that is slow."""
LAST_WORDS_S = 1.0
"""Time for which the end of the process waits for the reader."""
FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LONGEST = 4000
"""Maximum characters of one line: it may contain text of a user's worker."""


class _Form(logging.Formatter):
    """One record, one line; what follows it (a traceback) is indented.

    A record may hold users' words: they must not begin a line that looks like ours.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's name
        return one_line(super().formatMessage(record)[:LONGEST])

    def formatException(  # noqa: N802  logging's name
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None]
        | tuple[None, None, None],
    ) -> str:
        story = visible(super().formatException(ei))
        return "\n".join(f"  {line}" for line in story.split("\n"))


class LogWriter(logging.Handler):
    """Writes to a descriptor without ever making its callers wait."""

    def __init__(self, descriptor: int = STANDARD_ERROR) -> None:
        super().__init__()
        self.setFormatter(_Form(FORM))
        self._descriptor = descriptor
        self._lines: queue.Queue[str] = queue.Queue(LINES)
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record; called by `logging`."""
        self.say(self.format(record))

    def say(self, line: str) -> None:
        """Write a line, or several."""
        try:
            self._lines.put_nowait(visible(line))
        except queue.Full:
            self._lost += 1

    def flush(self) -> None:
        """Wait until all is written, but not for a reader that has stopped.

        Called by `logging` when the process ends.
        """
        deadline = time.monotonic() + LAST_WORDS_S
        while self._lines.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.001)

    def _run(self) -> None:
        while True:
            line = self._lines.get()
            self._write(f"{line}\n".encode(errors="backslashreplace"))
            if self._lost:
                lost, self._lost = self._lost, 0
                self._write(f"({lost} lines of the log found no room)\n".encode())
            self._lines.task_done()

    def _write(self, data: bytes) -> None:
        """Write all of it, however long that takes; a reader that is gone reads nothing.

        Not through `sys.stderr`: its lock, held by a thread that waits, would keep the
        interpreter from ending.
        """
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # somebody made it non-blocking for all
                select.select([], [self._descriptor], [])
            except OSError:
                return
