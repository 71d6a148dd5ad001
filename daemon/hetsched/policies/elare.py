"""`elare`: energy- and latency-aware mapping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.planning.mapper import MappingPolicy
from hetsched.planning.mapping import efficient_pass

if TYPE_CHECKING:
    from hetsched.planning.mapper import Heuristic


@dataclass(frozen=True, slots=True)
class EnergyLatencyAware(MappingPolicy):
    """ELARE: what can be done in time, to where it takes least energy.

    Attributes:
        reading, deferrals, ...: see `Mapping`.

    """

    def heuristic(self) -> Heuristic:
        return efficient_pass
