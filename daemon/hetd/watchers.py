"""Watchers: who is told of which changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libtask.messages import ENDED, TaskChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hetd.entry import Entry
    from hetd.transport.router import Peer
    from libtask.messages import Message, Watch


MOST_WATCHES = 256
"""Watches of one user: each costs time at every change, and memory for its ids."""


class Watchers:
    """The connections that asked to be told, and what each wants to know."""

    def __init__(self) -> None:
        self._watches: dict[bytes, tuple[Peer, Watch, frozenset[int]]] = {}
        self.lagging: dict[bytes, int] = {}
        """Connections that do not read what they are told -> changes they missed."""

    def add(self, peer: Peer, watch: Watch) -> None:
        """Tell this connection from now on; replaces what it watched before."""
        self._watches[peer.route] = (peer, watch, frozenset(watch.ids or ()))

    def routes_of(self, uid: int) -> list[bytes]:
        """List the connections of a user that watch."""
        watches = self._watches.items()
        return [route for route, (peer, _, _) in watches if peer.uid == uid]

    def is_full_for(self, peer: Peer) -> bool:
        """Whether a connection's user has as many watches as he may, without its own."""
        others = len(self.routes_of(peer.uid)) - (peer.route in self._watches)
        return others >= MOST_WATCHES

    def __len__(self) -> int:
        return len(self._watches)

    def remove(self, route: bytes) -> None:
        """Forget a connection that is no more."""
        self._watches.pop(route, None)
        self.lagging.pop(route, None)

    def lag(self, route: bytes, messages: Iterable[Message]) -> None:
        """Tell a connection no more changes until it has heard that it missed some."""
        missed = sum(isinstance(message, TaskChanged) for message in messages)
        if missed or route in self.lagging:
            self.lagging[route] = self.lagging.get(route, 0) + missed

    def address(
        self,
        changes: Iterable[tuple[Entry, TaskChanged]],
        may_rule: Callable[[int], bool],
    ) -> Iterator[tuple[bytes, Message]]:
        """Address each change; who lags is not told, and misses one more.

        Args:
            changes: what happened, in order.
            may_rule: whether a uid may see every task.

        """
        for route, change in self._addressed(changes, may_rule):
            if route in self.lagging:
                self.lagging[route] += 1
            else:
                yield route, change

    def _addressed(
        self,
        changes: Iterable[tuple[Entry, TaskChanged]],
        may_rule: Callable[[int], bool],
    ) -> Iterator[tuple[bytes, TaskChanged]]:
        """Address each change: to who submitted the task, at its end, and to watchers."""
        for entry, change in changes:
            told = False
            for route, (peer, watch, ids) in self._watches.items():
                if watch.ids is not None and change.id not in ids:
                    continue
                if peer.uid != entry.owner and not may_rule(peer.uid):
                    continue
                if watch.progress or change.what != "progress":
                    told = told or route == entry.submitter
                    yield route, change
            if change.state in ENDED and entry.submitter and not told:
                yield entry.submitter, change
