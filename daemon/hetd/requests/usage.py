"""What is kept of a user, and what they may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.requests.slices import slices
from libtask import messages as m

if TYPE_CHECKING:
    from hetd.requests.permissions import Permissions
    from hetd.requests.slices import Work
    from hetd.runtime import Node
    from hetd.tasks.page import Entry
    from hetd.transport.router import Peer

LOOKED_AT = 5000
"""Tasks that one step looks at: a look costs next to nothing."""


class UsageDesk:
    """Answers users who ask what they use."""

    def __init__(self, node: Node, rights: Permissions) -> None:
        self._node = node
        self._rights = rights

    def usage(self, peer: Peer, request: m.Usage) -> Work:
        uid = peer.uid if request.user is None else request.user
        if uid != peer.uid:
            self._rights.demand_rule(peer)
        snapshots = logs = 0
        live = self._node.journal.live_of.get(uid, {})
        for number, some in enumerate(slices(list(live.values()), LOOKED_AT)):
            if number:
                yield
            snapshots += sum(each.snapshot.bytes for each in some if each.snapshot)
            logs += sum(map(_logged, some))
        usage, limits = self._node.journal.usage, self._node.limits
        return m.UsageInfo(
            request.request,
            user=uid,
            unended_tasks=len(live),
            unended_tasks_limit=limits.tasks.of(uid),
            unended_bytes=usage.unended[uid],
            unended_limit=limits.unended.of(uid),
            history_bytes=usage.history(uid),
            answer_bytes=usage.answers[uid],
            stored_limit=limits.stored.of(uid),
            snapshot_bytes=snapshots,
            log_bytes=logs,
            priority_limit=limits.priority.of(uid),
        )


def _logged(entry: Entry) -> int:
    """Sum up what a task has written into logs, in stretches that are over."""
    return sum(
        max(0, each.log_end - each.log_start)
        for each in entry.segments
        if each.log_end is not None
    )
