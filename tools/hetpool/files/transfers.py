"""The order, the pace and the sources of the transfers into one node. Pure: time is passed in.

Of the transfers that may go on, the first in order gets the next chunk (`TransferQueue`).
A transfer may go on while less of it was asked for than its plan's curve says, and while
the node's cap allows. So nothing has to be tuned: a transfer that is late catches up
without losing its place. Order is worth more than pace: a plan without curves is sent in
order, each transfer as fast as the link allows, and only the cap holds.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hetpool.files.content import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetpool.files.content import ContentId

IN_FLIGHT = 4
"""Chunks asked of one source at a time: 4 MiB cover 30 ms at 1 Gbit/s."""
IN_FLIGHT_IN_ALL = 8
"""Chunks on their way at a time: a slow source alone does not leave the link idle."""
CATCHING_UP_S = 1.0
"""A cap that the link could not use for a while is caught up for this long at most."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The pace of a transfer in a plan.

    Attributes:
        pieces: (start, finish, rate), rising; seconds since the transfer was asked for,
            bytes a second. `Plan.transfers` has them since the start of the batch.

    """

    pieces: tuple[tuple[float, float, float], ...]

    @classmethod
    def constant(cls, rate: float, size: int) -> Curve:
        """Return the curve of a transfer at a constant rate."""
        return cls(((0.0, size / rate, rate),))

    def when(self, amount: float) -> float:
        """Return when an amount of bytes is carried, seconds; at the latest, the plan's end."""
        before = 0.0
        for start, finish, rate in self.pieces:
            carried = (finish - start) * rate
            if before + carried >= amount and rate > 0:
                return start + max(0.0, amount - before) / rate
            before += carried
        return self.pieces[-1][1] if self.pieces else 0.0


@dataclass(slots=True)
class Cap:
    """A rate in bytes a second that is not exceeded; infinite = no limit.

    Attributes:
        opens: the time from which on the next bytes may go, seconds.

    """

    rate: float = math.inf
    opens: float = -math.inf

    def begin(self, now: float) -> None:
        """Start to count at `now`: what was not used while nothing was wanted is gone."""
        self.opens = max(self.opens, now)

    def take(self, count: int, now: float) -> float:
        """Let bytes go at the time returned, at or after `now`, and later ones after them."""
        at = max(self.opens, now - CATCHING_UP_S)
        self.opens = at + count / self.rate
        return max(at, now)

    def is_open(self, now: float) -> bool:
        return self.opens <= now


WINDOW_S = 1.0
WINDOWS = 32
CONFIRMS = 0.95
"""A rate that reaches this share of the cap shows that the link is faster than the cap."""


@dataclass(slots=True)
class Goodput:
    """The rate that a link carries: the best of its last windows in which it was busy.

    The nominal rate of a link is not what arrives: 80 to 84 % of it through Dask's
    connections. Plans use this rate instead.
    """

    _best: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOWS))
    _began: float | None = None
    _bytes: int = 0

    def rate(self) -> float | None:
        """Return bytes a second; None: never busy for a second."""
        return max(self._best, default=None)

    def busy(self, now: float) -> None:
        """Record that a chunk was asked for."""
        if self._began is None:
            self._began, self._bytes = now, 0

    def idle(self) -> None:
        """Record that nothing is on its way: what the window has so far says nothing."""
        self._began = None

    def arrived(self, count: int, now: float, cap: Cap) -> None:
        """Record that bytes are here."""
        if self._began is None:
            return
        self._bytes += count
        if now - self._began >= WINDOW_S:
            rate = self._bytes / (now - self._began)
            confirms = rate >= CONFIRMS * cap.rate
            self._best.append(max(rate, self.rate() or 0.0) if confirms else rate)
            self._began, self._bytes = now, 0


@dataclass(frozen=True, slots=True)
class Transfer:
    """A file that a node needs.

    Attributes:
        size: bytes.
        sources: addresses of nodes that have it, the preferred one first.
        order: transfers with a lower one get the link first.
        curve: the pace of the plan; None: as fast as order and cap allow.

    """

    content: ContentId
    size: int
    sources: tuple[str, ...]
    order: float = 0.0
    curve: Curve | None = None


@dataclass(frozen=True, slots=True)
class Fetch:
    """A chunk to ask a source for."""

    content: ContentId
    source: str
    offset: int
    count: int


@dataclass(slots=True, eq=False)
class _Pull:
    """A transfer that is under way."""

    transfer: Transfer
    sequence: int
    began: float
    missing: deque[int]
    sources: list[str]
    resumed: bool
    asked: int = 0
    flying: set[Fetch] = field(default_factory=set)
    given_by: set[str] = field(default_factory=set)

    def rank(self) -> tuple[float, int]:
        return self.transfer.order, self.sequence

    def opens(self, now: float) -> float:
        """Return when its curve allows the next chunk."""
        curve = self.transfer.curve
        return now if curve is None else self.began + curve.when(self.asked)


