"""Fault points: named steps at which a test may end the process.

    HETD_FAIL=POINT:N:ACTION[:MARKER]

There is one wherever a task becomes durable or changes its owner: around a commit, a
snapshot, an exit record, a fork, and after sending a command or the end of a task. All
other moments are covered by kills at system calls and by the simulated daemon.

The N-th time (from 1) that a process reaches the point it is killed (`kill`: SIGKILL),
stopped (`stop`: SIGSTOP), or raises `FaultError` (`raise`). With a marker, the process
creates that file first, and only the process that creates it fails, however many inherit
the variable. The variable is read once, when this module is imported; without it `reach`
does nothing. `POINTS` lists all points; each is reached at one place in the code, and
documented in docs/reliability.md.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from libtask.errors import BugError

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "HETD_FAIL"
IN_DAEMON = {
    "loop.durable": "a commit has ended; its replies to one peer have not been sent",
    "loop.answered": "the replies to one peer have been sent, those to others have not",
    "store.written": "a turn's rows are in an open transaction",
    "store.before-commit": "the commit thread is about to commit the transaction",
    "store.committed": "the transaction is committed, which the loop does not know yet",
    "submit.admitted": "submitted tasks have ids; nothing is scheduled or durable",
    "run.sent": "a command to run a task was sent to a worker; nothing of it is durable",
}
IN_LAUNCHER = {
    "launcher.forked": "a worker process exists, and its launcher has not recorded it",
    "exit.drafted": "an exit record is written under a temporary name",
    "exit.recorded": "an exit record has its final name; it was not reported to the daemon",
    "exit.told": "the exit was reported to the daemon; the record still exists",
}
IN_WORKER = {
    "worker.end-told": "a worker has sent the end of its task",
    "snapshot.settled": "a task's state is in host memory; nothing of it is written",
    "snapshot.drafted": "a snapshot is on disk under a temporary name",
    "snapshot.named": "a snapshot has its final name; older ones still exist",
    "snapshot.told": "a running task's snapshot was reported to the daemon",
    "snapshot.reported": "a waiting task's snapshot was reported to the daemon",
}
POINTS = IN_DAEMON | IN_LAUNCHER | IN_WORKER
"""Point -> what has happened when it is reached."""


_NEVER = ("", "1", "kill", "")


class FaultError(BugError):
    """Raised on purpose, at a fault point."""

    code = "fault"


@dataclass(slots=True)
class Fuse:
    """Fails at one point when the process has reached it a given number of times.

    Attributes:
        point: its name; empty: fails nowhere.
        left: remaining number of times until it fails.
        action: "kill", "stop" or "raise".
        marker: file to create before failing; an existing file prevents the failure.

    """

    point: str = ""
    left: int = 1
    action: str = "kill"
    marker: str = ""

    def __call__(self, point: str) -> None:
        if point != self.point:
            return
        self.left -= 1
        if self.left == 0 and self._is_first():
            self._fail()

    def arm(self, text: str) -> None:
        """Configure it by a value of the variable; empty: it never fails.

        Raises:
            ValueError: the point, number or action is invalid.

        """
        point, number, action, *rest = [*text.split(":", 3), "", ""] if text else _NEVER
        if point not in POINTS and text:
            raise ValueError(f"{VARIABLE}: no point {point!r}; see docs/reliability.md")
        if not number.isdecimal() or int(number) < 1:
            raise ValueError(f"{VARIABLE}: expected a number from 1, got {number!r}")
        if action not in {"kill", "stop", "raise"}:
            raise ValueError(
                f"{VARIABLE}: expected kill, stop or raise, got {action!r}"
            )
        self.point, self.left, self.action = point, int(number), action
        self.marker = rest[0]

    def _is_first(self) -> bool:
        if not self.marker:
            return True
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True

    def _fail(self) -> None:
        if self.action == "raise":
            raise FaultError(f"fault point {self.point}")
        number = signal.SIGKILL if self.action == "kill" else signal.SIGSTOP
        os.kill(os.getpid(), number)


def _inert(point: str) -> None:
    """Do nothing: the fault points of a daemon that nobody tortures."""


def _from_environment() -> Callable[[str], None]:
    text = os.environ.get(VARIABLE)
    if text is None:
        return _inert
    fuse = Fuse()
    try:
        fuse.arm(text)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from None
    return fuse


reach = _from_environment()
"""Say that a point is reached; called with a literal name, as tests look for it."""
