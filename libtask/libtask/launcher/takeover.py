"""Succession: one launcher serves a socket, and one that hangs has a successor.

Called by a launcher that starts. The lock is held as long as its holder lives. Only
hetd can tell that a launcher hangs, as it waits for its workers or has never been
greeted, and only a process of the same user can end it.
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
"""Seconds for hetd's word, and for the end of a process that is killed."""
GREETING_S = 60.0
"""Seconds for a launcher that starts, or whose hetd is new, to greet."""
PAUSE_S = 0.5


def take_lock(folder: Path, socket: Path) -> bool:
    """Become the launcher of a folder; False: there is one, and it does its work."""
    # Open until this process ends; a forked worker closes its copy.
    lock = _opened(folder / "lock")
    if not _is_free(lock) and not _succeed(folder, lock, socket):
        os.close(lock)
        return False
    os.ftruncate(lock, 0)
    os.pwrite(lock, _line(os.getpid(), socket), 0)
    return True


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _line(pid: int, socket: Path) -> bytes:
    """Tell who holds a lock, and whom it serves."""
    return b"%d " % pid + os.fsencode(socket)


def _is_free(lock: int) -> bool:
    """Take the lock, if nobody holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _succeed(folder: Path, lock: int, socket: Path) -> bool:
    """Take the place of the holder of the lock, if it hangs; only one waits for that."""
    holder = os.pread(lock, 4096, 0)
    pid = int(holder.split()[0]) if holder else 0
    if not pid or holder != _line(pid, socket):
        return False  # it serves another hetd; or has just begun
    heir = _opened(folder / "heir")
    try:
        if not _is_free(heir):
            return False
        if not _hangs(pid, lock, socket):
            return _is_free(lock)  # it may have left meanwhile
        sys.stderr.write(f"libtask: launcher {pid} hangs, and is ended\n")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return _await(lock)
    finally:
        os.close(heir)


def _hangs(holder: int, lock: int, socket: Path) -> bool:
    """Whether hetd waits in vain for the holder: for workers of it, or its greeting."""
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
        if time.monotonic() > deadline:  # the kernel holds on to it
            return False
        time.sleep(0.01)
    return True
