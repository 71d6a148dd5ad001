"""Count primes: a module as anybody has one, without a line about hetd."""

from __future__ import annotations

import math


def is_prime(n: int) -> bool:
    """Return whether a number is prime, by trial division."""
    return n > 1 and all(n % divisor for divisor in range(2, math.isqrt(n) + 1))


def count(first: int, last: int) -> int:
    """Return the number of primes from `first` up to, but without, `last`."""
    return sum(is_prime(n) for n in range(first, last))
