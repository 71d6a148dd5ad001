"""The three policies of loesch-2016: principles A to D, one after the other.

The principles are in `hetsched.planning.principles`; `docs/papers/loesch-2016.md`
compares what they do with the paper's figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hetsched.planning.principles import (
    RULE_A,
    Overhead,
    any_misfit,
    any_surplus,
    enqueue_at_best,
    fill_idle,
    migrate_to_idle,
    preempt_for_better,
    wake_when_settled,
)
from hetsched.system import Objective

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
    ) -> Iterable[Decision]:
        return enqueue_at_best(system) if system.unplaced.entries else ()


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
        if system.unplaced.entries:
            yield from enqueue_at_best(system)
        if any_surplus(system):
            yield from fill_idle(system, self.least_affinity)


@dataclass(frozen=True, slots=True)
class Migration:
    """Principles A to D of loesch-2016, with the overhead heuristic.

    Attributes:
        minimum_run_s, minimum_remaining_s: see `Overhead`.
        objective: what affinity is measured by: performance, energy or edp.
        least_affinity: an idle resource leaves tasks with less to the others.

    """

    minimum_run_s: float = 1.0
    minimum_remaining_s: float = 0.0
    objective: Objective = "performance"
    least_affinity: float = 0.0

    arrival_rule: ClassVar[str] = RULE_A

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        overhead = None
        if any_misfit(system):
            overhead = Overhead(self.minimum_run_s, self.minimum_remaining_s)
        if system.unplaced.entries:
            yield from enqueue_at_best(system)
        if overhead is not None:
            yield from preempt_for_better(system, overhead)
        if any_surplus(system):
            yield from fill_idle(system, self.least_affinity)
        if overhead is not None:
            yield from migrate_to_idle(system, overhead)
            yield from wake_when_settled(system, overhead)
