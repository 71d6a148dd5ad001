"""`elare`: energy- and latency-aware mapping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetd.planning.mapper import react_by_mapping
from hetd.planning.mapping import efficient_pass
from hetd.planning.reading import Mapping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetd.core.events import Event, Nanoseconds
    from hetd.core.policy import Decision
    from hetd.core.system import System
    from hetd.planning.mapper import Heuristic


@dataclass(frozen=True, slots=True)
class EnergyLatencyAware(Mapping):
    """ELARE: what can be done in time, to where it takes least energy.

    Attributes:
        reading, deferrals, ...: see `Mapping`.

    """

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        return react_by_mapping(event, system, self.settled(), self.heuristic())

    def heuristic(self) -> Heuristic:
        """Return one pass of the heuristic."""
        return efficient_pass
