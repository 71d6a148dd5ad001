"""The fork server of another interpreter: `PYTHON -c … --socket PATH`, a child of a launcher.

It starts and supervises workers of its own interpreter, as the launcher does of its own,
and reports their exits to the launcher, which alone is connected to hetd. It ends with the
launcher.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from libtask.attachments import Attachments
from libtask.errors import InputError
from libtask.launcher.cgroups import groups_below
from libtask.launcher.preloading import preload
from libtask.launcher.supervisor import Supervisor, watch
from libtask.messages import PROTOCOL, WorkerExited
from libtask.origin import unpacked
from libtask.phase import PhasePage
from libtask.worker.options import WorkerOptions

if TYPE_CHECKING:
    from libtask.launcher.cgroups import WorkerGroups

CONTROL = 3
"""File descriptor of the connection to the launcher."""
BUSY_MS, WATCHING_MS, WAITING_MS, IDLE_MS = 50, 250, 2000, 5000
"""Milliseconds between two turns: while a worker is being ended, while one may have a task,
while there are workers, and else."""
BEFORE_PRELOAD_MS = 500
"""Milliseconds without an order before modules are imported ahead."""
PR_SET_PDEATHSIG = 1


class ForkOrder(msgspec.Struct, frozen=True, tag="fork"):
    """Start a worker; the fields are those of its options."""

    name: str
    socket: str
    log: str
    snapshots: str
    attachments: str
    """Folder of the attachments."""
    disposal_s: float
    processes: int
    origin: str


class EndOrder(msgspec.Struct, frozen=True, tag="end"):
    """End a worker."""

    name: str
    reason: str


class ServerStarted(msgspec.Struct, frozen=True, tag="started"):
    """The fork server works; its first message."""

    protocol: int


class WorkerEnded(msgspec.Struct, frozen=True, tag="ended"):
    """A worker has ended with all its processes."""

    exited: WorkerExited


def main() -> int:
    """Serve the launcher at the other end of the descriptor until it closes.

    The command line names the socket, as those of all processes do, and the folder of the
    launcher's control group if there are groups of workers below it.
    """
    _, _, _, folder = sys.argv
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    control = socket.socket(fileno=CONTROL)
    control.send(msgspec.msgpack.encode(ServerStarted(PROTOCOL)))
    ForkServer(control, groups_below(Path(folder)) if folder else None).run()
    return 0


class ForkServer:
    """Serves a launcher.

    Args:
        control: the connection to it.
        groups: control groups of the workers; None: they have none.

    """

    def __init__(self, control: socket.socket, groups: WorkerGroups | None) -> None:
        self._control = control
        self._wake = watch()
        self._supervisor = Supervisor(self._tell, self._wake, groups)
        self._poller = select.poll()
        for descriptor in (control.fileno(), self._wake):
            self._poller.register(descriptor, select.POLLIN)
        self._preloaded = False

    def run(self) -> None:
        """Follow orders until the connection is closed."""
        while self._turn():
            self._supervisor.look()

    def _turn(self) -> bool:
        ready = dict(self._poller.poll(self._pause_ms()))
        if not ready and not self._preloaded:
            # not before the first workers, which somebody waits for
            self._preloaded = True
            preload()
        if self._control.fileno() not in ready:
            return True
        frame = self._control.recv(1 << 20)
        if frame:
            self._handle(msgspec.msgpack.decode(frame, type=ForkOrder | EndOrder))
        return bool(frame)

    def _pause_ms(self) -> int:
        if not self._preloaded:
            return BEFORE_PRELOAD_MS
        if self._supervisor.busy:
            return BUSY_MS
        if self._supervisor.have_tasks():
            return WATCHING_MS
        return WAITING_MS if self._supervisor.has_any() else IDLE_MS

    def _handle(self, order: ForkOrder | EndOrder) -> None:
        if isinstance(order, EndOrder):
            self._supervisor.terminate(order.name, order.reason)
            return
        try:
            self._start(order)
        except InputError as error:
            self._tell(WorkerExited(order.name, 1, str(error)))
        except OSError as error:
            reason = f"no process for a worker: {error.strerror}"
            self._tell(WorkerExited(order.name, 1, reason, started=False))

    def _start(self, order: ForkOrder) -> None:
        origin = unpacked(Attachments(Path(order.attachments)).read(order.origin))
        options = WorkerOptions(
            order.name,
            Path(order.socket),
            order.log,
            snapshots=order.snapshots,
            disposal_s=order.disposal_s,
            processes=order.processes,
            origin=order.origin,
        )
        self._supervisor.start(replace(options, page=PhasePage.shared()), origin)

    def _tell(self, exited: WorkerExited) -> None:
        try:
            self._control.send(msgspec.msgpack.encode(WorkerEnded(exited)))
        except OSError:
            sys.stderr.write("libtask: the launcher of this fork server is gone\n")
            os._exit(1)
