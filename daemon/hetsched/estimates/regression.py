"""Expected times at sizes never measured: a local regression in log-log over the work.

Twice the work takes about twice the time: that is where the slope starts from, and what
one measured size is extrapolated by. Measurements move it: near ones count more, since
caches, start-up costs and occupancy bend the line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

DEPARTURE = 0.3
"""Deviation of times from a straight line, in logarithms, for each factor e in work."""
FREEDOM = 0.3
"""Standard deviation of the slope about where it starts from."""
OTHER_TYPE = 0.5
"""A size of another type is as informative as one of the same that is a factor of
e^0.5 farther: types differ in more than their work."""
LEAST_NOISE = 0.02
LARGEST = 60.0
"""Logarithm of the longest time that is predicted, whatever the amount of work."""
NEAREST = 32
"""Measured sizes that are used: farther ones add nothing."""


@dataclass(frozen=True, slots=True)
class Known:
    """A measured size.

    Attributes:
        work: in the application's own units; `seconds`: what it takes.
        noise: relative standard error of that.
        same_type: whether it is of the type in question.

    """

    work: float
    seconds: float
    noise: float
    same_type: bool = False


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected seconds, and the relative spread of that expectation."""

    seconds: float
    spread: float


def predict(known: Iterable[Known], work: float, slope: float = 1.0) -> Prediction:
    """Predict the seconds of `work` from measured sizes, one at least.

    Args:
        known: what was measured.
        work: the amount in question, positive.
        slope: exponent of the work in the time, before anything was measured.

    """
    weighed = sorted(
        ((_variance(each, work), each) for each in known), key=lambda pair: pair[0]
    )
    s0 = s1 = s2 = t0 = t1 = 0.0
    for variance, each in weighed[:NEAREST]:
        u, y = math.log(each.work / work), math.log(each.seconds)
        s0 += 1 / variance
        s1 += u / variance
        s2 += u * u / variance
        t0 += y / variance
        t1 += u * y / variance
    s2 += 1 / FREEDOM**2
    t1 += slope / FREEDOM**2
    determinant = s0 * s2 - s1 * s1
    value = (t0 * s2 - s1 * t1) / determinant
    return Prediction(math.exp(min(value, LARGEST)), math.sqrt(s2 / determinant))


def _variance(known: Known, work: float) -> float:
    """Return the variance of the time of `work`, given one measured size."""
    distance = math.log(known.work / work)
    kinship = 0.0 if known.same_type else (DEPARTURE * OTHER_TYPE) ** 2
    noise = max(known.noise, LEAST_NOISE) ** 2
    return noise + (DEPARTURE * distance) ** 2 + kinship
