"""`affinity`: every task runs on the resource that fits it best, to completion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hetd.core.system import Objective
from hetd.planning.principles import RULE_A, enqueue_at_best

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetd.core.events import Event, Nanoseconds
    from hetd.core.policy import Decision
    from hetd.core.system import System


@dataclass(frozen=True, slots=True)
class Affinity:
    """Principle A of loesch-2016 (there: affinity-conserving).

    Attributes:
        objective: what affinity is measured by: performance, energy or edp.

    """

    objective: Objective = "performance"

    arrival_rule: ClassVar[str] = RULE_A

    def react(
        self,
        event: Event,
        system: System,
        now: Nanoseconds,
    ) -> Iterator[Decision]:
        yield from enqueue_at_best(system)
