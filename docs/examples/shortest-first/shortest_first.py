"""`shortest-first`: the shortest waiting task goes first, wherever it is fastest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.policy import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.policy import Decision
    from hetsched.system import System

RULE = "the shortest task goes first"


@dataclass(frozen=True, slots=True)
class ShortestFirst:
    """Shortest task first, on its fastest resource.

    Attributes:
        weight: rank of a task for each second that it is expected to take.

    """

    weight: float = 1.0

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        """Place every task that has no place yet."""
        for row in list(system.unplaced.rows()):
            best = system.best(row)
            while best is not None and row in system.unplaced.rows():
                task = system.unplaced.head_of(row)
                rank = self.weight * system.seconds(row, best)
                yield Place(task.id, best, rank, RULE)
