"""`affinity`: every task runs on the resource that fits it best, to completion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hetsched.planning.principles import RULE_A, enqueue_at_best
from hetsched.system import Objective

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.policy import Decision
    from hetsched.system import System


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
