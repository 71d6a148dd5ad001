"""Random values without a generator: a hash of the question, so always the same answer.

For policies, which must keep no state.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsched.ids import Nanoseconds

HALF_WIDTH = 0.1 * math.sqrt(3.0)
"""Half the width of the even distribution with a coefficient of variation of 0.1."""

_MASK = (1 << 64) - 1


def drawn(expected: Nanoseconds, seed: int, *question: int) -> Nanoseconds:
    """Draw an execution time from an even distribution about the expected one, CV 0.1."""
    share = hashed(seed, *question) / 2**64
    return round(expected * (1.0 + HALF_WIDTH * (2.0 * share - 1.0)))


def hashed(seed: int, *question: int) -> int:
    """Return 64 bits that depend on the seed and on each part of the question."""
    state = seed
    for part in question:
        state = _mixed(state ^ part)
    return state


def _mixed(state: int) -> int:
    """Mix 64 bits (SplitMix64)."""
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)
