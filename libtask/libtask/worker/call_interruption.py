"""Interruption of calls: a call of a function that is cancelled gets KeyboardInterrupt.

It has no checkpoint at which its worker would read hetd's command to abort it. A thread reads it
instead, and sends SIGINT to the main thread, as Ctrl-C does in a program: sleeps, waits for locks
and the function's own code end at once, and its `finally` and `with` blocks run. Native code that
does not return to Python is not interrupted; hetd ends its worker after `cancel_grace_s`.
"""

from __future__ import annotations

import signal
import threading
from _signal import getsignal  # type: ignore[import-not-found]  # `signal` has it with enumerations, 6 us slower
from typing import TYPE_CHECKING, TypeAlias

from libtask.worker.interval_thread import IntervalThread

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from libtask.worker.link import Link

RunningCall: TypeAlias = tuple[int, int]
"""Task and epoch."""

SIGINT = int(signal.SIGINT)
LOOK_S = 0.1
"""Seconds between two looks for a command while a call runs."""
IDLE_LOOKS = 10
"""Looks without a running call after which the thread sleeps until the next one."""


class CallInterruption:
    """Interrupts the running call when hetd aborts it.

    Only the main thread of a process may begin calls: signals are handled there. As a context
    manager it puts an interruption off until the end of the block.

    Args:
        link: the link to hetd.

    Attributes:
        interrupted: whether the call that began last was interrupted.

    """

    def __init__(self, link: Link) -> None:
        self.interrupted = False
        self._link = link
        self._running: RunningCall | None = None
        """The call that may be interrupted now."""
        self._aborted: RunningCall | None = None
        """The call for which a signal is on its way."""
        self._shielded = False
        self._idle_looks = 0
        self._main_thread = 0
        self._handler = self._on_signal
        self._thread = IntervalThread("hetd-aborts", LOOK_S, self._look)

    def begin(self, task: int, epoch: int) -> None:
        """Interrupt a call from now on; the function may have replaced the handler before."""
        if getsignal(SIGINT) is not self._handler:
            signal.signal(SIGINT, self._handler)
        self._main_thread = threading.get_ident()
        self.interrupted = self._shielded = False
        self._running = (task, epoch)
        self._idle_looks = 0
        self._thread.wake()

    def end(self) -> None:
        """Do not interrupt the call any more: its function has returned."""
        self._running = None

    def __enter__(self) -> None:
        self._shielded = True

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._shielded = False
        if self._aborted is not None:
            self._interrupt()

    def _look(self) -> bool:
        """Send the signal if the running call is aborted; return whether to look again."""
        running = self._running
        if running is None:
            self._idle_looks += 1
        elif self._link.take_abort(*running, lambda: self._running == running):
            self._aborted = running
            signal.pthread_kill(self._main_thread, SIGINT)
        return self._idle_looks < IDLE_LOOKS

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._aborted is None:  # somebody else sent it, or this is a forked child
            signal.default_int_handler(number, frame)
        if not self._shielded:
            self._interrupt()

    def _interrupt(self) -> None:
        """Raise KeyboardInterrupt in the aborted call, unless it has ended meanwhile."""
        aborted, self._aborted = self._aborted, None
        if aborted is not None and aborted == self._running:
            self._running, self.interrupted = None, True
            raise KeyboardInterrupt
