"""Whether the kernel kills for want of memory: it tells nobody whom, only how often.

Asked by the shepherd. The count is that of the machine, control groups included, so
that who looks often can tell it from a kill by somebody else.
"""

from __future__ import annotations

import time
from pathlib import Path

LOOK_S = 1.0
"""Between two looks at the count; reading it costs some 0.1 ms."""
COUNT = "oom_kill "


class OutOfMemoryKills:
    """Counts processes that the kernel killed as there was no memory.

    Args:
        table: what the kernel tells of its memory.

    """

    def __init__(self, table: Path = Path("/proc/vmstat")) -> None:
        self._table = table
        self._cached = self._count()
        self._looked = time.monotonic()

    def look(self) -> None:
        """Forget the kills up to now; to be called again and again."""
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked = now
            self._cached = self._count()

    def occurred(self) -> bool:
        """Whether there were some since the last look."""
        return self._count() > self._cached

    def _count(self) -> int:
        """Return 0 where the kernel (before 4.13) does not tell."""
        try:
            lines = self._table.read_text().splitlines()
        except OSError:
            return 0
        return sum(int(line[len(COUNT) :]) for line in lines if line.startswith(COUNT))
