"""Links of a modelled pool: chunks one after the other, asked for by the live pool's code.

A chunk waits its turn in its source's link, then in the link of its node. The next chunk
to ask for is chosen by `hetpool.files.transfers.TransferQueue`, as in an agent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from hetpool.files.content import ContentId
from hetpool.files.transfers import Cap, Curve, Transfer, TransferQueue
from hetsim.pool.model import UNIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hetpool.files.transfers import Fetch
    from hetpool.jobs import InputFile, PlanEntry, PoolNode

    Later = Callable[[float, Callable[[], None]], None]

TransferWay: TypeAlias = Literal["ordered", "paced", "at-once"]
"""In planned order; also at planned rates; or all inputs of a node at the same time."""
ANY_SOURCE = "anywhere"


@dataclass(slots=True)
class _Wire:
    """One direction of a link: when it is free, seconds."""

    rate: float
    free: float = 0.0
    present: bool = True

    def through(self, count: int, now: float) -> float:
        """Send bytes behind all others; return when they are through."""
        self.free = max(self.free, now) + count / self.rate
        return self.free


@dataclass(slots=True, eq=False)
class _Receiver:
    """A node that pulls: its link, and its transfers as its agent has them."""

    wire: _Wire
    queues: dict[str, TransferQueue] = field(default_factory=dict)
    wake: float = math.inf
    life: int = 0
    """Grows when the node is lost: what was on its way to it is gone."""


@dataclass(frozen=True, slots=True)
class Carried:
    """The transfer of a job as it happened, seconds."""

    start: float
    finish: float


class PoolNetwork:
    """The links of a pool.

    Args:
        nodes: all of them.
        way: see `TransferWay`.
        later: calls a function at a time.
        arrived: is called with a job when its data is there; `failed`: when no source is
            left.

    """

    def __init__(
        self,
        nodes: Iterable[PoolNode],
        way: TransferWay,
        later: Later,
        arrived: Callable[[str, float], None],
        failed: Callable[[str, float], None],
    ) -> None:
        self._way = way
        self._later = later
        self._arrived = arrived
        self._failed = failed
        self._sources = {ANY_SOURCE: _Wire(math.inf)}
        self._receivers: dict[str, _Receiver] = {}
        for node in nodes:
            self._sources[node.name] = _Wire(node.egress or math.inf)
            self._receivers[node.name] = _Receiver(_Wire(node.ingress or math.inf))
        self._began: dict[str, float] = {}
        self.carried: dict[str, Carried] = {}
        self.chunks = 0

    def begin(self, entry: PlanEntry, file: InputFile, now: float) -> None:
        """Let a node pull the input of a job."""
        receiver = self._receivers[entry.node]
        which = entry.job if self._way == "at-once" else ""
        queue = receiver.queues.get(which)
        if queue is None:
            queue = receiver.queues[which] = TransferQueue(Cap(), UNIT)
        paced = self._way == "paced" and entry.pieces
        transfer = Transfer(
            ContentId(entry.job),
            file.size,
            file.sources or (ANY_SOURCE,),
            entry.order,
            Curve(entry.pieces) if paced else None,
        )
        queue.add(transfer, now)
        self._go_on(entry.node, now)

    def drop(self, job: str, node: str) -> None:
        """Forget a transfer."""
        self._began.pop(job, None)
        for queue in self._receivers[node].queues.values():
            queue.drop(ContentId(job))

    def began(self, job: str) -> bool:
        """Whether the first chunk of a job was asked for."""
        return job in self._began

    def lose(self, node: str, now: float) -> None:
        """Let a node vanish: its transfers, and what it sends."""
        receiver = self._receivers[node]
        for job in [job for job in self._began if self._is_of(receiver, job)]:
            del self._began[job]
        receiver.queues.clear()
        receiver.life += 1
        receiver.wire.free = now
        self._sources[node].present = False
        for name in self._receivers:
            self._go_on(name, now)

    def regain(self, node: str) -> None:
        """Let a node return, without what it had."""
        self._sources[node].present = True

    # ------------------------------------------------------------------ parts

    def _is_of(self, receiver: _Receiver, job: str) -> bool:
        return any(ContentId(job) in queue for queue in receiver.queues.values())

    def _go_on(self, node: str, now: float) -> None:
        receiver = self._receivers[node]
        for which, queue in list(receiver.queues.items()):
            for fetch in queue.fetches(now):
                self._began.setdefault(fetch.content, now)
                self._send(node, which, fetch, now)
        wakes = [queue.wake(now) for queue in receiver.queues.values()]
        wake = min((each for each in wakes if each is not None), default=math.inf)
        if now < wake < math.inf and wake != receiver.wake:
            receiver.wake = wake
            self._later(wake, lambda: self._go_on(node, wake))

    def _send(self, node: str, which: str, fetch: Fetch, now: float) -> None:
        receiver, source = self._receivers[node], self._sources[fetch.source]
        life = receiver.life
        self.chunks += 1
        if not source.present:
            self._later(now, lambda: self._lose_source(node, which, fetch, now))
            return
        out = source.through(fetch.count, now)

        def sent() -> None:
            if receiver.life == life:
                there = receiver.wire.through(fetch.count, out)
                self._later(there, lambda: self._land(node, which, fetch, there, life))

        self._later(out, sent)

    def _land(self, node: str, which: str, fetch: Fetch, now: float, life: int) -> None:
        receiver = self._receivers[node]
        queue = receiver.queues.get(which)
        if receiver.life != life or queue is None:
            return
        if not self._sources[fetch.source].present:
            self._lose_source(node, which, fetch, now)
            return
        if queue.received(fetch):
            self._complete(receiver, which, fetch.content, now)
        self._go_on(node, now)

    def _complete(
        self, receiver: _Receiver, which: str, job: ContentId, now: float
    ) -> None:
        receiver.queues[which].drop(job)
        if which:
            del receiver.queues[which]
        began = self._began.pop(job, now)
        self.carried[job] = Carried(began, now)
        self._arrived(job, now)

    def _lose_source(self, node: str, which: str, fetch: Fetch, now: float) -> None:
        queue = self._receivers[node].queues.get(which)
        if queue is None or fetch.content not in queue:
            return
        if queue.lost(fetch):
            self._go_on(node, now)
        else:
            queue.drop(fetch.content)
            self._began.pop(fetch.content, None)
            self._failed(fetch.content, now)
