"""The pace of snapshots: how often one is worth its time.

One that takes C seconds, on a machine that fails every M seconds, is best taken each
sqrt(2 C M) - C seconds of computing (Young 1974; Daly 2006, the first-order form):
more often costs more than it saves, less often loses more than it saves. The share of
time that it costs is then sqrt(C / 2M): 0.24 % for a second of writing and a failure
a day.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from libtask.messages import SnapshotSettings

START_UP_S = 0.02
"""Guess of the time of a small snapshot, before one was measured: mostly the disk's."""
BYTES_PER_S = 500e6
"""Guess of the speed of writing."""
BACK_OFF = 2.0
"""How much longer the interval gets with each snapshot that cannot be written."""


class SnapshotInterval:
    """When the next snapshot of a task is due, in seconds of computing at risk.

    Args:
        terms: what hetd's configuration says.
        state_bytes: what a snapshot will hold, as far as the application says.

    Attributes:
        cost_s: what a snapshot takes: guessed, then measured.

    """

    def __init__(self, settings: SnapshotSettings, state_bytes: int) -> None:
        self._settings = settings
        self.cost_s = START_UP_S + state_bytes / BYTES_PER_S
        self._patience = 1.0

    @property
    def interval_s(self) -> float:
        """Seconds of computing after which a snapshot is due; infinite: never."""
        mtbf_s = self._settings.mtbf_s
        if mtbf_s <= 0:
            return math.inf
        best = math.sqrt(2 * self.cost_s * mtbf_s) - self.cost_s
        # Where a snapshot takes longer than the machine lives, take it all the time.
        return max(best, self.cost_s, self._settings.minimum_s) * self._patience

    def worthwhile(self, remaining_s: float | None) -> bool:
        """Say whether a task that is due goes on long enough.

        At the end of an interval there is as much at risk as a snapshot may cost over
        all of it, so one pays off within half of the interval.

        Args:
            remaining_s: computing that is left; None: not known.

        """
        return remaining_s is None or remaining_s > self.interval_s / 2

    def took(self, seconds: float) -> None:
        """Learn what a snapshot took."""
        self.cost_s = seconds
        self._patience = 1.0

    def failed(self) -> None:
        """Try less often where none can be written."""
        self._patience *= BACK_OFF
