"""What a completed task is worth, by type: more where its type has fallen behind.

A price moves with every task, so that types stay together without a limit below which
they count as suffering: three that starve beside a favoured one are seen, and two and two.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsched.system import System

HIGHEST = 3.0
"""Greatest logarithm of a price: a type that cannot make its deadlines is not to starve
the others for good."""

PROMISE = 0.9
"""What a running task counts before it is complete."""


def prices(system: System, gain: float) -> dict[str, float]:
    """Price a completion of each type.

    Args:
        system: its tally says who is behind.
        gain: how much one task behind, or ahead, changes the logarithm of the price.

    """
    tally = system.tally
    have = _completed_or_running(system)
    mean = sum(have.values()) / max(sum(tally.arrived.values()), 1)
    return {
        name: math.exp(_bounded(gain * (mean * arrived - have.get(name, 0.0))))
        for name, arrived in tally.arrived.items()
    }


def _completed_or_running(system: System) -> dict[str, float]:
    have: dict[str, float] = dict(system.tally.on_time)
    for state in system.states.values():
        for task in state.running.values():
            have[task.row.type] = have.get(task.row.type, 0.0) + PROMISE
    return have


def _bounded(logarithm: float) -> float:
    return max(-HIGHEST, min(HIGHEST, logarithm))
