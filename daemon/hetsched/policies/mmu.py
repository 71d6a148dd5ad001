"""`mmu`: minimum completion time, then the highest urgency."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from hetsched.planning.mapper import MappingPolicy
from hetsched.planning.mapping import (
    baseline_pass,
    most_urgent,
    most_urgent_as_printed,
)

if TYPE_CHECKING:
    from hetsched.planning.mapper import Heuristic


@dataclass(frozen=True, slots=True)
class MinMaxUrgency(MappingPolicy):
    """MMU: each task to where it ends soonest; of those the one with least time to spare.

    Attributes:
        urgency: 1 / (deadline - c): c is the expected `completion`, or the `execution`
            time, as printed.
        reading, deferrals, ...: see `Mapping`.

    """

    urgency: Literal["completion", "execution"] = "completion"

    def heuristic(self) -> Heuristic:
        if self.urgency == "execution":
            return partial(baseline_pass, urgency=most_urgent_as_printed)
        return partial(baseline_pass, urgency=most_urgent)
