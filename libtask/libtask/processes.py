"""Processes: find and kill all descendants of a process.

A worker and a launcher are subreapers: an orphan below them becomes their child,
whatever session or group it created. The descendants of a worker are therefore all
processes of its task, and the orphans of a dead worker are children of its launcher.
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
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PASSES = 1000
"""Maximum searches for new processes in one call; each stops the processes it finds."""
PAUSE_S = 0.002
"""Seconds between two checks of killed processes."""


def become_subreaper() -> None:
    """Make this process the parent of its descendants' orphans."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def started_at(pid: int) -> int:
    """Return the start time of a process in clock ticks since boot; 0: it is invisible.

    The pid and the start time identify a process; the kernel reuses pids.
    """
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def boot_id() -> str:
    """Return the identifier of this boot, in which pids are valid; empty: unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in "ZX"


def children_of(pid: int) -> list[int]:
    """Return the pids of a process's children, including zombies."""
    found = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += (thread / "children").read_text().split()
    return [int(word) for word in found]


def descendants_of(roots: Iterable[int]) -> Iterator[int]:
    """Iterate over the living descendants of these processes, parents first."""
    to_visit = list(roots)
    while to_visit:
        for child in children_of(to_visit.pop()):
            if is_alive(child):
                yield child
                to_visit.append(child)


def private_bytes(pid: int) -> int:
    """Return the memory that a process shares with no file and no other process; 0: gone.

    Pages that it has in common with its parent since the fork count.
    """
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * PAGE_BYTES


def has_children() -> bool:
    """Return whether this process has children; takes one system call."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill_with_descendants(roots: Iterable[int]) -> None:
    """Kill processes and their descendants without waiting for their exit.

    All are stopped first, until a search finds no new one: a process could otherwise
    fork faster than it is killed.
    """
    leaders = list(roots)
    stopped: set[int] = set()
    ended: set[int] = set()
    for _ in range(PASSES):
        if not _stop_new(leaders, stopped, ended):
            break
    for pid in stopped:
        _signal(pid, signal.SIGKILL)


def _stop_new(leaders: list[int], stopped: set[int], ended: set[int]) -> bool:
    """Stop processes below these that were not seen before; return whether there were any.

    One that forks and exits all the time lives for a millisecond, so each is stopped before
    anything else is read about it, and those that have ended are looked at once.
    """
    found = False
    to_visit = list(leaders)
    while to_visit:
        pid = to_visit.pop()
        if pid in ended:
            continue
        if pid not in stopped:
            _signal(pid, signal.SIGSTOP)
            if not is_alive(pid):
                ended.add(pid)
                continue
            stopped.add(pid)
            found = True
        to_visit += children_of(pid)
    return found


def end_children(patience: float) -> bool:
    """Kill and reap all descendants of this process, a subreaper.

    Args:
        patience: seconds to wait for killed processes to exit.

    Returns:
        Whether no child is left.

    """
    deadline = time.monotonic() + patience
    while has_children():
        kill_children(children_of(os.getpid()))
        _reap()
        if time.monotonic() > deadline:
            return False
        if has_children():
            time.sleep(PAUSE_S)
    return True


def kill_children(children: Iterable[int]) -> None:
    """Kill some children of this process, a subreaper, without waiting for their exit.

    What they started becomes a child of this process, for another call. Nothing is read
    about a child before: one that forks and exits all the time lives for a millisecond.
    """
    refused = []
    for pid in children:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        except PermissionError:  # of another user (sudo); what it started may not be
            refused.append(pid)
    kill_with_descendants(refused)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _signal(pid: int, number: signal.Signals) -> None:
    # It may have exited meanwhile, or run as another user (sudo).
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name; empty: the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
