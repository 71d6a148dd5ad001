"""Watchers: who is told of which changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libtask.messages import ENDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hetd.journal import Entry
    from hetd.transport.router import Peer
    from libtask.messages import Message, TaskChanged, Watch


class Watchers:
    """The connections that asked to be told, and what each wants to know."""

    def __init__(self) -> None:
        self._watches: dict[bytes, tuple[Peer, Watch, frozenset[int]]] = {}

    def add(self, peer: Peer, watch: Watch) -> None:
        """Tell this connection from now on; replaces what it watched before."""
        self._watches[peer.route] = (peer, watch, frozenset(watch.ids or ()))

    def __len__(self) -> int:
        return len(self._watches)

    def remove(self, route: bytes) -> None:
        self._watches.pop(route, None)

    def address(
        self,
        changes: Iterable[tuple[Entry, TaskChanged]],
        may_rule: Callable[[int], bool],
    ) -> Iterator[tuple[bytes, Message]]:
        """Address each change: to who submitted the task, at its end, and to watchers.

        Args:
            changes: what happened, in order.
            may_rule: whether a uid may see every task.

        """
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
