"""A launcher's workers, by interpreter: its own and those of other submitters.

Workers of the launcher's interpreter are forked from the launcher. For each other one, or
other variables that an interpreter reads at its start, there is a process that forks them
(`fork_server`). Those without workers are kept for a while, the most recently used ones.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from libtask.errors import InputError
from libtask.launcher.fork_server import (
    CONTROL,
    EndOrder,
    ForkOrder,
    ServerStarted,
    WorkerEnded,
)
from libtask.messages import PROTOCOL, WorkerExited
from libtask.origin import interpreter_of, unpacked
from libtask.phase import PhasePage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from libtask.attachments import Attachments
    from libtask.launcher.supervisor import Supervisor
    from libtask.origin import Interpreter, Origin
    from libtask.worker.options import WorkerOptions

START_S = 30.0
"""Seconds for an interpreter to start and to import libtask."""
END_S = 20.0
"""Seconds for a fork server to end a worker, after which it counts as hung."""
MOST_IDLE = 4
"""Fork servers without workers that are kept."""
IDLE_S = 900.0
"""Seconds for which they are kept."""
LONGEST_REASON = 500
PATH = b"/usr/local/bin:/usr/bin:/bin"
BOOT = """
import sys
advice = f"install hetd for it: {sys.executable} -m pip install hetd-*.whl"
if sys.version_info < (3, 11):
    sys.exit(f"it is Python {sys.version.split()[0]}, tasks need 3.11 or newer")
try:
    from libtask.launcher.fork_server import main
except Exception as error:
    sys.exit(f"it cannot import libtask ({type(error).__name__}: {error}); {advice}")
sys.exit(main())
"""
"""Program of a fork server; without libtask it explains what to install."""


class ForkServerProcess:
    """A fork server, as its launcher sees it.

    Args:
        origin: an origin whose interpreter and variables it starts with.
        interpreter: what it serves.
        place: hetd's socket, which the command lines of all processes name.
        groups_folder: folder of the launcher's control groups; empty: there are none.

    Raises:
        OSError: it cannot be started.

    """

    def __init__(
        self, origin: Origin, interpreter: Interpreter, place: Path, groups_folder: str
    ) -> None:
        self.workers: set[str] = set()
        self.started = False
        self.used_at = time.monotonic()
        self._python = origin.interpreter
        self._due: float | None = time.monotonic() + START_S
        """When it must have started, or ended a worker."""
        self._ending: set[str] = set()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  open as long as the process
        self.control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(0.0)  # it never waits
        try:
            self.pid = os.posix_spawn(
                self._python,
                [
                    *(self._python, "-P", "-c", BOOT),
                    *("libtask.launcher", str(place), groups_folder),
                ],
                {b"PATH": PATH, **dict(interpreter.variables)},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, other.fileno(), CONTROL),
                    (os.POSIX_SPAWN_DUP2, self._errors.fileno(), 2),
                ],
                setsid=True,
            )
        except OSError:
            self.close()
            raise
        finally:
            other.close()

    def start(self, order: ForkOrder) -> None:
        """Have it start a worker.

        Raises:
            OSError: it does not read its orders.

        """
        # if it has just ended, `exits` says so
        with suppress(BrokenPipeError, ConnectionResetError):
            self.control.send(msgspec.msgpack.encode(order))
        self.workers.add(order.name)

    def terminate(self, name: str, reason: str) -> None:
        """Have it end a worker."""
        if name not in self._ending:
            self._ending.add(name)
            self._due = self._due or time.monotonic() + END_S
            with suppress(OSError):
                self.control.send(msgspec.msgpack.encode(EndOrder(name, reason)))

    def exits(self) -> tuple[list[WorkerExited], str]:
        """Return the exits that it reports, and why it works no longer; empty: it does."""
        found: list[WorkerExited] = []
        try:
            while frame := self.control.recv(1 << 20):
                message = msgspec.msgpack.decode(
                    frame, type=ServerStarted | WorkerEnded
                )
                if isinstance(message, WorkerEnded):
                    found.append(message.exited)
                    self._settle(message.exited.name)
                elif message.protocol == PROTOCOL:
                    self.started, self._due = True, None
                else:
                    return found, self._said("its libtask is of another version")
        except BlockingIOError:
            late = self._due is not None and time.monotonic() > self._due
            return found, self._said("it does not respond") if late else ""
        except ConnectionResetError:
            pass  # it has not read its last orders
        except (OSError, msgspec.MsgspecError) as error:
            return found, self._said(str(error))
        return found, self._said("its fork server ended")

    def close(self) -> None:
        """Close the connection, which ends it."""
        self.control.close()
        self._errors.close()

    def _settle(self, name: str) -> None:
        self.workers.discard(name)
        self._ending.discard(name)
        if not self._ending:
            self._due = None
        self.used_at = time.monotonic()

    def _said(self, otherwise: str) -> str:
        """Return the last line that it wrote, with the interpreter's name."""
        self._errors.seek(0)
        lines = self._errors.read(1 << 16).decode(errors="replace").strip().splitlines()
        text = lines[-1] if lines else otherwise
        return f"{self._python}: {text}"[:LONGEST_REASON]


