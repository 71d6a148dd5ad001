"""Processes: who stems from whom, and how all of them are ended.

A worker and a launcher are subreapers: what is orphaned below them becomes their
child, whatever session or group it made for itself. So everything that a task started
is found by going down from its worker, and what a dead worker left by going down from
its launcher.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PR_SET_CHILD_SUBREAPER = 36
PASSES = 1000
"""Rounds of looking for new processes in one go; each stops those that it finds."""
PAUSE_S = 0.002
"""Between two looks at what is being killed."""


def become_subreaper() -> None:
    """Be given the orphans of this process's descendants from now on."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def started_at(pid: int) -> int:
    """Return when a process started, in clock ticks since the boot; 0: not to be seen.

    Together with the pid it names a process: pids are used again.
    """
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def boot_id() -> str:
    """Return what names this boot of the machine: pids mean nothing in another."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Say whether a process is there and no zombie."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in "ZX"


def children_of(pid: int) -> list[int]:
    """Return the pids of a process's children, zombies among them."""
    found = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += (thread / "children").read_text().split()
    return [int(word) for word in found]


def descendants_of(roots: Iterable[int]) -> Iterator[int]:
    """Iterate over all living processes below these, each before its own children."""
    to_visit = list(roots)
    while to_visit:
        for child in children_of(to_visit.pop()):
            if is_alive(child):
                yield child
                to_visit.append(child)


def has_children() -> bool:
    """Say whether this process has any child; one system call."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill_with_descendants(roots: Iterable[int]) -> None:
    """Kill processes and all that stems from them; does not wait for their end.

    All are stopped first, until no new one is found: a process that forks faster than
    it is killed would win otherwise.
    """
    leaders = list(roots)
    stopped: set[int] = set()
    for _ in range(PASSES):
        found = {*filter(is_alive, leaders), *descendants_of(leaders)} - stopped
        if not found:
            break
        for pid in found:
            _signal(pid, signal.SIGSTOP)
        stopped |= found
    for pid in stopped:
        _signal(pid, signal.SIGKILL)


def end_children(patience: float) -> bool:
    """Kill and reap everything below this process.

    Args:
        patience: seconds to wait for the end of what was killed.

    Returns:
        Whether nothing is left.

    """
    deadline = time.monotonic() + patience
    while has_children():
        kill_with_descendants(child for child in children_of(os.getpid()))
        _reap()
        if time.monotonic() > deadline:
            return False
        if has_children():
            time.sleep(PAUSE_S)
    return True


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _signal(pid: int, number: signal.Signals) -> None:
    # It may have ended meanwhile, or have taken another user's rights (sudo).
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat that follow the name; empty: it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
