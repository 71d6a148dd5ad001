"""The load of the cores, from /proc: read by hetd itself, without privileges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.devices.counters.source import (
    PROC,
    CounterError,
    CounterName,
    number_of,
    text_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from hetsched.ids import Nanoseconds


class RunnableThreads:
    """The load that all programs offer to the cores: threads that are ready to run.

    Args:
        shared: the shared resource.
        cores: of the machine.
        file: `/proc/stat`.

    """

    def __init__(self, shared: str, cores: int, file: Path = PROC / "stat") -> None:
        self.name = CounterName("/proc/stat", shared, "offered")
        self._cores = cores
        self._file = file

    def sample(self, now: Nanoseconds) -> float | None:
        for line in text_of(self._file).splitlines():
            if line.startswith("procs_running "):
                # the thread that reads this is ready, too
                return max(0, number_of(line.split()[1]) - 1) / self._cores
        raise CounterError(f"{self._file}: no line procs_running")

    def rest(self) -> None:
        """Hold nothing."""


class WaitingForCores:
    """The share of time in which some thread waits for a core: pressure stall information.

    Args:
        shared: the shared resource.
        file: `/proc/pressure/cpu`.

    """

    def __init__(self, shared: str, file: Path = PROC / "pressure/cpu") -> None:
        self.name = CounterName("/proc/pressure/cpu", shared, "waiting")
        self._file = file
        self._last: tuple[Nanoseconds, int] | None = None

    def sample(self, now: Nanoseconds) -> float | None:
        total = self._total_us()
        last, self._last = self._last, (now, total)
        if last is None or now <= last[0]:
            return None
        share = (total - last[1]) * 1e3 / (now - last[0])
        return min(1.0, max(0.0, share))

    def rest(self) -> None:
        self._last = None

    def _total_us(self) -> int:
        for line in text_of(self._file).splitlines():
            if line.startswith("some "):
                return number_of(line.rpartition("total=")[2])
        raise CounterError(f"{self._file}: no line some")
