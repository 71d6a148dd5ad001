"""Estimates of jobs on nodes: each node's hetd is asked, once for jobs that are alike."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from hetpool import messages as m
from hetpool.messages import encode
from libtask.errors import HetError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hetpool.jobs import PoolJob, PoolNode

MOST_KINDS = 200
"""Kinds of jobs that are estimated in one batch; the others count as unknown."""
MOST_KEPT = 20_000
PATIENCE_S = 5.0
"""Seconds for a node to estimate; a plan without its word is better than none."""


VALID_S = 30.0
"""Seconds for which an estimate is used: hetd learns with each task."""
GUESS_VALID_S = 0.5
"""Seconds for which a guess is used: the first tasks that end replace it."""
TRUSTED = 0.5
"""Share of the best confidence from which on a node's own estimate is used."""
NOTHING = m.NodeEstimate(0.0, -1.0)


@dataclass(frozen=True, slots=True)
class _Answer:
    """A node's estimates of one kind of job, by resource, and when they came."""

    jobs: dict[str, m.NodeEstimate]
    at: float


class Ask(Protocol):
    """The broker's way to nodes."""

    async def __call__(
        self, node: str, name: str, message: Any, kind: type[Any]
    ) -> Any: ...


class EstimateCache:
    """Asks nodes for the seconds of jobs on their resources, and keeps the answers.

    Args:
        ask: sends a message to a node.
        clock: monotonic seconds.

    """

    def __init__(self, ask: Ask, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self._kept: dict[tuple[bytes, str], _Answer] = {}

    async def of(
        self, jobs: Sequence[PoolJob], nodes: Sequence[PoolNode]
    ) -> dict[str, dict[str, dict[str, float]]]:
        """Return job -> node -> seconds by resource, where they are known."""
        kinds = {job.id: _kind(job) for job in jobs if not job.seconds}
        examples = {kinds[job.id]: job for job in jobs if job.id in kinds}
        able = [node for node in nodes if node.present and node.slots]
        await asyncio.gather(*(self._fill(node.name, examples) for node in able))
        names = [node.name for node in able]
        shared = {kind: self._shared(kind, names) for kind in examples}
        return {job: shared[kind] for job, kind in kinds.items()}

    def _shared(self, kind: bytes, nodes: list[str]) -> dict[str, dict[str, float]]:
        """Return seconds by node and resource; guesses give way to measurements elsewhere.

        Else the first node that has run a job looks the quickest or the slowest for ever.
        A node without an estimate cannot run the job if another one can. If none can, it may
        be refused, and the place where it is submitted says why.
        """
        answers = {name: self._kept.get((kind, name)) for name in nodes}
        known = {name: each.jobs for name, each in answers.items() if each is not None}
        if not any(known.values()):
            return {}
        best: dict[str, m.NodeEstimate] = {}
        for estimates in known.values():
            for resource, each in estimates.items():
                if each.confidence > best.get(resource, NOTHING).confidence:
                    best[resource] = each
        return {
            name: {
                resource: _trusted(each, best.get(resource, each)).seconds
                for resource, each in estimates.items()
            }
            for name, estimates in known.items()
        }

    async def _fill(self, node: str, examples: dict[bytes, PoolJob]) -> None:
        new = [kind for kind in examples if self._is_old(kind, node)][:MOST_KINDS]
        if not new:
            return
        wanted = m.EstimateJobs(
            tuple(replace(examples[kind], inputs=()) for kind in new)
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                found = await self._ask(node, "estimate", wanted, m.JobEstimates)
        except (HetError, OSError):
            return
        for kind, estimates in zip(new, found.jobs, strict=False):
            self._kept[kind, node] = _Answer(estimates, self._clock())
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]

    def _is_old(self, kind: bytes, node: str) -> bool:
        kept = self._kept.get((kind, node))
        if kept is None:
            return True
        measured = any(each.confidence >= TRUSTED for each in kept.jobs.values())
        return self._clock() - kept.at > (VALID_S if measured else GUESS_VALID_S)


def _trusted(own: m.NodeEstimate, best: m.NodeEstimate) -> m.NodeEstimate:
    return own if own.confidence >= TRUSTED * best.confidence else best


def _kind(job: PoolJob) -> bytes:
    """Return what jobs have in common that take equally long."""
    return encode((job.app, job.params, job.options))
