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


LEAST_STEP_S = 1.0
"""Smaller differences of the two clocks are drift, not jumps."""


class StepDetector:
    """Finds jumps of the time of day, and of the monotonic clock in a suspended machine."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = self._difference()

    def step(self) -> float:
        """Return by how many seconds the time of day jumped since the last call that found one."""
        offset = self._difference()
        step = offset - self._offset
        if abs(step) < LEAST_STEP_S:
            return 0.0
        self._offset = offset
        return step

    def _difference(self) -> float:
        return self._clock.wall() - self._clock.now() / 1e9


SYSTEM_CLOCK = Clock()
"""The machine's own."""
