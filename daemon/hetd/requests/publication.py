"""Publication: commits what turns of the loop change, and then publishes it.

Replies to changes, and changes for subscribers, wait for the commit that makes them durable.
The loop calls `turn` once in each of its turns; a thread of the store commits meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import structs

from hetd.requests.out_of_space import OutOfSpace
from hetd.requests.subscriptions import MOST_WATCHED, MOST_WATCHES
from libtask import messages as m
from libtask.faultpoints import reach

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hetd.requests import Service
    from hetd.requests.budget import RequestBudget
    from hetd.requests.subscriptions import Subscriptions
    from hetd.runtime import Runtime
    from hetd.store import Store
    from hetd.transport.router import Peer, Router

IDLE_MS = 2000
"""Longest wait for a message: bounds how late a missed wake-up is noticed."""
SPACE_MS = 1000
"""Between two checks for space while the disk is full."""
LAGGING_MS = 100
STATES_MS = 50
STATES_NS = STATES_MS * 1_000_000
"""Between two looks at the states of the resources, while somebody watches them."""
TELLING_NS = LAGGING_MS * 1_000_000
"""Between two attempts to reach peers that did not read, nanoseconds."""
TELL_NS = 8_000_000
"""Time limit for sending durable messages in a turn; the rest follows in the next."""
GATHER_NS = 2_000_000
"""Under load, commits come at most this often: each costs some 0.1 ms of processor time
and a wait for the disk. Without load nobody waits for it."""
SOON_S = 0.0005
"""A commit waits for tasks that are expected to take less, seconds."""
HOLD_NS = 1_000_000
"""Longest wait of a commit for tasks that end soon, if there is no other work: one commit
then serves both the acknowledgement and the end. If they do not end, the acknowledgement
is late by this time."""

AT_ONCE, ALONE = 8, 64
"""Messages for one peer before the next peer; and where there is only one."""
FULL = 5000
"""Messages from which on requests under way pause: they would add more."""


class Publication:
    """Commits changes, and sends what they make known.

    Args:
        budget: gets the time that answers take.

    """

    def __init__(  # noqa: PLR0913, PLR0917  the parts that it uses
        self,
        router: Router,
        store: Store,
        runtime: Runtime,
        subscriptions: Subscriptions,
        service: Service,
        budget: RequestBudget,
    ) -> None:
        self._router = router
        self._store = store
        self._runtime = runtime
        self._journal = runtime.journal
        self._system = runtime.scheduler.system
        self._now = runtime.clock.now
        self._subscriptions = subscriptions
        self._service = service
        self._rights = service.rights
        self._quota = service.storage_quota
        self._budget = budget
        self._out_of_space = OutOfSpace(runtime, store, service)
        self.outbox = Outbox()
        """Durable messages that are not sent yet."""
        self._askers: dict[bytes, int] = {}
        """Route -> user that waits for an answer."""
        self._next_commit = self._ordered = self._next_telling = 0
        self._next_states = 0
        """When the states of the resources may be looked at again, for subscribers."""
        self._held_since = 0
        """When the commit began to wait for the ends of tasks; 0: it does not wait."""

    # ------------------------------------------------------------ replies

    def reply(self, peer: Peer, request: m.Request, reply: m.Message) -> None:
        """Answer with the next commit; or at once, where that waits for room."""
        promises = isinstance(request, m.Change) and not isinstance(reply, m.Error)
        if self._store.stuck is not None and not promises:
            self._tell(peer.route, reply)
        else:
            route = peer.route
            self._askers[route] = peer.uid
            self._journal.batch.replies.append((route, reply))

    def subscribe(self, peer: Peer, message: m.Subscribe) -> None:
        """Add a subscription, and confirm it with the next commit."""
        reply = self._subscribe(peer, message)
        self._journal.batch.replies.append((peer.route, reply))

    def _subscribe(self, peer: Peer, message: m.Subscribe) -> m.Message:
        if message.ids is not None:  # those that have ended change no more
            ids = [task for task in message.ids if self._journal.may_change(task)]
            message = structs.replace(message, ids=ids)
        if self._subscriptions.is_full_for(peer, message):
            for route in self._subscriptions.routes_of(peer.uid):
                # failed sends reveal closed connections
                self._tell(route, m.Lagged())
        if self._subscriptions.is_full_for(peer, message):
            text = (
                f"a user has {MOST_WATCHES} watches at most, of {MOST_WATCHED} tasks; "
                "watch all, or close some"
            )
            return m.Error(message.request, "bad-input", text)
        self._subscriptions.add(peer, message)
        self._next_states = 0
        self._journal.watched = True
        return m.Done(message.request)

    # ------------------------------------------------------------ turns

    def turn(self, *, may_hold: bool) -> None:
        """Take the outcome of the last commit, order the next one, and send what is durable.

        Args:
            may_hold: whether the commit may wait for tasks that end soon.

        """
        if self._subscriptions.lagging or self._subscriptions.of_resources:
            self._tell_what_is_due(self._now())
        if self._service.unanswered:
            for peer, request, late in self._service.late_answers():
                self.reply(peer, request, late)
        store = self._store
        replies = store.committed()
        if replies is not None:
            self._on_committed()
            self.outbox.put(replies)
        if store.stuck is not None:
            self._out_of_space.turn()
        elif self._journal.dirty and store.idle and not self._may_wait(hold=may_hold):
            # before the answers leave: the disk is at work meanwhile
            self._commit()
        if self.outbox.count:
            self._send_durable()

    def _tell_what_is_due(self, now: int) -> None:
        """Send lagging peers their counts, and subscribers the states of resources, when due."""
        if self._subscriptions.lagging and now >= self._next_telling:
            self._tell_laggards()
        if self._subscriptions.of_resources and now >= self._next_states:
            self._tell_of_resources()

    def _tell_of_resources(self) -> None:
        """Push the states of resources that have changed, with the next commit."""
        self._next_states = self._now() + STATES_NS
        states = self._service.resource_states()
        told = self._subscriptions.address_resources(states)
        self._journal.batch.replies.extend(told)

    def finish(self) -> None:
        """Commit the changes of the last turn, and send the replies."""
        self.outbox.put(self._store.flush())
        if self._journal.dirty:
            self._commit()
        self.outbox.put(self._store.flush())
        while self.outbox.count:
            self._send_durable()

    def timeout_ms(self) -> int:
        """Return the longest wait until there is something to publish, milliseconds."""
        if self.outbox.count:
            return 0
        if self._journal.dirty and self._store.idle:
            return 1
        if self._subscriptions.lagging:
            return LAGGING_MS
        if self._subscriptions.of_resources and self._now() < self._next_states:
            return STATES_MS  # something may have changed since the last look
        return IDLE_MS if self._store.stuck is None else SPACE_MS

    # ------------------------------------------------------------ commits

    def _may_wait(self, *, hold: bool) -> bool:
        """Whether the next commit may wait for more."""
        now = self._now()
        more = self._router.waiting() or (hold and self._is_stream())
        if more and now < self._next_commit:
            return True
        return hold and self._may_hold(now)

    def _is_stream(self) -> bool:
        """Whether only ends of tasks are to be published, while others wait for slots."""
        return not self._journal.batch.replies and self._system.has_backlog()

    def _may_hold(self, now: int) -> bool:
        """Whether the next commit may wait for the end of what has just been ordered."""
        if self._runtime.lifecycle.stop_requested:
            return False
        if self._held_since and now - self._held_since >= HOLD_NS:
            return False
        if not self._system.ends_within(SOON_S):
            return False
        self._held_since = self._held_since or now
        return True

    def _commit(self) -> None:
        """Hand the changes to the store, with the replies to send afterwards."""
        self._held_since = 0
        journal = self._journal
        self._ordered = self._now()
        self._next_commit = self._ordered + GATHER_NS
        told = self._subscriptions.address(journal.changes, self._rights.is_admin)
        journal.batch.replies.extend(told)
        journal.changes.clear()
        journal.watched = bool(self._subscriptions)
        batch = journal.take_batch()
        self._quota.cut(batch.owners())
        self._store.submit(batch)
        journal.forget_oldest()

    def _on_committed(self) -> None:
        """Count a commit that has ended, and forget what it removed."""
        self._quota.apply_removals()
        counters = self._runtime.counters
        counters.commits += 1
        counters.commit_ns += self._now() - self._ordered

    # ------------------------------------------------------------ messages

    def _send_durable(self) -> None:
        """Send durable messages, up to the time limit of the turn."""
        began = then = self._now()
        for route, messages in self.outbox.take():
            reach("loop.durable")
            self._tell(route, *messages)
            reach("loop.answered")
            then = self._charge_asker(route, then)
            if then - began > TELL_NS:
                return

    def _charge_asker(self, route: bytes, then: int) -> int:
        """Charge the time of an answer: a long list costs more than its request."""
        uid, now = self._askers.pop(route, None), self._now()
        if uid is not None:
            self._budget.charge(uid, now - then, now)
        return now

    def _tell(self, route: bytes, *messages: m.Message) -> None:
        """Send; record a peer that is gone or has too much unread."""
        if self._router.send(route, *messages):
            return
        if route in self._router.full:
            self._subscriptions.lag(route, messages)
            self._next_telling = self._now() + TELLING_NS
        else:
            self._subscriptions.remove(route)

    def _tell_laggards(self) -> None:
        """Tell lagging peers that read again how many messages they have missed."""
        self._next_telling = self._now() + TELLING_NS
        for route, missed in list(self._subscriptions.lagging.items()):
            if self._router.send(route, m.Lagged(missed)):
                del self._subscriptions.lagging[route]
            elif route not in self._router.full:
                self._subscriptions.remove(route)


class Outbox:
    """Durable messages that wait to be sent, in order per peer, round robin.

    One change may go to hundreds of connections of its owner, and one commit may hold
    thousands of changes. No answer waits behind the messages of another peer.
    """

    def __init__(self) -> None:
        self._routes: OrderedDict[bytes, deque[m.Message]] = OrderedDict()
        self.count = 0
        """Number of messages."""

    @property
    def full(self) -> bool:
        """Whether requests under way have to pause."""
        return self.count >= FULL

    def put(self, messages: Iterable[tuple[bytes, m.Message]]) -> None:
        """Add messages with their addresses."""
        for route, message in messages:
            found = self._routes.get(route)
            if found is None:
                found = self._routes[route] = deque()
            found.append(message)
            self.count += 1

    def take(self) -> Iterator[tuple[bytes, list[m.Message]]]:
        """Take out the next messages, peer by peer, until nothing is left."""
        while self._routes:
            route, messages = self._routes.popitem(last=False)
            some = list(islice(messages, AT_ONCE if self._routes else ALONE))
            self.count -= len(some)
            if len(messages) > len(some):
                for _ in some:
                    messages.popleft()
                self._routes[route] = messages
            yield route, some
