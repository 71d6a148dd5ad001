"""The launcher: one user's fork server, and the shepherd of that user's workers.

    python -m libtask.worker.launcher --socket PATH

Clients start it on demand (`start_launcher`), under the user's own uid; a second one
for the same socket leaves at once. It has imported what tasks need and computes
nothing itself, so that a fork is a worker within milliseconds. It outlives hetd: a
worker's exit is kept until a hetd has heard of it. It never touches OpenCL and starts
no thread but libzmq's own, which a forked worker leaves behind.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import hashlib
import importlib
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from libtask.faultpoints import reach
from libtask.messages import (
    Hello,
    KillWorker,
    Retire,
    StartWorkers,
    WorkerExited,
)
from libtask.worker.exits import ExitRecords
from libtask.worker.forked import be_worker
from libtask.worker.link import Link
from libtask.worker.worker import Terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from libtask.messages import FromDaemon, Message

PRELOADED = ("numpy", "numba", "pyopencl", "threadpoolctl", "libtask.devices.cpu")
GRACE = 2.0
"""Seconds between the polite and the certain end of a worker."""
TICK = 5.0
"""Seconds between two looks at the clock."""
BUSY_TICK_MS = 50
LOG_DAYS = 14
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Workers' names become file names."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a launcher without workers stays.

    Attributes:
        alone: seconds without a hetd.
        idle: seconds without work.

    """

    alone: float = 60.0
    idle: float = 900.0


@dataclass(slots=True)
class Child:
    """A worker process."""

    name: str
    pid: int
    why_killed: str = ""
    kill_at: float | None = None
    """`time.monotonic()` when patience with it ends."""


class Launcher:
    """Makes workers as hetd asks, and tells it how they end.

    Args:
        socket: hetd's socket.
        folder: where logs and exit records lie.
        patience: when to leave.

    """

    def __init__(self, socket: Path, folder: Path, patience: Patience) -> None:
        self._socket = socket
        self._folder = folder
        self._patience = patience
        self._tick_ms = int(1000 * min(TICK, patience.alone, patience.idle))
        self._children: dict[int, Child] = {}
        self._retired = False
        self._busy_at = time.monotonic()
        self._exits = ExitRecords(folder / "exits")
        self._logs = folder / "logs"
        self._logs.mkdir(mode=0o700, exist_ok=True)
        self._link = Link(socket, self._greeting)
        self._wake = _wake_on_child_exit()
        self._link.wake_on(self._wake)

    def run(self) -> None:
        """Serve until nobody needs this launcher."""
        while not self._is_done():
            busy = self._retired or any(
                child.kill_at is not None for child in self._children.values()
            )
            message = self._link.receive(BUSY_TICK_MS if busy else self._tick_ms)
            if message is not None:
                self._obey(message)
            self._reap()
            self._kill_overdue()
            if self._link.welcome is not None:
                self._exits.forget_settled()
        self._link.close()

    def _greeting(self) -> list[Message]:
        reach("launcher.greeting")
        hello = Hello(role="launcher", pid=os.getpid())
        return [hello, *self._exits.to_tell()]

    def _obey(self, message: FromDaemon) -> None:
        match message:
            case StartWorkers(names):
                for name in names:
                    self._start(name)
            case KillWorker():
                for child in self._children.values():
                    if child.name == message.name:
                        self._terminate(child, message.reason)
            case Retire():
                self._retired = True
                reach("launcher.retiring")
                for child in self._children.values():
                    self._terminate(child, "the daemon stops")
            case _:
                pass  # a Welcome, or what is meant for workers and clients

    # ------------------------------------------------------------ workers

    def _start(self, name: str) -> None:
        self._busy_at = time.monotonic()
        if any(child.name == name for child in self._children.values()):
            return  # a new hetd asks again for what the old one got
        if not NAME.fullmatch(name):
            self._tell_exit(WorkerExited(name=name, status=1, reason="bad name"))
            return
        log = str(self._logs / f"{name}.log")
        sys.stdout.flush()
        sys.stderr.flush()
        reach("launcher.before-fork")
        try:
            pid = os.fork()
        except OSError as error:
            reason = f"cannot fork: {error.strerror}"
            self._tell_exit(WorkerExited(name=name, status=1, reason=reason))
            return
        if pid == 0:
            be_worker(Terms(name, self._socket, log))
        reach("launcher.forked")
        self._children[pid] = Child(name, pid)

    def _reap(self) -> None:
        """Take note of every worker that has ended."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while self._children and (ended := os.waitid(os.P_ALL, 0, flags)):
            # What it left running goes with it: its pid is its group's number, and
            # cannot be anybody else's before the wait.
            with contextlib.suppress(OSError):
                os.killpg(ended.si_pid, signal.SIGKILL)
            reach("launcher.ended")
            _, status = os.waitpid(ended.si_pid, 0)
            reach("launcher.reaped")
            self._note_end(ended.si_pid, os.waitstatus_to_exitcode(status))

    def _note_end(self, pid: int, status: int) -> None:
        self._busy_at = time.monotonic()
        child = self._children.pop(pid, None)
        if child is None:
            return
        reason = _reason(status)
        if child.why_killed:
            reason = f"{reason}: {child.why_killed}"
        self._tell_exit(WorkerExited(name=child.name, status=status, reason=reason))

    def _tell_exit(self, exited: WorkerExited) -> None:
        if NAME.fullmatch(exited.name):
            self._exits.keep(exited)
        reach("exit.recorded")
        self._link.send(exited)
        reach("exit.told")

    def _terminate(self, child: Child, reason: str) -> None:
        if child.kill_at is None:
            child.why_killed = reason
            child.kill_at = time.monotonic() + GRACE
            reach("launcher.before-kill")
            _signal(child.pid, signal.SIGTERM)
            reach("launcher.signalled")

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for child in self._children.values():
            if child.kill_at is not None and child.kill_at <= now:
                child.kill_at = now + GRACE
                _signal(child.pid, signal.SIGKILL)

    # ------------------------------------------------------------ leaving

    def _is_done(self) -> bool:
        if self._children:
            return False
        now = time.monotonic()
        alone = self._link.welcome is None
        return (
            self._retired
            or (alone and now - self._link.silent_since > self._patience.alone)
            or now - self._busy_at > self._patience.idle
        )


def _reason(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "real-time"
    return f"killed by signal {-status} ({name})"


def _signal(pid: int, number: signal.Signals) -> None:
    """Signal a worker and all that it started."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        # Just forked: it has no group of its own yet. It is not reaped, so it is there.
        os.kill(pid, number)


