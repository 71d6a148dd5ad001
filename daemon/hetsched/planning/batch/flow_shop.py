"""Orders of the jobs of one responder: transfer, then computation, a two-machine flow shop.

Theorem 3 of zhao-2018-icc sends the shortest transfer first. That is not always best:
two jobs that take 2 and 3 seconds to transfer and 1 and 2 to compute are done after 7
seconds that way, after 6 the other way round. Johnson's rule is optimal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats, Ints


def shortest_transfer_first(transfers: Floats) -> Ints:
    """Order by Theorem 3 (MTTF, minimum transmission time first)."""
    return np.argsort(transfers, kind="stable")


def johnson(transfers: Floats, seconds: Floats) -> Ints:
    """Order by Johnson's rule: what computes longer than it transfers goes first.

    Those by rising transfer, the others after them by falling computation.
    """
    long = seconds > transfers
    key = np.where(long, transfers, -seconds)
    return np.lexsort((key, ~long))


def span(transfers: Floats, seconds: Floats) -> float:
    """Return how long jobs take on one responder in the order given, in seconds."""
    if not len(transfers):
        return 0.0
    there = np.cumsum(transfers)
    after = np.cumsum(seconds[::-1])[::-1]
    return float((there + after).max())
