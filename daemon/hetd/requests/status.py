"""How the daemon is: what it does now, and what it has done since its start."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psutil

import hetd
from hetd.config import values
from hetd.requests.permissions import names_of
from hetd.requests.resources import policy_name
from hetsched.system import SECOND
from libtask import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetd.requests.permissions import Permissions
    from hetd.runtime import Node
    from hetd.store import Store
    from hetd.transport.router import Peer


USERS = "limits.user."
"""Begins the keys of single users' limits."""


class StatusDesk:
    """Answers who watches the daemon over time.

    Args:
        watchers: counts the connections that watch tasks.

    """

    def __init__(
        self,
        node: Node,
        store: Store,
        rights: Permissions,
        watchers: Callable[[], int],
    ) -> None:
        self._node = node
        self._rights = rights
        self._store = store
        self._watchers = watchers
        self._started = node.clock.wall()

    def config(self, peer: Peer, request: m.ShowConfig) -> m.Message:
        """Tell what is in force; limits of others, who is no ruler may not see."""
        node = self._node
        found = values(node.config, node.origins, node.settings.policy)
        if not self._rights.may_rule(peer.uid):
            mine = tuple(f"{USERS}{name}." for name in names_of(peer.uid))
            found = (
                each
                for each in found
                if not each.key.startswith(USERS) or each.key.startswith(mine)
            )
        file = node.origins.file
        return m.ConfigInfo(request.request, list(found), str(file or ""))

    def status(self, peer: Peer, request: m.Status) -> m.Message:
        counters, pool = self._node.counters, self._node.pool
        origins = self._node.origins
        return m.StatusInfo(
            request.request,
            version=hetd.__version__,
            pid=os.getpid(),
            policy=policy_name(self._node),
            started=self._started,
            tasks=dict(self._node.journal.counts),
            records=dict(counters.records),
            migrations=self._node.journal.migrations,
            decided=counters.decided,
            deciding_s=counters.deciding_ns / SECOND,
            commits=counters.commits,
            commit_s=counters.commit_ns / SECOND,
            refused=counters.refused,
            workers=pool.count(),
            launchers=pool.launchers(),
            watchers=self._watchers(),
            memory_bytes=psutil.Process().memory_info().rss,
            shortage=self._store.shortage,
            config_file=str(origins.file or ""),
            state=str(origins.state or ""),
            log=origins.log,
            managed=origins.managed,
            command_policy=origins.policy or "",
        )
