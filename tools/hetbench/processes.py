"""Processor time and context switches of a daemon's processes, from /proc."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

if TYPE_CHECKING:
    from libtask.client.client import Client


class Consumption(NamedTuple):
    """Processor time and switches of processes since their starts.

    Attributes:
        hetd_s: processor seconds of the daemon; `others_s`: of launchers and workers.
        client_s: processor seconds of this process.
        switches: voluntary context switches of all of them, in all threads.

    """

    hetd_s: float
    others_s: float
    client_s: float
    switches: int

    def since(self, before: Consumption) -> Consumption:
        """Return what was used in between."""
        return Consumption(
            self.hetd_s - before.hetd_s,
            self.others_s - before.others_s,
            self.client_s - before.client_s,
            self.switches - before.switches,
        )

    def per_task(self, tasks: int) -> dict[str, float]:
        """Return the columns of a row: microseconds, and switches, a task."""
        whole = self.hetd_s + self.others_s + self.client_s
        return {
            "us_per_task": round(1e6 * whole / tasks, 1),
            "hetd_us_per_task": round(1e6 * self.hetd_s / tasks, 1),
            "switches_per_task": round(self.switches / tasks, 2),
        }


class DaemonProcesses:
    """The daemon of a client, its launchers and workers."""

    def __init__(self, client: Client) -> None:
        self._hetd = psutil.Process(client.status().pid)
        self._client = psutil.Process()
        self._socket = str(client.path)

    def others(self) -> list[psutil.Process]:
        """Find the launchers and the workers of this moment."""
        return [p for p in psutil.process_iter() if _serves(p, self._socket)]

    def consumption(self) -> Consumption:
        """Sum up what they have used; switches of workers that have ended are lost."""
        others = self.others()
        return Consumption(
            _seconds(self._hetd),
            sum(map(_seconds_with_ended, others)),
            _seconds(self._client),
            sum(map(_switches, [self._hetd, self._client, *others])),
        )

    def wake_ups(self) -> int:
        """Sum up the voluntary switches of the daemon, its launchers and its workers."""
        return sum(map(_switches, [self._hetd, *self.others()]))


def _serves(process: psutil.Process, socket: str) -> bool:
    """Whether a process is a launcher or worker of the daemon of a socket."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return socket in words and "libtask.launcher" in words


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _seconds_with_ended(process: psutil.Process) -> float:
    """Return also what its children used that have ended: a launcher's are workers."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    own = times.user + times.system
    return float(own + times.children_user + times.children_system)


def _switches(process: psutil.Process) -> int:
    """Sum up the voluntary switches of all threads; psutil counts only the first one."""
    found = 0
    for status in Path(f"/proc/{process.pid}/task").glob("*/status"):
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                found += int(line.split()[1])
    return found
