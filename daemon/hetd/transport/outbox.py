"""The outbox: durable messages that wait to be sent, in order per peer, round robin.

One change may go to hundreds of connections of its owner, and one commit may hold
thousands of changes. Peers are served round robin, within the time limit of a turn of
the loop, so that no answer waits behind the messages of another peer.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from libtask.messages import Message

AT_ONCE, ALONE = 8, 64
"""Messages for one peer before the next peer; and where there is only one."""
FULL = 5000
"""Messages from which on requests under way pause: they would add more."""


class Outbox:
    """Messages by peer."""

    def __init__(self) -> None:
        self._routes: OrderedDict[bytes, deque[Message]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether requests under way have to pause."""
        return self._count >= FULL

    def put(self, messages: Iterable[tuple[bytes, Message]]) -> None:
        """Add messages with their addresses."""
        for route, message in messages:
            found = self._routes.get(route)
            if found is None:
                found = self._routes[route] = deque()
            found.append(message)
            self._count += 1

    def take(self) -> Iterator[tuple[bytes, list[Message]]]:
        """Take out the next messages, peer by peer, until nothing is left."""
        while self._routes:
            route, messages = self._routes.popitem(last=False)
            some = list(islice(messages, AT_ONCE if self._routes else ALONE))
            self._count -= len(some)
            if len(messages) > len(some):
                for _ in some:
                    messages.popleft()
                self._routes[route] = messages
            yield route, some
