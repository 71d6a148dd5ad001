"""Subscriptions: which connection receives which task changes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import translate
from typing import TYPE_CHECKING

from msgspec.structs import replace

from libtask.messages import ENDED, ResourceChanged, TaskChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hetd.tasks.page import TaskPage
    from hetd.transport.router import Peer
    from libtask.messages import Message, Subscribe


MOST_WATCHES = 64
"""Subscriptions of one user: each costs time at every change, and memory for its ids."""
MOST_WATCHED = 100_000
"""Ids of tasks in all subscriptions of one user."""
PUSHED = (TaskChanged, ResourceChanged)


@dataclass(slots=True)
class ConnectionWatch:
    """The subscription of a connection.

    Attributes:
        chosen: which tasks it is of.
        ids: the tasks that it names and that have not ended; None: it names none.
        matches: whether a name matches its pattern; None: it has none.
        told: the states of resources that were pushed to it, by name.

    """

    peer: Peer
    chosen: Subscribe
    ids: set[int] | None
    matches: Callable[[str], object] | None = None
    told: dict[str, ResourceChanged] = field(default_factory=dict)

    def concerns(self, page: TaskPage, change: TaskChanged) -> bool:
        """Whether it is of this task; that of another user's task was found before."""
        if self.ids is not None:
            return change.id in self.ids
        chosen = self.chosen
        if chosen.mine and page.owner != self.peer.uid:
            return False
        if chosen.job and page.spec.job != chosen.job:
            return False
        return self.matches is None or bool(self.matches(page.spec.name))


def watch_of(peer: Peer, chosen: Subscribe) -> ConnectionWatch:
    """Return a new subscription."""
    ids = None if chosen.ids is None else set(chosen.ids)
    pattern = re.compile(translate(chosen.name)).match if chosen.name else None
    return ConnectionWatch(peer, chosen, ids, pattern)


class Subscriptions:
    """The subscribed connections, each with its filter."""

    def __init__(self) -> None:
        self._watches: dict[bytes, ConnectionWatch] = {}
        self._routes: dict[int, dict[bytes, None]] = {}
        """uid -> subscribed connections, in order of subscription."""
        self.lagging: dict[bytes, int] = {}
        """Connections that do not read their messages -> number of changes they missed."""
        self.of_resources: dict[bytes, ConnectionWatch] = {}
        """Those that get the states of resources."""

    def add(self, peer: Peer, chosen: Subscribe) -> None:
        """Add a subscription; it replaces, or extends, that of the same connection."""
        known = self._watches.get(peer.route)
        if chosen.add and known is not None:
            if known.ids is not None:
                known.ids.update(chosen.ids or ())
            progress = chosen.progress or known.chosen.progress
            known.chosen = replace(known.chosen, progress=progress)
            return
        watch = self._watches[peer.route] = watch_of(peer, chosen)
        self.of_resources.pop(peer.route, None)
        if chosen.resources:
            self.of_resources[peer.route] = watch
        self._routes.setdefault(peer.uid, {})[peer.route] = None

    def routes_of(self, uid: int) -> list[bytes]:
        """Return the subscribed connections of a user."""
        return list(self._routes.get(uid, ()))

    def is_full_for(self, peer: Peer, chosen: Subscribe) -> bool:
        """Whether a user has reached the limits with this subscription."""
        routes = self.routes_of(peer.uid)
        others = [route for route in routes if route != peer.route]
        counted = routes if chosen.add else others
        ids = sum(len(self._watches[route].ids or ()) for route in counted)
        return len(others) >= MOST_WATCHES or ids + len(chosen.ids or ()) > MOST_WATCHED

    def __len__(self) -> int:
        return len(self._watches)

    def __bool__(self) -> bool:
        return bool(self._watches)

    def remove(self, route: bytes) -> None:
        """Remove a closed connection."""
        known = self._watches.pop(route, None)
        if known is not None:
            uid = known.peer.uid
            del self._routes[uid][route]
            if not self._routes[uid]:
                del self._routes[uid]
        self.lagging.pop(route, None)
        self.of_resources.pop(route, None)

    def lag(self, route: bytes, messages: Iterable[Message]) -> None:
        """Suspend a connection until it has received the number of missed changes."""
        missed = sum(isinstance(message, PUSHED) for message in messages)
        if missed or route in self.lagging:
            self.lagging[route] = self.lagging.get(route, 0) + missed

    def address(
        self,
        changes: Iterable[tuple[TaskPage, TaskChanged]],
        is_admin: Callable[[int], bool],
    ) -> Iterable[tuple[bytes, Message]]:
        """Return each change with its receivers; for lagging connections, count it as missed.

        Args:
            changes: changes in order.
            is_admin: whether a uid may see every task.

        """
        if self._watches or self.lagging:
            return self._reachable(changes, is_admin)
        return [  # nobody is subscribed: submitters hear of the ends of their tasks
            (page.submitter, change)
            for page, change in changes
            if change.state in ENDED and page.submitter
        ]

    def _reachable(
        self,
        changes: Iterable[tuple[TaskPage, TaskChanged]],
        is_admin: Callable[[int], bool],
    ) -> Iterator[tuple[bytes, TaskChanged]]:
        """Yield changes with their receivers, but for lagging ones: count what these miss."""
        for route, change in self._addressed(changes, is_admin):
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
                watch = self._watches[route]
                if not watch.concerns(page, change):
                    continue
                if watch.ids is not None and change.state in ENDED:
                    watch.ids.discard(change.id)  # it will not change any more
                if watch.chosen.progress or change.what != "progress":
                    told = told or route == page.submitter
                    yield route, change
            if change.state in ENDED and page.submitter and not told:
                yield page.submitter, change

    def address_resources(
        self, states: Sequence[ResourceChanged]
    ) -> Iterator[tuple[bytes, Message]]:
        """Yield the states of resources that are new to a subscriber, with its route."""
        for route, watch in self.of_resources.items():
            for state in states:
                if watch.told.get(state.name) == state:
                    continue
                watch.told[state.name] = state
                if route in self.lagging:
                    self.lagging[route] += 1
                else:
                    yield route, state

    def _interested(self, owner: int, admins: list[int]) -> Iterator[bytes]:
        """Yield the subscribed connections that may see tasks of this owner."""
        yield from self._routes.get(owner, ())
        for uid in admins:
            if uid != owner:
                yield from self._routes.get(uid, ())
