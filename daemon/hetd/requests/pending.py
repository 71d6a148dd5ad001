"""Queue requests that take more than one step, and the requests behind them.

Each user has one such request in progress at a time; their later requests wait for its end,
in order. Between messages the loop runs steps of all users in round-robin order. The
request budget of a user applies to steps, too.
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
"""Maximum number of waiting requests of one user; further ones get a busy error."""
SMALL = 16 * 1024
"""Maximum bytes of a request that may wait; bounds the memory."""


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request with steps left to run."""

    peer: Peer
    request: m.Request
    work: Steps


@dataclass(slots=True)
class UserQueue:
    """The request in progress of one user, and the ones behind it, in order."""

    first: PendingRequest | None = None
    waiting: deque[Envelope] = field(default_factory=deque)


class RequestQueue:
    """The queues of all users with a request in progress or waiting."""

    def __init__(self) -> None:
        self._lines: OrderedDict[int, UserQueue] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lines)

    def users(self) -> Iterator[int]:
        return iter(self._lines)

    def add(self, peer: Peer, request: m.Request, work: Steps) -> None:
        """Add a request with steps left to run."""
        line = self._lines.setdefault(peer.uid, UserQueue())
        line.first = PendingRequest(peer, request, work)

    def is_blocked(self, uid: int) -> bool:
        """Whether new requests of a user have to wait."""
        return uid in self._lines

    def put(self, envelope: Envelope) -> bool:
        """Queue a request behind the others of its user; return False if the queue is full."""
        waiting = self._lines[envelope.peer.uid].waiting
        if envelope.size > SMALL or len(waiting) >= MOST_WAITING:
            return False
        waiting.append(envelope)
        return True

    def next(self, may_continue: Callable[[int], bool]) -> int | None:
        """Return the user whose step is next, or None if no user may continue."""
        found = next((uid for uid in self._lines if may_continue(uid)), None)
        if found is not None:
            self._lines.move_to_end(found)
        return found

    def line(self, uid: int) -> UserQueue:
        return self._lines[uid]

    def end(self, uid: int) -> None:
        """Remove the request in progress; it is complete."""
        self._lines[uid].first = None

    def drop_if_empty(self, uid: int) -> None:
        """Delete the queue of a user if it is empty."""
        line = self._lines[uid]
        if line.first is None and not line.waiting:
            del self._lines[uid]
