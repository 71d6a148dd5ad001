"""Succession: one launcher serves a socket, and one that hangs has a successor.

Called by a launcher that starts. The lock is held as long as its holder lives. Only
hetd can tell that a launcher hangs, as it waits for its workers, and only a process of
the same user can end it.
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
from libtask.messages import Hello
from libtask.worker.link import Link

if TYPE_CHECKING:
    from pathlib import Path

HETD_S, END_S = 10.0, 5.0
"""Seconds for hetd's word, and for the end of a process that is killed."""


def take_lock(folder: Path, socket: Path) -> bool:
    """Become the launcher of a folder; False: there is one, and it does its work."""
    # Open until this process ends; a forked worker closes its copy.
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _is_free(lock) and not _succeed(lock, socket):
        os.close(lock)
        return False
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return True


def _is_free(lock: int) -> bool:
    """Take the lock, if nobody holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _succeed(lock: int, socket: Path) -> bool:
    """End the holder of the lock where hetd says that it hangs, and take its place."""
    holder = os.pread(lock, 20, 0).decode()
    if not holder.isdigit() or int(holder) != _hung_launcher(socket):
        return False
    sys.stderr.write(f"libtask: launcher {holder} hangs, and is ended\n")
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(holder), signal.SIGKILL)
    return _await(lock)


def _await(lock: int) -> bool:
    deadline = time.monotonic() + END_S
    while not _is_free(lock):
        if time.monotonic() > deadline:  # the kernel holds on to it
            return False
        time.sleep(0.01)
    return True


def _hung_launcher(socket: Path) -> int:
    """Ask hetd for the process of this user's launcher that hangs; 0: none."""
    link = Link(socket, lambda: [Hello(role="client", pid=os.getpid())])
    try:
        link.await_welcome(HETD_S)
    except DaemonUnreachableError:
        return 0
    finally:
        link.close()
    return link.welcome.hung_launcher if link.welcome else 0
