"""`work-conserving`: as `affinity`, but an idle resource takes waiting tasks of others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetd.planning.principles import enqueue_at_best, fill_idle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetd.core.events import Event, Nanoseconds
    from hetd.core.policy import Decision
    from hetd.core.system import System


@dataclass(frozen=True, slots=True)
class WorkConserving:
    """Principles A and B of loesch-2016, run to completion."""

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        yield from enqueue_at_best(system)
        yield from fill_idle(system)
