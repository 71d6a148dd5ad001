"""Subscriptions: which connection receives which task changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libtask.messages import ENDED, TaskChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hetd.tasks.page import TaskPage
    from hetd.transport.router import Peer
    from libtask.messages import Message, Subscribe


MOST_WATCHES = 64
"""Subscriptions of one user: each costs time at every change, and memory for its ids."""
MOST_WATCHED = 100_000
"""Ids of tasks in all subscriptions of one user."""


class Subscriptions:
    """The subscribed connections, each with its filter."""

    def __init__(self) -> None:
        self._watches: dict[bytes, tuple[Peer, Subscribe, frozenset[int]]] = {}
        self._routes: dict[int, dict[bytes, None]] = {}
        """uid -> subscribed connections, in order of subscription."""
        self.lagging: dict[bytes, int] = {}
        """Connections that do not read their messages -> number of changes they missed."""

    def add(self, peer: Peer, watch: Subscribe) -> None:
        """Add a subscription; it replaces an earlier one of the same connection."""
        self._watches[peer.route] = (peer, watch, frozenset(watch.ids or ()))
        self._routes.setdefault(peer.uid, {})[peer.route] = None

    def routes_of(self, uid: int) -> list[bytes]:
        """Return the subscribed connections of a user."""
        return list(self._routes.get(uid, ()))

    def is_full_for(self, peer: Peer, watch: Subscribe) -> bool:
        """Whether a user has reached the limits, not counting this connection."""
        others = [route for route in self.routes_of(peer.uid) if route != peer.route]
        ids = sum(len(self._watches[route][2]) for route in others)
        return len(others) >= MOST_WATCHES or ids + len(watch.ids or ()) > MOST_WATCHED

    def __len__(self) -> int:
        return len(self._watches)

    def __bool__(self) -> bool:
        return bool(self._watches)

    def remove(self, route: bytes) -> None:
        """Remove a closed connection."""
        known = self._watches.pop(route, None)
        if known is not None:
            routes = self._routes[known[0].uid]
            del routes[route]
            if not routes:
                del self._routes[known[0].uid]
        self.lagging.pop(route, None)

    def lag(self, route: bytes, messages: Iterable[Message]) -> None:
        """Suspend a connection until it has received the number of missed changes."""
        missed = sum(isinstance(message, TaskChanged) for message in messages)
        if missed or route in self.lagging:
            self.lagging[route] = self.lagging.get(route, 0) + missed

    def address(
        self,
        changes: Iterable[tuple[TaskPage, TaskChanged]],
        is_admin: Callable[[int], bool],
    ) -> Iterator[tuple[bytes, Message]]:
        """Yield each change with its receivers; for lagging connections, count it as missed.

        Args:
            changes: changes in order.
            is_admin: whether a uid may see every task.

        """
        addressed = (
            self._addressed(changes, is_admin) if self._watches else _ends(changes)
        )
        for route, change in addressed:
            if route in self.lagging:
                self.lagging[route] += 1
            else:
                yield route, change

    def _addressed(
        self,
        changes: Iterable[tuple[TaskPage, TaskChanged]],
        is_admin: Callable[[int], bool],
    ) -> Iterator[tuple[bytes, TaskChanged]]:
        """Yield each change for its subscribers, and ends of tasks for their submitters."""
        admins = [uid for uid in self._routes if is_admin(uid)]
        for page, change in changes:
            told = False
            for route in self._interested(page.owner, admins):
                _, watch, ids = self._watches[route]
                if watch.ids is not None and change.id not in ids:
                    continue
                if watch.progress or change.what != "progress":
                    told = told or route == page.submitter
                    yield route, change
            if change.state in ENDED and page.submitter and not told:
                yield page.submitter, change

    def _interested(self, owner: int, admins: list[int]) -> Iterator[bytes]:
        """Yield the subscribed connections that may see tasks of this owner."""
        yield from self._routes.get(owner, ())
        for uid in admins:
            if uid != owner:
                yield from self._routes.get(uid, ())


def _ends(
    changes: Iterable[tuple[TaskPage, TaskChanged]],
) -> Iterator[tuple[bytes, TaskChanged]]:
    """Yield the ends of tasks for their submitters, where nobody is subscribed."""
    for page, change in changes:
        if change.state in ENDED and page.submitter:
            yield page.submitter, change
