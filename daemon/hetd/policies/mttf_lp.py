"""`mttf-lp`: a batch planner of zhao-2018 as a policy; see `planning.batch.live`."""

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
class MinimumTransmissionFirst:
    """Batches by MTTF-LP (zhao-2018): transfer and computation balanced, shortest transfer first.

    Attributes:
        window_s: a batch is planned so long after its first task arrived.
        most_tasks: planned at once; more are planned in several batches.
        correct: idle resources take what the plan gave to others.
        solver_seconds: time of one call of the LP solver at most.

    """

    window_s: float = 0.02
    most_tasks: int = 500
    correct: bool = True
    solver_seconds: float = 1.0

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        """Plan the batches whose window is over; correct plans that were wrong."""
        batching = Batching(
            "mttf-lp",
            self.window_s,
            self.most_tasks,
            self.correct,
            (("solver_seconds", self.solver_seconds),),
        )
        yield from decide(batching, event, system)
