"""The clock: what the daemon's logic knows of time.

A seam: a simulation gives the same logic a clock of its own. The members are called
directly, without a method between, as they are read several times for each message.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def _time_of_day() -> float:
    return time.time_ns() / 1e9


@dataclass(frozen=True, slots=True)
class Clock:
    """Two clocks.

    Attributes:
        now: monotonic, nanoseconds: for durations and timers.
        wall: time of day, seconds since the epoch: what users see. It may jump.

    """

    now: Callable[[], int] = time.monotonic_ns
    wall: Callable[[], float] = _time_of_day


SYSTEM_CLOCK = Clock()
"""The machine's own."""
