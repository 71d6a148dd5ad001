"""Permissions: which user may see and do what.

A user sees and touches his own tasks. Rulers (root, the daemon's own user, members of
the administrators' group) see and touch all, and change what is everybody's: the
policy, drained resources, the estimates.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from libtask.errors import NotAllowedError, NotFoundError

if TYPE_CHECKING:
    from hetd.journal import Entry, Journal
    from hetd.transport.router import Peer


class Permissions:
    """Answers who may what."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def may_rule(self, uid: int) -> bool:
        """Whether this user may touch what is not his own."""
        return uid in (0, os.getuid())

    def demand_rule(self, peer: Peer) -> None:
        """Refuse who may not rule.

        Raises:
            NotAllowedError: who asks is no ruler.

        """
        if not self.may_rule(peer.uid):
            raise NotAllowedError("only root and the daemon's own user may do that")

    def own(self, peer: Peer, task: int) -> Entry:
        """Find a task that the peer may touch.

        Raises:
            NotFoundError: there is none with that number.
            NotAllowedError: it is another user's.

        """
        entry = self._journal.find(task)
        if entry is None:
            raise NotFoundError(f"no task {task}")
        if not self.may_see(peer, entry):
            raise NotAllowedError(f"task {task} is another user's")
        return entry

    def may_see(self, peer: Peer, entry: Entry, *, mine: bool = False) -> bool:
        """Whether a task is the peer's; but for `mine`, a ruler sees all."""
        return entry.owner == peer.uid or (not mine and self.may_rule(peer.uid))
