"""The supervisor: starts and kills workers, and removes all of their processes.

The launcher uses it. A worker counts as ended when all of its descendants are gone,
whatever session, group or parent they have by then: only then is its exit reported and
its resource free for the next task.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from libtask.faultpoints import reach
from libtask.launcher.fork import run_worker
from libtask.launcher.oom_kills import OutOfMemoryKills
from libtask.messages import WorkerExited
from libtask.phase import Phase
from libtask.processes import (
    become_subreaper,
    children_of,
    descendants_of,
    kill_children,
    kill_with_descendants,
    private_bytes,
)
from libtask.worker.last_output import of_ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.launcher.cgroups import WorkerGroups
    from libtask.origin import Origin
    from libtask.worker.options import WorkerOptions

MIB, GIB = 1 << 20, 1 << 30
GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL for a worker."""


@dataclass(slots=True)
class Child:
    """A worker process."""

    options: WorkerOptions
    pid: int
    why_killed: str = ""
    over_memory: str = ""
    """Its memory, and the limit of its task, if it exceeded that; else empty."""
    kill_at: float | None = None
    """`time.monotonic()` at which SIGKILL is due."""

    @property
    def name(self) -> str:
        return self.options.name


class Supervisor:
    """The workers of a launcher.

    Args:
        tell: called for each worker whose processes have all ended.
        wake: descriptor that is readable when a child may have ended; see `watch`.
        groups: control groups of the workers; None: they have none.

    """

    def __init__(
        self,
        tell: Callable[[WorkerExited], None],
        wake: int,
        groups: WorkerGroups | None = None,
    ) -> None:
        self._tell = tell
        self._wake = wake
        self._children: dict[int, Child] = {}
        self._ended: list[WorkerExited] = []
        """Workers that have ended, whose descendants may still exist."""
        self._spared: set[int] = set()
        """Children that are not workers; see `spare`."""
        become_subreaper()
        self._groups = groups
        self._memory_kills = OutOfMemoryKills()

    @property
    def groups_folder(self) -> str:
        """Folder in which the control groups are; empty: there are none."""
        return str(self._groups.parent) if self._groups is not None else ""

    @property
    def busy(self) -> bool:
        """Whether a worker is being killed, so that the next `look` is due soon."""
        if self._ended:
            return True
        return any(child.kill_at is not None for child in self._children.values())

    def names(self) -> list[str]:
        """Return the names of the workers of which a process still exists."""
        living = [child.name for child in self._children.values()]
        return living + [exited.name for exited in self._ended]

    def has_any(self) -> bool:
        return bool(self._children or self._ended)

    def have_tasks(self) -> bool:
        """Whether a worker may have a task, or is ending."""
        if self._ended:
            return True
        pages = [child.options.page for child in self._children.values()]
        return any(page is None or not page.idle for page in pages)

    def spare(self, pid: int) -> None:
        """Leave a child alone that is not a worker, until it has ended."""
        self._spared.add(pid)

    def end_spared(self, pid: int) -> None:
        """Kill a spared child with its descendants."""
        if pid in self._spared:
            self._spared.discard(pid)
            kill_with_descendants([pid])

    def report_ended(self, exited: WorkerExited) -> None:
        """Report a worker that another process started, once its processes have ended.

        They are children of this process by now: the other process has ended, too.
        """
        self._ended.append(exited)

    def start(self, options: WorkerOptions, origin: Origin | None = None) -> None:
        """Start a worker.

        Args:
            options: its options.
            origin: the environment that it takes on; None: that of this process.

        Raises:
            OSError: the system has no process for it.

        """
        sys.stdout.flush()
        sys.stderr.flush()
        group = self._groups.make(options.name) if self._groups else None
        try:
            pid = os.fork()
        except OSError:
            self._is_clear(options.name)  # removes its group
            raise
        if pid == 0:
            run_worker(options, group, origin)
        reach("launcher.forked")
        self._children[pid] = Child(options, pid)

    def terminate(self, name: str, reason: str) -> None:
        """Send SIGTERM to a worker, and SIGKILL after the grace time."""
        for child in self._children.values():
            if child.name == name and child.kill_at is None:
                child.why_killed = reason
                child.kill_at = time.monotonic() + GRACE
                _signal(child.pid, signal.SIGTERM)

    def look(self) -> None:
        """Reap workers that have ended, and kill those whose grace time is over."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        self._reap()
        self._memory_kills.look()
        self._look_at_memory()
        self._kill_overdue()
        if self._ended:
            self._clear_up()

    # ------------------------------------------------------------ steps

    def _reap(self) -> None:
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):  # there are none
            while ended := os.waitid(os.P_ALL, 0, flags):
                # What it left running goes with it: its pid is its group's number, and
                # cannot be anybody else's before the wait.
                with contextlib.suppress(OSError):
                    os.killpg(ended.si_pid, signal.SIGKILL)
                _, status = os.waitpid(ended.si_pid, 0)
                self._note_end(ended.si_pid, os.waitstatus_to_exitcode(status))

    def _note_end(self, pid: int, status: int) -> None:
        self._spared.discard(pid)
        child = self._children.pop(pid, None)
        if child is None:
            return  # an orphan of an ended worker, or a spared process
        how, why = describe(status), self._why(child, status)
        page = child.options.page
        record = page.read() if page is not None else None
        last = None
        if record is not None and record.phase is not Phase.IDLE:
            last = of_ended(record, child.options.log, how, why)
        over = child.over_memory or self._beyond_limit(child, status)
        exited = WorkerExited(
            child.name, status, how + why, last=last, over_memory=over
        )
        self._ended.append(exited)

    def _why(self, child: Child, status: int) -> str:
        """Return the cause of a worker's end, to be appended; empty: it exited by itself."""
        if child.why_killed:
            return f": {child.why_killed}"
        if status != -signal.SIGKILL:
            return ""
        if self._memory_kills.occurred():
            return ", as the system was out of memory"
        return ", which hetd did not send: perhaps the system is short of memory"

    def _beyond_limit(self, child: Child, status: int) -> str:
        """Say that the kernel ended a worker as its task exceeded its memory; empty: it did not."""
        page = child.options.page
        limit = page.memory_limit() if page is not None else 0
        if not limit or status != -signal.SIGKILL or self._groups is None:
            return ""
        if not self._groups.has_exceeded_memory(child.name):
            return ""
        all_of_it = _memory(limit)
        return f"used {all_of_it} of {all_of_it} of memory, and needed more"

    def _look_at_memory(self) -> None:
        """End workers whose tasks use more memory than they stated to need.

        Between two checkpoints too, and with all processes that they started.
        """
        for child in self._children.values():
            page = child.options.page
            limit = page.memory_limit() if page is not None else 0
            if not limit or child.kill_at is not None:
                continue
            used = sum(map(private_bytes, [child.pid, *descendants_of([child.pid])]))
            if used > limit:
                text = f"used {_memory(used)} of {_memory(limit)} of memory"
                child.over_memory = text
                self.terminate(child.name, text)

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for child in self._children.values():
            if child.kill_at is not None and child.kill_at <= now:
                child.kill_at = now + GRACE
                self._kill(child)

    def _kill(self, child: Child) -> None:
        if self._groups is not None:
            self._groups.kill(child.name)
        # Also if it has a group, which it may have failed to enter.
        kill_with_descendants([child.pid])

    def _clear_up(self) -> None:
        """Kill the descendants of ended workers; report workers without any left.

        Orphans of living workers become their children, so every child of the launcher
        that is not a worker or spared descends from an ended one.
        """
        known = self._children.keys() | self._spared
        orphans = [pid for pid in children_of(os.getpid()) if pid not in known]
        kill_children(orphans)
        waiting = []
        for exited in self._ended:
            # The worker of an orphan is unknown, so all ended workers wait for it.
            if orphans or not self._is_clear(exited.name):
                waiting.append(exited)
            else:
                self._tell(exited)
        self._ended = waiting

    def _is_clear(self, name: str) -> bool:
        """Remove a worker's group if it is empty, else kill it; return whether it was."""
        if self._groups is None or self._groups.remove(name):
            return True
        self._groups.kill(name)
        return False


def describe(status: int) -> str:
    """Describe the exit of a process by its exit code in Python's form."""
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "real-time"
    return f"killed by signal {-status} ({name})"


def watch() -> int:
    """Return a descriptor that becomes readable when a child has ended."""
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return readable


def _signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a worker's process group."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        # Just forked, it has no group of its own yet; not reaped, it still exists.
        os.kill(pid, number)


def _memory(amount: int) -> str:
    """Write an amount of memory."""
    if amount < GIB:
        return f"{amount / MIB:.0f} MiB"
    return f"{amount / GIB:.3g} GiB"
