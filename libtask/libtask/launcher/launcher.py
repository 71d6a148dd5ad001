"""The launcher: each user's fork server, which starts and supervises their workers.

Clients start it on demand (`start_launcher`) under the user's own uid; see
`libtask.launcher.__main__` for its process. It forks workers on orders from hetd,
reports their exits, and removes snapshots, attachments and results that no task needs. It
outlives hetd: it keeps each exit record until a hetd has received it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.attachments import FOLDER as ATTACHMENTS
from libtask.attachments import Attachments
from libtask.errors import InputError
from libtask.faultpoints import reach
from libtask.launcher.exit_records import ExitRecords
from libtask.launcher.interpreters import InterpreterWorkers
from libtask.launcher.supervisor import Supervisor, watch
from libtask.launcher.takeover import has_successor
from libtask.messages import (
    AttachmentsHeld,
    DropAttachments,
    DropResults,
    DropSnapshots,
    Error,
    KillWorker,
    Register,
    ResultsHeld,
    Retire,
    SnapshotsHeld,
    StartWorkers,
    WorkerExited,
)
from libtask.result_files import FOLDER as RESULTS
from libtask.result_files import ResultFiles
from libtask.snapshots.root import SnapshotRoot
from libtask.worker.link import Link
from libtask.worker.logs import LOG_BYTES, LogCap
from libtask.worker.options import WorkerOptions

if TYPE_CHECKING:
    from libtask.launcher.cgroups import WorkerGroups
    from libtask.messages import FromDaemon, Message
    from libtask.origin import Interpreter

TICK = 5.0
"""Maximum seconds between two turns of the loop."""
TICK_OF_TASKS = 0.25
"""The same while tasks run: bounds the size of a flood of output, and what a task may use
beyond its memory."""
TICK_OF_WORKERS = 2.0
"""The same while workers wait for tasks; the next task may start within this time."""
BUSY_TICK_MS = 50
DISPOSAL_S = 10.0
"""Seconds for freeing the objects of an ended task."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names of workers, which become file names."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts after which a launcher without workers exits.

    Attributes:
        alone: seconds without a hetd.
        idle: seconds without work.

    """

    alone: float = 60.0
    idle: float = 900.0


class Launcher:
    """Starts workers on hetd's commands and reports their exits.

    Args:
        socket: hetd's socket.
        folder: folder of logs and exit records.
        patience: timeouts after which it exits.
        interpreter: its own, as it was started: imports ahead of tasks change variables.
        groups: control groups of the workers; None: they have none.

    """

    def __init__(
        self,
        socket: Path,
        folder: Path,
        patience: Patience,
        interpreter: Interpreter,
        groups: WorkerGroups | None = None,
    ) -> None:
        self._socket = socket
        self._folder = folder
        self._patience = patience
        self._tick_s = min(TICK, patience.alone, patience.idle)
        self._retired = False
        self._yields = False
        self._busy_at = time.monotonic()
        self._exits = ExitRecords(folder / "exits")
        self._logs = LogCap(folder / "logs")
        self._logs.trim(())
        self._root = SnapshotRoot(folder / "snapshots")
        self._attachments = Attachments(folder / ATTACHMENTS)
        self._results = ResultFiles(folder / RESULTS)
        wake = watch()
        supervisor = Supervisor(self._on_exit, wake, groups)
        self._workers = InterpreterWorkers(
            supervisor,
            self._on_exit,
            self._attachments,
            self._listen,
            place=socket,
            own=interpreter,
        )
        self._link = Link(socket, self._registration)
        self._link.wake_on(wake)

    def run(self) -> None:
        """Serve until this launcher is unneeded."""
        while not self._is_done():
            message = self._link.receive(self._tick_ms())
            if message is not None:
                self._handle(message)
            elif not self._yields and has_successor(self._folder):
                self._yield()
            self._workers.look()
            if self._workers.has_any():
                self._logs.look(self._workers.names(), self._log_bytes())
            if self._link.welcome is not None:
                self._exits.remove_confirmed()
                self._ask_what_may_go()
        if self._link.connected:
            self._link.close()
        else:  # the next launcher tells hetd of the exits
            self._link.close(linger_ms=0)

    def _listen(self, descriptor: int, on: bool) -> None:  # noqa: FBT001  a callback
        """Look after the workers when a descriptor is readable."""
        if on:
            self._link.wake_on(descriptor)
        else:
            self._link.sleep_on(descriptor)

    def _tick_ms(self) -> int:
        if self._retired or self._workers.busy or self._logs.flooded:
            return BUSY_TICK_MS
        tick_s = self._tick_s
        if self._workers.have_tasks():
            tick_s = min(tick_s, TICK_OF_TASKS)
        elif self._workers.has_any():
            tick_s = min(tick_s, TICK_OF_WORKERS)
        return int(1000 * tick_s)

    def _ask_what_may_go(self) -> None:
        """Ask hetd which snapshots, attachments and results are unneeded."""
        names = self._root.to_ask_for()
        if names:
            self._link.send(SnapshotsHeld(names))
        idle = self._attachments.to_ask_for()
        if idle:
            self._link.send(AttachmentsHeld(idle))
        tasks = self._results.to_ask_for()
        if tasks:
            self._link.send(ResultsHeld(tasks))

    def _log_bytes(self) -> int:
        welcome = self._link.welcome
        return welcome.log_bytes if welcome else LOG_BYTES

    def _registration(self) -> list[Message]:
        workers = self._workers.names()
        hello = Register(
            "launcher", pid=os.getpid(), workers=workers, yields=self._yields
        )
        return [hello, *self._exits.unconfirmed()]

    def _yield(self) -> None:
        """Have hetd retire idle workers: another launcher waits until there are none."""
        self._yields = True
        if self._link.welcome is not None:
            self._link.send(self._registration()[0])

    def _handle(self, message: FromDaemon) -> None:
        match message:
            case StartWorkers(names, origin):
                for name in names:
                    self._start(name, origin)
            case KillWorker():
                self._workers.terminate(message.name, message.reason)
            case DropSnapshots() | DropAttachments() | DropResults():
                self._drop(message)
            case Retire():
                self._retired = True
                for name in self._workers.names():
                    self._workers.terminate(name, "the daemon stops")
            case Error():
                sys.stderr.write(f"libtask: hetd refuses: {message.text}\n")
            case _:
                pass  # Registered, or messages for workers and clients

    def _drop(self, message: DropSnapshots | DropAttachments | DropResults) -> None:
        """Remove unneeded files."""
        match message:
            case DropSnapshots():
                self._root.drop(message.names)
            case DropAttachments():
                self._attachments.drop(message.names)
            case DropResults():
                self._results.drop(message.tasks)

    # ------------------------------------------------------------ workers

    def _start(self, name: str, origin: str) -> None:
        self._busy_at = time.monotonic()
        if name in self._workers.names():
            return  # a new hetd repeats the command of the old one
        if not NAME.fullmatch(name):
            self._on_exit(WorkerExited(name=name, status=1, reason="bad name"))
            return
        welcome = self._link.welcome
        processes = welcome.processes if welcome else 0
        log = str(self._logs.path(name))
        options = WorkerOptions(
            name,
            self._socket,
            log,
            snapshots=str(self._root.path),
            disposal_s=DISPOSAL_S,
            processes=processes,
            origin=origin,
        )
        try:
            self._workers.start(options)
        except InputError as error:
            self._on_exit(WorkerExited(name, 1, str(error)))
        except OSError as error:
            reason = f"no process for a worker: {error.strerror}"
            self._on_exit(WorkerExited(name, 1, reason, started=False))

    def _on_exit(self, exited: WorkerExited) -> None:
        self._busy_at = time.monotonic()
        named = NAME.fullmatch(exited.name) is not None
        if named:
            self._exits.keep(exited)
        reach("exit.recorded")
        self._link.send(exited)
        reach("exit.told")
        if named:
            self._logs.ended(exited.name, self._workers.names())

    # ------------------------------------------------------------ leaving

    def _is_done(self) -> bool:
        if self._workers.has_any():
            return False
        now = time.monotonic()
        alone = self._link.welcome is None
        return (
            self._retired
            or (alone and now - self._link.silent_since > self._patience.alone)
            or now - self._busy_at > self._patience.idle
            or self._yields
        )


# ---------------------------------------------------------------- start


def start_launcher(socket_path: str | Path) -> None:
    """Start this user's launcher for a socket unless one runs; does not wait."""
    command = [
        sys.executable,
        # do not import from the current folder
        "-P",
        "-m",
        "libtask.launcher",
        "--socket",
        str(socket_path),
    ]
    # The shell exits at once, so that init reaps the launcher.
    subprocess.run(  # noqa: S603  our own interpreter and module
        ["/bin/sh", "-c", '"$@" &', "sh", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
        check=True,
    )
