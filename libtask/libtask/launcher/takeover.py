"""Takeover: a new launcher replaces one that hangs; else one launcher serves a socket.

Called by a starting launcher. The lock is held until its holder exits. Only hetd can
detect that a launcher hangs, because it waits for workers or a registration, and only a
process of the same user can kill it. The launcher of a service waits for the lock; it
holds another one meanwhile, by which the present launcher knows that it may exit.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from libtask.errors import DaemonUnreachableError
from libtask.messages import Register
from libtask.worker.link import Link

if TYPE_CHECKING:
    from pathlib import Path

HETD_S, END_S = 10.0, 5.0
"""Timeouts for hetd's reply and for the exit of a killed process."""
GREETING_S = 60.0
"""Timeout for the registration of a launcher that starts or whose hetd restarted."""
PAUSE_S = 0.5
SUCCESSOR = "successor"
"""File that a launcher locks while it waits."""


def take_lock(folder: Path, socket: Path, *, wait: bool = False) -> bool:
    """Lock a launcher's folder; return False if a working launcher holds the lock.

    Args:
        folder: the launcher's.
        socket: hetd's socket.
        wait: whether to wait until a working launcher has exited.

    """
    # Open until this process exits; a forked worker closes its copy.
    lock = _opened(folder / "lock")
    if not _is_free(lock) and not _succeed(folder, lock, socket):
        if not wait:
            os.close(lock)
            return False
        _await_exit(folder, lock)
    os.ftruncate(lock, 0)
    os.pwrite(lock, _line(os.getpid(), socket), 0)
    return True


def has_successor(folder: Path) -> bool:
    """Return whether another launcher waits until this one has exited."""
    successor = _opened(folder / SUCCESSOR)
    try:
        return not _is_free(successor)
    finally:
        os.close(successor)


def _await_exit(folder: Path, lock: int) -> None:
    """Wait as the successor of the lock's holder, and take the lock."""
    sys.stderr.write(
        "libtask: another launcher serves this socket; waiting for its exit\n"
    )
    successor = _opened(folder / SUCCESSOR)
    fcntl.flock(successor, fcntl.LOCK_EX)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.close(successor)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _line(pid: int, socket: Path) -> bytes:
    """Return the content of the lock file: the holder's pid and its socket."""
    return b"%d " % pid + os.fsencode(socket)


def _is_free(lock: int) -> bool:
    """Take the lock if it is free; return whether that succeeded."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _succeed(folder: Path, lock: int, socket: Path) -> bool:
    """Kill and replace the lock's holder if it hangs; only one process tries at a time."""
    holder = os.pread(lock, 4096, 0)
    pid = int(holder.split()[0]) if holder else 0
    if not pid or holder != _line(pid, socket):
        return False  # it serves another hetd, or has just started
    heir = _opened(folder / "heir")
    try:
        if not _is_free(heir):
            return False
        if not _hangs(pid, lock, socket):
            return _is_free(lock)  # it may have exited meanwhile
        sys.stderr.write(f"libtask: launcher {pid} hangs; killing it\n")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return _await(lock)
    finally:
        os.close(heir)


def _hangs(holder: int, lock: int, socket: Path) -> bool:
    """Return whether hetd waits too long for the holder's workers or registration."""
    deadline = time.monotonic() + GREETING_S
    hello = Register(role="client", pid=os.getpid())
    link = Link(socket, lambda: [hello])
    with contextlib.suppress(DaemonUnreachableError), contextlib.closing(link):
        while not _is_free(lock):
            link.await_welcome(HETD_S)
            welcome, link.welcome = link.welcome, None
            if welcome is None or welcome.launcher:
                return False
            if welcome.hung_launcher == holder or time.monotonic() > deadline:
                return True
            time.sleep(PAUSE_S)
            link.send(hello)
    return False


def _await(lock: int) -> bool:
    deadline = time.monotonic() + END_S
    while not _is_free(lock):
        if time.monotonic() > deadline:  # the kernel cannot end it
            return False
        time.sleep(0.01)
    return True
