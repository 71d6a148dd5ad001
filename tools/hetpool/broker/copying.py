"""Copies of snapshots: running jobs are saved to a second node, so that a loss costs little.

The period is that of Young and Daly: with a copy that takes C seconds and a node that fails
once in M seconds on average, the least is lost with a copy each sqrt(2 C M) seconds
(J. W. Young, CACM 17(9), 1974; J. T. Daly, FGCS 22(3), 2006, equation 13 without its
higher orders).
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from hetpool import messages as m
from libtask.errors import HetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hetpool.broker.estimates import Ask
    from hetpool.broker.ledger import Ledger, PlacedJob
    from hetpool.jobs import PoolNode
    from hetpool.setup.settings import BrokerSettings

LEAST_S = 5.0
"""Seconds between two copies of a job at least."""

log = logging.getLogger("hetpool")


class Copier:
    """Has running jobs saved, and their snapshots kept by other nodes.

    Args:
        ledger: which says where jobs are.
        settings: of the broker.
        ask: sends a message to a node.
        clock: monotonic seconds.

    """

    def __init__(
        self,
        ledger: Ledger,
        settings: BrokerSettings,
        ask: Ask,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._ask = ask
        self._clock = clock

    def due(self) -> Iterator[PlacedJob]:
        """Yield the jobs of which a copy is due; jobs of groups are too short for one."""
        now = self._clock()
        for each in self._ledger.unfinished():
            alone = len(self._ledger.errands.get(each.entry.errand, ())) == 1
            since = max(each.planned_at, each.saved_at)
            if alone and not each.moving and now - since >= self._period(each):
                yield each

    def _period(self, placed: PlacedJob) -> float:
        own = self._settings.copy_s
        daly = math.sqrt(2 * placed.save_s * self._settings.node_mtbf_s)
        return max(LEAST_S, own or daly)

    async def copy(self, placed: PlacedJob) -> None:
        """Save a job and have another node keep its snapshot."""
        began = placed.saved_at = self._clock()
        generation, job = placed.generation, placed.job.id
        other = self._other(placed)
        if other is None:
            return
        try:
            saved = await self._ask(placed.node, "save", m.SaveJob(job), m.Saved)
            if saved.snapshot is None:
                return
            source = self._ledger.addresses([placed.node]).get(placed.node, "")
            old = placed.snapshot.content if placed.snapshot is not None else ""
            wanted = m.KeepSnapshot(saved.snapshot, source, old)
            kept = await self._ask(other.name, "keep", wanted, m.Saved)
        except (HetError, OSError) as error:
            log.warning("snapshot of %s on %s: %s", job[:12], placed.node, error)
            return
        placed.save_s = max(0.1, self._clock() - began)
        if placed.generation == generation:
            placed.snapshot = kept.snapshot

    def _other(self, placed: PlacedJob) -> PoolNode | None:
        """Return the node that keeps the copies: the next one by name, in a ring."""
        names = sorted(
            name
            for name, node in self._ledger.nodes.items()
            if node.present and node.slots and name != placed.node
        )
        later = [name for name in names if name > placed.node]
        chosen = (later or names)[:1]
        return self._ledger.nodes[chosen[0]] if chosen else None
