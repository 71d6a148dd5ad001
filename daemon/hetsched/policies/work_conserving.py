"""`work-conserving`: as `affinity`, but an idle resource takes waiting tasks of others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hetsched.planning.principles import RULE_A, enqueue_at_best, fill_idle
from hetsched.system import Objective

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.policy import Decision
    from hetsched.system import System


@dataclass(frozen=True, slots=True)
class WorkConserving:
    """Principles A and B of loesch-2016, run to completion.

    Attributes:
        objective: what affinity is measured by: performance, energy or edp.
        least_affinity: an idle resource leaves tasks with less to the others.

    """

    objective: Objective = "performance"
    least_affinity: float = 0.0

    arrival_rule: ClassVar[str] = RULE_A

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        yield from enqueue_at_best(system)
        yield from fill_idle(system, self.least_affinity)
