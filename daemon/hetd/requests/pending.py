"""Requests under way: those that take more than one step, and what waits behind them.

A user has one such request at a time; what they ask meanwhile waits for its end, as it
was asked after it. The loop carries requests on between messages, by turns from all
users who have some; a user's share holds within a request.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hetd.requests.slices import Steps
    from hetd.transport.router import Envelope, Peer
    from libtask import messages as m

MOST_WAITING = 64
"""Requests of a user that wait for the end of another; further ones are put off."""
SMALL = 16 * 1024
"""Bytes of a request that may wait: the others would fill the memory."""


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request of which something is left to do."""

    peer: Peer
    request: m.Request
    work: Steps


@dataclass(slots=True)
class UserQueue:
    """What one user has asked: the request under way, and those behind it, in order."""

    first: PendingRequest | None = None
    waiting: deque[Envelope] = field(default_factory=deque)


class RequestQueue:
    """The users who have a request under way, or others that wait behind one."""

    def __init__(self) -> None:
        self._lines: OrderedDict[int, UserQueue] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lines)

    def users(self) -> Iterator[int]:
        return iter(self._lines)

    def add(self, peer: Peer, request: m.Request, work: Steps) -> None:
        """Take in a request of which something is left to do."""
        line = self._lines.setdefault(peer.uid, UserQueue())
        line.first = PendingRequest(peer, request, work)

    def holds_back(self, uid: int) -> bool:
        """Whether what a user asks has to wait."""
        return uid in self._lines

    def put(self, envelope: Envelope) -> bool:
        """Let a request wait behind others of its user; False: there is no room."""
        waiting = self._lines[envelope.peer.uid].waiting
        if envelope.size > SMALL or len(waiting) >= MOST_WAITING:
            return False
        waiting.append(envelope)
        return True

    def next(self, may_go_on: Callable[[int], bool]) -> int | None:
        """Return the user whose turn it is; None: nobody's request may be carried on."""
        found = next((uid for uid in self._lines if may_go_on(uid)), None)
        if found is not None:
            self._lines.move_to_end(found)
        return found

    def line(self, uid: int) -> UserQueue:
        return self._lines[uid]

    def end(self, uid: int) -> None:
        """Take out the request under way: it is done."""
        self._lines[uid].first = None

    def tidy(self, uid: int) -> None:
        """Forget a user of whom nothing is left to do."""
        line = self._lines[uid]
        if line.first is None and not line.waiting:
            del self._lines[uid]
