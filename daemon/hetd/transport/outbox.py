"""The outbox: what is durable and is to be told, in order for each peer, by turns.

One change may be told to hundreds of connections of its owner, and thousands of changes
may be in one commit. They leave by turns of the peers, as much in a turn of the loop as
that may take, so that nobody's answer waits behind what another is told.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from libtask.messages import Message

AT_ONCE, ALONE = 8, 64
"""Messages for one peer before it is another's turn; and where there is no other."""
FULL = 5000
"""Messages from which on no request is carried on: it would make more of them."""


class Outbox:
    """Messages by peer."""

    def __init__(self) -> None:
        self._routes: OrderedDict[bytes, deque[Message]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether there is so much to tell that nothing is to be added without need."""
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
        """Take out what is next, peer by peer, until nothing is left."""
        while self._routes:
            route, messages = self._routes.popitem(last=False)
            some = list(islice(messages, AT_ONCE if self._routes else ALONE))
            self._count -= len(some)
            if len(messages) > len(some):
                for _ in some:
                    messages.popleft()
                self._routes[route] = messages
            yield route, some
