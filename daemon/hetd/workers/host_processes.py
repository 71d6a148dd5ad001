"""Processes of the machine: what the daemon asks the kernel about them, and how it kills them.

A seam: a simulation has processes of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from libtask import processes

if TYPE_CHECKING:
    from collections.abc import Callable


def kill_group(leader: int) -> None:
    """Kill a worker and its descendants; works only for the daemon's own user."""
    processes.kill_with_descendants([leader])
    with contextlib.suppress(OSError):
        os.killpg(leader, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class HostProcesses:
    """Functions on the processes of the machine, by pid.

    Attributes:
        kill: kills a worker of the daemon's own user and its descendants.
        started_at: returns when a process started, in clock ticks since the boot; 0: there
            is no such process.
        boot: identifies the boot of the machine, as pids and start times do not.

    """

    kill: Callable[[int], None] = kill_group
    started_at: Callable[[int], int] = processes.started_at
    boot: str = field(default_factory=processes.boot_id)
