"""Out-of-memory kills: the kernel counts them but does not name the victims.

Used by the supervisor. The count is of the whole machine, including control groups;
frequent polling distinguishes such a kill from a signal of another process.
"""

from __future__ import annotations

import time
from pathlib import Path

LOOK_S = 1.0
"""Minimum seconds between two reads of the count, which take about 0.1 ms."""
COUNT = "oom_kill "


class OutOfMemoryKills:
    """Detects processes that the kernel killed for lack of memory.

    Args:
        table: the kernel's table of memory statistics.

    """

    def __init__(self, table: Path = Path("/proc/vmstat")) -> None:
        self._table = table
        self._cached = self._count()
        self._looked = time.monotonic()

    def look(self) -> None:
        """Remember the count so far; must be called repeatedly."""
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked = now
            self._cached = self._count()

    def occurred(self) -> bool:
        """Return whether a kill occurred since the last `look`."""
        return self._count() > self._cached

    def _count(self) -> int:
        """Read the count; 0 on kernels before 4.13, which have none."""
        try:
            lines = self._table.read_text().splitlines()
        except OSError:
            return 0
        return sum(int(line[len(COUNT) :]) for line in lines if line.startswith(COUNT))
