"""`mm`: minimum completion time twice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hetsched.planning.mapper import MappingPolicy
from hetsched.planning.mapping import baseline_pass, least_completion

if TYPE_CHECKING:
    from hetsched.planning.mapper import Heuristic


@dataclass(frozen=True, slots=True)
class MinMin(MappingPolicy):
    """MM: each task to where it ends soonest; of those the one that ends soonest.

    Attributes:
        reading, deferrals, ...: see `Mapping`.

    """

    def heuristic(self) -> Heuristic:
        return partial(baseline_pass, urgency=least_completion)
