"""`cim`: a batch planner of zhao-2018 as a policy; see `planning.batch.live`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetd.planning.batch.live import Batching, decide

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetd.core.events import Event, Nanoseconds
    from hetd.core.policy import Decision
    from hetd.core.system import System


@dataclass(frozen=True, slots=True)
class ComputationIntensiveBatches:
    """Batches by CIM (zhao-2018): computing balanced within a percent of the lower bound.

    Attributes:
        window_s: a batch is planned so long after its first task arrived.
        most_tasks: planned at once; more are planned in several batches.
        correct: idle resources take what the plan gave to others.

    """

    window_s: float = 0.02
    most_tasks: int = 500
    correct: bool = True

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        """Plan the batches whose window is over; correct plans that were wrong."""
        batching = Batching("cim", self.window_s, self.most_tasks, self.correct)
        yield from decide(batching, event, system)
