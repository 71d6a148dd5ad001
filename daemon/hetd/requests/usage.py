"""Requests for the resources that a user occupies, and their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.requests.slices import chunks
from libtask import messages as m
from libtask.documents import LARGEST_WHOLE

if TYPE_CHECKING:
    from hetd.config import ActiveConfig
    from hetd.requests.permissions import Permissions
    from hetd.requests.slices import Steps
    from hetd.tasks.journal import Journal
    from hetd.tasks.page import TaskPage
    from hetd.transport.router import Peer

LOOKED_AT = 5000
"""Tasks that one step sums up: each costs little."""


class UsageRequests:
    """Answers users who ask what they use."""

    def __init__(
        self,
        config: ActiveConfig,
        journal: Journal,
        rights: Permissions,
    ) -> None:
        self._config = config
        self._journal = journal
        self._rights = rights

    def usage(self, peer: Peer, request: m.Usage) -> Steps:
        uid = peer.uid if request.user is None else request.user
        if uid != peer.uid:
            self._rights.require_admin(peer)
        snapshots = logs = 0
        live = self._journal.live_of.get(uid, {})
        for number, some in enumerate(chunks(list(live.values()), LOOKED_AT)):
            if number:
                yield
            snapshots += sum(each.snapshot.bytes for each in some if each.snapshot)
            logs += sum(map(_logged, some))
        usage, limits = self._journal.usage, self._config.limits
        return m.UsageInfo(
            request.request,
            user=uid,
            unended_tasks=len(live),
            unended_tasks_limit=limits.tasks.of(uid),
            unended_bytes=usage.unfinished[uid],
            unended_limit=limits.unfinished.of(uid),
            history_bytes=usage.history(uid),
            answer_bytes=usage.answers[uid],
            stored_limit=limits.stored.of(uid),
            # workers report these sizes: their sum may be of any size
            snapshot_bytes=min(snapshots, LARGEST_WHOLE),
            log_bytes=min(logs, LARGEST_WHOLE),
            priority_limit=limits.priority.of(uid),
        )


def _logged(page: TaskPage) -> int:
    """Return the bytes that a task has logged in its closed segments."""
    return sum(
        max(0, each.log_end - each.log_start)
        for each in page.segments
        if each.log_end is not None
    )
