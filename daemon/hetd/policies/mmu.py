"""`mmu`: minimum completion time, then the highest urgency."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from hetd.planning.mapper import react_by_mapping
from hetd.planning.mapping import (
    baseline_pass,
    most_urgent,
    most_urgent_as_printed,
)
from hetd.planning.reading import Mapping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetd.core.events import Event, Nanoseconds
    from hetd.core.policy import Decision
    from hetd.core.system import System
    from hetd.planning.mapper import Heuristic


@dataclass(frozen=True, slots=True)
class MinMaxUrgency(Mapping):
    """MMU: each task to where it ends soonest; of those the one with least time to spare.

    Attributes:
        urgency: 1 / (deadline - c): c is the expected `completion`, or the `execution`
            time, as printed.
        reading, deferrals, ...: see `Mapping`.

    """

    urgency: Literal["completion", "execution"] = "completion"

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        return react_by_mapping(event, system, self.settled(), self.heuristic())

    def heuristic(self) -> Heuristic:
        """Return one pass of the heuristic."""
        if self.urgency == "execution":
            return partial(baseline_pass, urgency=most_urgent_as_printed)
        return partial(baseline_pass, urgency=most_urgent)