def _wake_on_child_exit() -> int:
    """Return a descriptor that is readable when a child has ended."""
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return readable


# ---------------------------------------------------------------- start


def start_launcher(socket_path: str | Path) -> None:
    """Start this user's launcher for a socket, unless there is one; does not wait."""
    command = [
        sys.executable,
        "-m",
        "libtask.worker.launcher",
        "--socket",
        str(socket_path),
    ]
    # The shell leaves at once, so that the launcher is nobody's zombie later.
    subprocess.run(  # noqa: S603  our own interpreter and module
        ["/bin/sh", "-c", '"$@" &', "sh", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
        check=True,
    )


def default_folder(socket: Path) -> Path:
    """Return where a launcher keeps logs and records: beside a private socket.

    Sockets below /run lie in memory, and logs would fill it: they go to the user's
    state directory.
    """
    home = socket.parent
    if home.stat().st_uid == os.getuid() and not home.is_relative_to("/run"):
        return socket.with_suffix(".launcher")
    digest = hashlib.sha256(os.fsencode(socket)).hexdigest()[:12]
    return platformdirs.user_state_path("hetd") / f"launcher-{digest}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the launcher; return its exit status."""
    options = _options(arguments)
    socket = options.socket.absolute()
    folder = (options.directory or default_folder(socket)).absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_only_one(folder):
        return 0
    _detach(folder)
    _remove_old_logs(folder / "logs")
    _preload()
    Launcher(socket, folder, Patience(options.alone, options.idle)).run()
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="libtask.worker.launcher", description=__doc__
    )
    parser.add_argument("--socket", type=Path, required=True, help="hetd's socket")
    parser.add_argument("--directory", type=Path, help="folder of logs and records")
    patience = Patience()
    for name in ("alone", "idle"):
        parser.add_argument(
            f"--{name}", type=float, default=getattr(patience, name), help="seconds"
        )
    return parser.parse_args(arguments)


def _is_only_one(folder: Path) -> bool:
    # Open until this process ends; a forked worker closes its copy.
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _detach(folder: Path) -> None:
    """Leave the terminal and the folder that this was started from."""
    with contextlib.suppress(PermissionError):  # it leads a session already
        os.setsid()
    os.chdir("/")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(
        folder / "launcher.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
    )
    for descriptor, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, target)
    os.close(nothing)
    os.close(log)


def _remove_old_logs(folder: Path) -> None:
    limit = time.time_ns() / 1e9 - LOG_DAYS * 86_400
    for log in folder.glob("*.log"):
        if log.stat().st_mtime < limit:
            log.unlink()


def _preload() -> None:
    """Import what tasks need, once for all workers."""
    # OpenBLAS would start threads for itself while it is imported; each worker sets
    # the number that its device allows.
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for module in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    if before is None:
        del os.environ["OPENBLAS_NUM_THREADS"]
    else:
        os.environ["OPENBLAS_NUM_THREADS"] = before
    # Objects that never die need not be looked at, nor their pages copied, in workers.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