class InterpreterWorkers:
    """The workers of a launcher, whatever their interpreter.

    Args:
        supervisor: those of its own interpreter.
        tell: called for each worker whose processes have all ended.
        attachments: the files with the origins.
        listen: called with the descriptor of a fork server, and whether it is open:
            `look` is due when it is readable.
        place: hetd's socket.
        own: the launcher's interpreter.

    """

    def __init__(  # noqa: PLR0913  the parts that it uses
        self,
        supervisor: Supervisor,
        tell: Callable[[WorkerExited], None],
        attachments: Attachments,
        listen: Callable[[int, bool], None],
        *,
        place: Path,
        own: Interpreter,
    ) -> None:
        self._own = own
        self._supervisor = supervisor
        self._tell = tell
        self._attachments = attachments
        self._listen = listen
        self._place = place
        self._servers: dict[Interpreter, ForkServerProcess] = {}

    @property
    def busy(self) -> bool:
        """Whether a worker is being killed, so that the next `look` is due soon."""
        return self._supervisor.busy

    def names(self) -> list[str]:
        """Return the names of the workers of which a process still exists."""
        others = (server.workers for server in self._servers.values())
        return [*self._supervisor.names(), *(name for some in others for name in some)]

    def has_any(self) -> bool:
        others = any(server.workers for server in self._servers.values())
        return others or self._supervisor.has_any()

    def have_tasks(self) -> bool:
        """Whether a worker may have a task; those of other interpreters always may."""
        others = any(server.workers for server in self._servers.values())
        return others or self._supervisor.have_tasks()

    def start(self, options: WorkerOptions) -> None:
        """Start a worker.

        Raises:
            InputError: its origin is gone, or its interpreter cannot be executed.
            OSError: the system has no process for it.

        """
        origin = None
        if options.origin:
            origin = unpacked(self._attachments.read(options.origin))
        if origin is None or self._is_own(origin):
            paged = replace(options, page=PhasePage.shared())
            self._supervisor.start(paged, origin)
        else:
            self._server_for(origin).start(self._order(options))

    def terminate(self, name: str, reason: str) -> None:
        """Send SIGTERM to a worker, and SIGKILL after the grace time."""
        for server in self._servers.values():
            if name in server.workers:
                server.terminate(name, reason)
                return
        self._supervisor.terminate(name, reason)

    def look(self) -> None:
        """Reap workers that have ended, and kill those whose grace time is over."""
        self._supervisor.look()
        for interpreter, server in list(self._servers.items()):
            exits, broken = server.exits()
            for exited in exits:
                self._tell(exited)
            if broken:
                self._lose(interpreter, broken)
        self._close_idle()

    # ------------------------------------------------------------ steps

    def _is_own(self, origin: Origin) -> bool:
        return not origin.python or interpreter_of(origin) == self._own

    def _order(self, options: WorkerOptions) -> ForkOrder:
        return ForkOrder(
            options.name,
            str(options.socket),
            options.log,
            options.snapshots,
            str(self._attachments.path),
            options.disposal_s,
            options.processes,
            options.origin,
        )

    def _server_for(self, origin: Origin) -> ForkServerProcess:
        interpreter = interpreter_of(origin)
        server = self._servers.get(interpreter)
        if server is None:
            server = self._servers[interpreter] = self._started(origin, interpreter)
        return server

    def _started(self, origin: Origin, interpreter: Interpreter) -> ForkServerProcess:
        try:
            groups = self._supervisor.groups_folder
            server = ForkServerProcess(origin, interpreter, self._place, groups)
        except (FileNotFoundError, PermissionError) as error:
            raise InputError(f"{origin.interpreter}: {error.strerror}") from error
        self._supervisor.spare(server.pid)
        self._listen(server.control.fileno(), True)  # noqa: FBT003  it is open
        return server

    def _lose(self, interpreter: Interpreter, reason: str) -> None:
        """Give up a fork server; its workers, if it had any, are orphans now and are killed."""
        server = self._close(interpreter)
        self._supervisor.end_spared(server.pid)
        # what they ran is not to blame
        status = -signal.SIGKILL if server.started else 1
        for name in sorted(server.workers):
            self._supervisor.report_ended(WorkerExited(name, status, reason))

    def _close(self, interpreter: Interpreter) -> ForkServerProcess:
        server = self._servers.pop(interpreter)
        self._listen(server.control.fileno(), False)  # noqa: FBT003  it is closed
        server.close()
        return server

    def _close_idle(self) -> None:
        """Close fork servers without workers that were not used for long."""
        now = time.monotonic()
        idle: list[Any] = [
            (now - server.used_at, interpreter)
            for interpreter, server in self._servers.items()
            if not server.workers
        ]
        idle.sort(key=lambda each: each[0])
        for position, (age, interpreter) in enumerate(idle):
            if position >= MOST_IDLE or age > IDLE_S:
                self._close(interpreter)
