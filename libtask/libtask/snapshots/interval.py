"""The interval between snapshots that minimises their cost plus the expected loss.

For a snapshot of C seconds on a machine that fails every M seconds, the best interval is
sqrt(2 C M) - C seconds of computing (Young 1974; Daly 2006, the first-order form). The
overhead is then sqrt(C / 2M): 0.24 % for a second of writing and a failure a day.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from libtask.messages import SnapshotSettings

START_UP_S = 0.02
"""Assumed seconds of a small snapshot before one was measured, mostly disk latency."""
BYTES_PER_S = 500e6
"""Assumed speed of writing."""
BACK_OFF = 2.0
"""Factor on the interval for each snapshot that cannot be written."""


class SnapshotInterval:
    """The interval to a task's next snapshot, in seconds of computing at risk.

    Args:
        settings: from hetd's configuration.
        state_bytes: size of a snapshot according to the application.

    Attributes:
        cost_s: duration of a snapshot: assumed, then measured.

    """

    def __init__(self, settings: SnapshotSettings, state_bytes: int) -> None:
        self._settings = settings
        self.cost_s = START_UP_S + state_bytes / BYTES_PER_S
        self._patience = 1.0

    @property
    def interval_s(self) -> float:
        """Seconds of computing between two snapshots; infinite: never."""
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
        """Record the duration of a snapshot."""
        self.cost_s = seconds
        self._patience = 1.0

    def failed(self) -> None:
        """Increase the interval after a snapshot that could not be written."""
        self._patience *= BACK_OFF
