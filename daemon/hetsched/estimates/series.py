"""A series of measurements of one quantity, robust against a few that are disturbed.

The middle half of the recent measurements counts, so that a paging machine or a first
compilation cannot poison it. A detector distinguishes a lasting change (drift) from outliers:
then what was measured before the change is forgotten.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW = 31
"""Measurements remembered: three seconds of a worker's reports."""

FEW = 4
"""Below this number the lower median is used: the middle half would not protect."""

PRIOR_SPREAD = 0.25
PRIOR_COUNT = 2
"""Relative spread believed before it is measured, and how many measurements it is worth."""

SLACK = 0.2
"""Logarithm of the largest factor that does not count as a change: about a fifth."""
ALARM = 3.0
"""Sum of logarithms beyond the slack at which a change is noticed: a resource that became
twice as slow is noticed after seven measurements, noise of 30 % almost never."""
CLIP = math.log(2.5)
"""The most that one measurement counts towards a change: one outlier is not a change."""
MOST_COUNTED = 1 << 53
"""More measurements are not told apart: counts that users enter leave room for others."""


class Series:
    """Recent measurements of one positive quantity.

    Attributes:
        count: measurements taken in since the start or the last drift.

    """

    __slots__ = ("_fall", "_falling", "_recent", "_rise", "_rising", "_sorted", "count")

    def __init__(self, values: Sequence[float] = ()) -> None:
        self.count = 0
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []
        self._rise = self._fall = 0.0
        self._rising = self._falling = 0
        for value in values:
            self._remember(value)

    @classmethod
    def from_summary(cls, center: float, spread: float, count: int) -> Series:
        """Make a series with this `center`, relative `spread` and `count`."""
        values = [center] * max(1, min(count, WINDOW))
        if len(values) >= FEW:
            draws = _even_draws(len(values))
            values = [max(center * (1 + spread * z), 0.01 * center) for z in draws]
        series = cls(values)
        series.count = min(max(1, count), MOST_COUNTED)
        return series

    def take(self, value: float) -> float | None:
        """Take in a measurement; return the factor of a drift that it completes."""
        changed = self._watch(value) if self._recent else 0
        before = self.center if self._recent else value
        self._remember(value)
        if not changed:
            return None
        self._forget_before(changed)
        return self.center / before

    @property
    def center(self) -> float:
        """Mean of the middle half of the recent measurements."""
        values = self._sorted
        if len(values) < FEW:
            return values[(len(values) - 1) // 2]
        cut = len(values) / 4
        whole = math.ceil(cut)
        inner = sum(values[whole : len(values) - whole])
        edges = (whole - cut) * (values[whole - 1] + values[len(values) - whole])
        return (inner + edges) / (len(values) / 2)

    @property
    def deviation(self) -> float:
        """Relative spread of the recent measurements: 1.48 median deviations."""
        center = self.center
        deviations = sorted(abs(value - center) for value in self._sorted)
        return 1.4826 * deviations[len(deviations) // 2] / center

    @property
    def spread(self) -> float:
        """Relative spread, with the prior where there are few measurements."""
        known = min(self.count, WINDOW) - 1
        squares = known * self.deviation**2 + PRIOR_COUNT * PRIOR_SPREAD**2
        return math.sqrt(squares / (known + PRIOR_COUNT))

    def _remember(self, value: float) -> None:
        self.count += 1
        self._recent.append(value)
        insort(self._sorted, value)
        if len(self._recent) > WINDOW:
            self._drop(self._recent.popleft())

    def _drop(self, value: float) -> None:
        del self._sorted[bisect_left(self._sorted, value)]

    def _watch(self, value: float) -> int:
        """Sum up departures (CUSUM); return how many measurements make up a change."""
        step = min(max(math.log(value / self.center), -CLIP), CLIP)
        self._rise = max(0.0, self._rise + step - SLACK)
        self._fall = max(0.0, self._fall - step - SLACK)
        self._rising = self._rising + 1 if self._rise else 0
        self._falling = self._falling + 1 if self._fall else 0
        if self._rise > ALARM:
            return self._rising
        return self._falling if self._fall > ALARM else 0

    def _forget_before(self, kept: int) -> None:
        """Keep the last measurements only: those of the new state of things."""
        while len(self._recent) > kept:
            self._drop(self._recent.popleft())
        self.count = len(self._recent)
        self._rise = self._fall = 0.0
        self._rising = self._falling = 0


def _even_draws(count: int) -> list[float]:
    """Spread `count` values over the normal distribution, evenly."""
    normal = NormalDist()
    return [normal.inv_cdf((place + 0.5) / count) for place in range(count)]
