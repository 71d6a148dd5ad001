"""Fault points: named steps of the protocol at which a test may end the process.

    HETD_FAIL=POINT:N:ACTION[:MARKER]

The N-th time (from 1) that a process reaches the point it is killed (`kill`, as by
SIGKILL), stopped (`stop`, as by SIGSTOP), or raises `FaultError` (`raise`). With a
marker, the file is made just before, and only who makes it fails: so that one process
fails once, however many inherit the variable. It is read once, when this module is
imported; without it `reach` does nothing. `POINTS` names them all; each is reached at
one place in the code, and listed in docs/reliability.md.
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
    "start.locked": "the state directory is this daemon's; the store is not open",
    "start.opened": "the store is open and the start counted",
    "start.bound": "the socket is there; nobody is answered yet",
    "start.known": "the kernel has told the daemon's own uid and pid",
    "start.restoring": "a task that had not ended is about to be taken up",
    "start.restored": "all of them are taken up",
    "stop.retired": "launchers without work were sent home; the store is still open",
    "loop.received": "a message was taken from the socket; nothing is done",
    "loop.handled": "a message was handled; nothing of it is durable",
    "loop.durable": "a commit is done; its answers to one peer are about to leave",
    "loop.answered": "they have left; those to other peers have not",
    "store.written": "a turn's rows are in an open transaction",
    "store.before-commit": "the transaction is about to be committed",
    "store.committed": "it is committed, which the loop does not know",
    "submit.checked": "a submit's tasks are good; they have no ids",
    "submit.admitted": "they have ids; nothing is scheduled",
    "submit.placed": "orders to start may have left; nothing is durable",
    "change.remembered": "the key is known in memory",
    "control.before": "a task is about to be cancelled, held or released",
    "control.done": "it is; orders may have left; nothing is durable",
    "migrate.before": "a task is about to be moved",
    "migrate.done": "orders may have left; nothing is durable",
    "stage.before": "a worker is about to be told to load a task",
    "stage.sent": "it was told",
    "run.before": "a task is about to be started, or to go on after a move",
    "run.sent": "its worker was told",
    "preempt.before": "a worker is about to be told to stop at a checkpoint",
    "preempt.sent": "it was told",
    "abort.before": "a worker is about to be told to give a task up",
    "abort.sent": "it was told",
    "kill.before": "a launcher is about to be told to kill a worker",
    "workers.before": "a launcher is about to be asked for workers",
    "workers.asked": "it was asked",
    "worker.assigned": "a task got a worker, which has not heard of it",
    "launcher.came": "a launcher greets",
    "launcher.left": "a launcher is gone",
    "worker.came": "a worker greets",
    "worker.left": "a worker is gone",
    "worker.exited": "a launcher told how a worker ended",
    "report.ready": "a worker has loaded a task",
    "report.progress": "a worker reports strips",
    "report.yielded": "a worker stopped at a checkpoint; the scheduler does not know",
    "yield.noted": "the checkpoint is in the journal; the scheduler does not know",
    "yield.done": "the next orders have left; nothing is durable",
    "report.finished": "a worker tells a result",
    "finish.noted": "it is in the journal; the scheduler does not know",
    "finish.done": "the task has ended; nothing is durable",
    "report.failed": "a worker tells a failure",
    "report.aborted": "a worker has given a task up",
}
IN_LAUNCHER = {
    "launcher.greeting": "a launcher is about to greet",
    "launcher.before-fork": "a launcher is about to make a worker",
    "launcher.forked": "the worker is there; the launcher has not noted it",
    "launcher.ended": "a worker has ended and is not reaped",
    "launcher.reaped": "it is reaped; how it ended is written nowhere",
    "exit.drafted": "an exit record is written under a temporary name",
    "exit.recorded": "it is in its place and not told",
    "exit.told": "it was told",
    "launcher.before-kill": "a worker is about to be asked to end",
    "launcher.signalled": "it was asked",
    "launcher.retiring": "the daemon sent the launcher home",
}
IN_WORKER = {
    "worker.forked": "a worker has left its launcher's descriptors behind",
    "worker.greeting": "a worker is about to greet",
    "worker.loading": "a task is about to be loaded",
    "worker.loaded": "it is loaded; nobody was told",
    "worker.running": "a task is about to compute",
    "worker.looked": "a task is at a checkpoint",
    "worker.reported": "progress was reported",
    "worker.computed": "the last strip is done; nothing is saved",
    "worker.saved": "the result is there; nobody was told",
    "worker.last-word": "the end was told",
    "snapshot.settled": "a task's state is on the host; nothing of it is written",
    "snapshot.drafted": "a snapshot is on the disk, under a temporary name",
    "snapshot.named": "it has its name; the older ones are still there",
    "snapshot.told": "hetd was told of it, by a task that runs",
    "snapshot.reported": "hetd was told of it, by a task that waits",
    "resume.done": "a task has its state from a snapshot; nobody was told",
    "worker.stopped": "a preempted task's data is out of the device; nobody was told",
    "worker.yielded": "it was told",
}
POINTS = IN_DAEMON | IN_LAUNCHER | IN_WORKER
"""Point -> what has happened when it is reached."""


_NEVER = ("", "1", "kill", "")


class FaultError(BugError):
    """Raised on purpose, at a fault point."""

    code = "fault"


@dataclass(slots=True)
class Fuse:
    """Fails at one point, once it was reached often enough.

    Attributes:
        point: its name; empty: fails nowhere.
        left: how often it must still be reached.
        action: "kill", "stop" or "raise".
        marker: file made when it fails; one that is there already keeps it from failing.

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
        """Set when to fail, by a value of the variable; an empty one: never.

        Raises:
            ValueError: it names no point, number or action.

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