class TransferQueue:
    """All transfers into one node.

    Args:
        cap: of all of them together.
        chunk: bytes asked for at once.

    """

    def __init__(self, cap: Cap, chunk: int = CHUNK) -> None:
        self._cap = cap
        self._chunk = chunk
        self._pulls: dict[ContentId, _Pull] = {}
        self._ranked: list[_Pull] = []
        self._flying: Counter[str] = Counter()
        self._sequence = 0

    def __contains__(self, content: ContentId) -> bool:
        return content in self._pulls

    def __len__(self) -> int:
        return len(self._pulls)

    @property
    def in_flight(self) -> int:
        """Return the number of chunks on their way."""
        return self._flying.total()

    def add(
        self, transfer: Transfer, now: float, present: frozenset[int] = frozenset()
    ) -> bool:
        """Add a transfer; return whether it is complete at once.

        Args:
            present: numbers of the chunks that an earlier attempt left.

        """
        count = -(-transfer.size // self._chunk)
        missing = deque(index for index in range(count) if index not in present)
        if not missing:
            return True
        if not any(pull.missing for pull in self._ranked):
            self._cap.begin(now)
        self._sequence += 1
        sources = list(transfer.sources)
        pull = _Pull(transfer, self._sequence, now, missing, sources, bool(present))
        pull.asked = transfer.size - sum(self._size(transfer, i) for i in missing)
        self._pulls[transfer.content] = pull
        insort(self._ranked, pull, key=_Pull.rank)
        return False

    def hasten(self, content: ContentId, order: float) -> None:
        """Let a transfer go before others and at full rate, if `order` is lower."""
        pull = self._pulls[content]
        if order < pull.transfer.order:
            old = pull.transfer
            pull.transfer = Transfer(old.content, old.size, old.sources, order)
            self._ranked.sort(key=_Pull.rank)

    def drop(self, content: ContentId) -> None:
        """Forget a transfer: complete, failed or no longer wanted."""
        pull = self._pulls.pop(content, None)
        if pull is None:
            return
        self._ranked.remove(pull)
        for fetch in pull.flying:
            self._flying[fetch.source] -= 1

    def fetches(self, now: float) -> Iterator[Fetch]:
        """Yield the chunks to ask for now; each counts as asked for."""
        while self._cap.is_open(now) and self.in_flight < IN_FLIGHT_IN_ALL:
            pull = next((p for p in self._ranked if self._may_go_on(p, now)), None)
            if pull is None:
                return
            yield self._ask(pull, now)

    def wake(self, now: float) -> float | None:
        """Return when a chunk may be asked for although nothing arrived until then."""
        if self.in_flight >= IN_FLIGHT_IN_ALL:
            return None
        opens = math.inf
        for pull in self._ranked:
            if self._is_free(pull):
                opens = min(opens, pull.opens(now))
            if opens <= now:
                break
        return None if opens == math.inf else max(opens, self._cap.opens, now)

    def received(self, fetch: Fetch) -> bool:
        """Record that a chunk is here; return whether its transfer is complete."""
        pull = self._landed(fetch)
        if pull is None:
            return False
        pull.given_by.add(fetch.source)
        return not pull.missing and not pull.flying

    def lost(self, fetch: Fetch) -> bool:
        """Ask other sources from now on; return whether one is left for this transfer.

        Other transfers ask the lost source last.
        """
        pull = self._landed(fetch)
        if pull is None:
            return True
        self._ask_again(pull, fetch)
        if fetch.source in pull.sources:
            pull.sources.remove(fetch.source)
        for other in self._ranked:
            if fetch.source in other.sources:
                other.sources.remove(fetch.source)
                other.sources.append(fetch.source)
        return bool(pull.sources)

    def damaged(self, content: ContentId) -> bool:
        """Begin a complete transfer from its first chunk; return whether a source is left.

        If one source gave all of it, that one is not asked again. If several did, or an
        earlier attempt left a part, the next source gives the whole.
        """
        pull = self._pulls[content]
        count = -(-pull.transfer.size // self._chunk)
        if pull.given_by == set(pull.sources[:1]) and not pull.resumed:
            pull.sources.pop(0)
        pull.missing = deque(range(count))
        pull.asked = 0
        pull.resumed = False
        pull.given_by = set()
        return bool(pull.sources)

    # ------------------------------------------------------------------ parts

    def _may_go_on(self, pull: _Pull, now: float) -> bool:
        return self._is_free(pull) and pull.opens(now) <= now

    def _is_free(self, pull: _Pull) -> bool:
        """Whether it has a chunk to ask for, and its source a place for that."""
        if not pull.missing or not pull.sources:
            return False
        return self._flying[pull.sources[0]] < IN_FLIGHT

    def _ask(self, pull: _Pull, now: float) -> Fetch:
        index = pull.missing.popleft()
        count = self._size(pull.transfer, index)
        fetch = Fetch(
            pull.transfer.content, pull.sources[0], index * self._chunk, count
        )
        pull.asked += count
        pull.flying.add(fetch)
        self._flying[fetch.source] += 1
        self._cap.take(count, now)
        return fetch

    def _ask_again(self, pull: _Pull, fetch: Fetch) -> None:
        pull.asked -= fetch.count
        index = fetch.offset // self._chunk
        pull.missing = deque(sorted([*pull.missing, index]))

    def _landed(self, fetch: Fetch) -> _Pull | None:
        """Take a chunk out of those under way; None: its transfer was dropped."""
        pull = self._pulls.get(fetch.content)
        if pull is None or fetch not in pull.flying:
            return None
        pull.flying.remove(fetch)
        self._flying[fetch.source] -= 1
        return pull

    def _size(self, transfer: Transfer, index: int) -> int:
        return min(self._chunk, transfer.size - index * self._chunk)
