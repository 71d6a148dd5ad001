"""Turns of users' requests: whose request the loop handles next, and whose waits or is refused.

Each user has one request of several steps in progress at a time; their later requests wait for
its end, in order. Between messages the loop runs steps of all users, round robin. The time that
a user's messages, steps and answers take is limited (`RequestBudget`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from libtask import messages as m

if TYPE_CHECKING:
    from hetd.requests import Service
    from hetd.requests.budget import RequestBudget
    from hetd.requests.publication import Publication
    from hetd.requests.slices import Steps
    from hetd.runtime import Runtime
    from hetd.transport.router import Envelope, Peer, Router

MOST_WAITING = 64
"""Maximum number of waiting requests of one user; further ones get a busy error."""
SMALL = 16 * 1024
"""Maximum bytes of a request that may wait; bounds the memory."""
STEPS = 4
"""Steps of requests under way in one turn, at most; each takes some milliseconds."""
STEPS_NS = 5_000_000
"""Time limit for these steps together."""


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


class RequestTurns:
    """The requests of users that are in progress or wait.

    Args:
        service: handles requests.
        publication: sends the replies.
        budget: the time that users' messages took.

    """

    def __init__(
        self,
        router: Router,
        runtime: Runtime,
        service: Service,
        publication: Publication,
        budget: RequestBudget,
    ) -> None:
        self._router = router
        self._runtime = runtime
        self._now = runtime.clock.now
        self._service = service
        self._publication = publication
        self.budget = budget
        self.queues: OrderedDict[int, UserQueue] = OrderedDict()
        """Users with a request in progress or waiting."""

    def take(self, envelope: Envelope) -> None:
        """Handle a request that has arrived, or queue it behind another one of its user.

        A bare `Request` is one that the router did not read.
        """
        peer, request = envelope.peer, envelope.message
        read = type(request) is not m.Request
        if peer.uid in self.queues:
            if read and self._queue(envelope):
                return
        elif read and not self.budget.is_exhausted(peer.uid, self._now()):
            self._begin(peer, request)
            return
        self._put_off(peer, request)

    def carry_on(self) -> None:
        """Continue requests about many tasks, in the order of their users' budgets."""
        began = then = self._now()
        for _ in range(STEPS):
            if self._publication.outbox.full:
                return
            uid = next((uid for uid in self.queues if self._may_go_on(uid)), None)
            if uid is None:
                return
            self.queues.move_to_end(uid)
            self._step(uid)
            now = self._now()
            self.budget.charge(uid, now - then, now)
            then = now
            if now - began > STEPS_NS:
                return

    def is_put_off(self, uid: int) -> bool:
        """Whether a large request of a user is to be refused unread."""
        return uid in self.queues or not self._may_go_on(uid)

    def timeout_ms(self) -> int:
        """Return the longest wait until a request in progress may go on, milliseconds."""
        if any(self._may_go_on(uid) for uid in self.queues):
            return 0
        return self.budget.remaining_ms(self._now())

    def _may_go_on(self, uid: int) -> bool:
        """Whether a user has not used up their request budget."""
        return not self.budget.is_exhausted(uid, self._now())

    def _queue(self, envelope: Envelope) -> bool:
        """Queue a request behind the others of its user; return False if the queue is full."""
        waiting = self.queues[envelope.peer.uid].waiting
        if envelope.size > SMALL or len(waiting) >= MOST_WAITING:
            return False
        waiting.append(envelope)
        return True

    def _put_off(self, peer: Peer, request: Any) -> None:
        text = "busy: rate limit for your user reached, retry"
        if self._router.strained:
            text = "busy: not enough memory for large requests, retry later"
        self._router.send(peer.route, m.Error(request.request, "busy", text))

    def _begin(self, peer: Peer, request: Any) -> None:
        """Handle a request, or do its first step; the others follow between messages."""
        try:
            self._answer(peer, request)
        except Exception as error:  # noqa: BLE001  any error is logged
            self._router.send(peer.route, self._runtime.excuse(peer, request, error))

    def _answer(self, peer: Peer, request: Any) -> None:
        if isinstance(request, m.Subscribe):
            self._publication.subscribe(peer, request)
            return
        made = self._service.begin(peer, request)
        if isinstance(made, Generator):
            try:
                next(made)
            except StopIteration as end:
                made = end.value
            else:
                queue = self.queues.setdefault(peer.uid, UserQueue())
                queue.first = PendingRequest(peer, request, made)
                return
        if made is not None:
            self._publication.reply(peer, request, made)

    def _step(self, uid: int) -> None:
        """Do one step of a user's request, or the first of one that waited behind it."""
        queue = self.queues[uid]
        if queue.first is not None:
            self._go_on(queue, queue.first)
        else:
            envelope = queue.waiting.popleft()
            self._begin(envelope.peer, envelope.message)
        if queue.first is None and not queue.waiting:
            del self.queues[uid]

    def _go_on(self, queue: UserQueue, found: PendingRequest) -> None:
        """Do one step of a request; answer at its end."""
        reply: m.Message | None
        try:
            next(found.work)
        except StopIteration as end:
            reply = end.value
        except Exception as error:  # noqa: BLE001  as in `_begin`
            reply = self._runtime.excuse(found.peer, found.request, error)
        else:
            return
        queue.first = None
        if reply is not None:
            self._publication.reply(found.peer, found.request, reply)
