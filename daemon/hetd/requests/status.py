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
    from hetd.runtime import Runtime
    from hetd.store import Store
    from hetd.transport.router import Peer


USERS = "limits.user."
"""Begins the keys of single users' limits."""


class StatusRequests:
    """Answers who watches the daemon over time.

    Args:
        watchers: counts the connections that watch tasks.

    """

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        rights: Permissions,
        watchers: Callable[[], int],
    ) -> None:
        self._runtime = runtime
        self._rights = rights
        self._store = store
        self._watchers = watchers
        self._started = runtime.clock.wall()

    def config(self, peer: Peer, request: m.ShowConfig) -> m.Message:
        """Tell what is in force; limits of others, who is no ruler may not see."""
        runtime = self._runtime
        found = values(runtime.config, runtime.origins, runtime.settings.policy)
        if not self._rights.is_admin(peer.uid):
            mine = tuple(f"{USERS}{name}." for name in names_of(peer.uid))
            found = (
                each
                for each in found
                if not each.key.startswith(USERS) or each.key.startswith(mine)
            )
        file = runtime.origins.file
        return m.ConfigInfo(request.request, list(found), str(file or ""))

    def status(self, peer: Peer, request: m.Status) -> m.Message:
        counters, pool = self._runtime.counters, self._runtime.pool
        origins = self._runtime.origins
        return m.StatusInfo(
            request.request,
            version=hetd.__version__,
            pid=os.getpid(),
            policy=policy_name(self._runtime),
            started=self._started,
            tasks=dict(self._runtime.journal.counts),
            records=dict(counters.records),
            migrations=self._runtime.journal.migrations,
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
