"""`msd`: minimum completion time, then the soonest deadline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hetsched.planning.mapper import MappingPolicy
from hetsched.planning.mapping import baseline_pass, soonest_deadline

if TYPE_CHECKING:
    from hetsched.planning.mapper import Heuristic


@dataclass(frozen=True, slots=True)
class MinSoonestDeadline(MappingPolicy):
    """MSD: each task to where it ends soonest; of those the one due soonest.

    Attributes:
        reading, deferrals, ...: see `Mapping`.

    """

    def heuristic(self) -> Heuristic:
        return partial(baseline_pass, urgency=soonest_deadline)
