"""Report the state of the daemon, its counters since the start, and its configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psutil

import hetd
from hetd.config import values
from hetd.requests.permissions import names_of
from hetd.requests.policies import policy_name
from hetsched import build
from hetsched.system import SECOND
from libtask import messages as m

if TYPE_CHECKING:
    from hetd.config import ActiveConfig
    from hetd.requests.permissions import Permissions
    from hetd.requests.subscriptions import Subscriptions
    from hetd.runtime import Runtime
    from hetd.store import Store
    from hetd.transport.router import Peer

USERS = "limits.user."
"""Prefix of the configuration keys with limits of single users."""


class StatusRequests:
    """Handles requests for status and configuration."""

    def __init__(
        self,
        runtime: Runtime,
        config: ActiveConfig,
        store: Store,
        subscriptions: Subscriptions,
        rights: Permissions,
    ) -> None:
        self._config = config
        self._counters = runtime.counters
        self._scheduler = runtime.scheduler
        self._journal = runtime.journal
        self._settings = runtime.settings
        self._pool = runtime.pool
        self._store = store
        self._subscriptions = subscriptions
        self._rights = rights
        self._started = runtime.clock.wall()

    def config(self, peer: Peer, request: m.ShowConfig) -> m.Message:
        """Return the active configuration; limits of other users only to administrators."""
        found = values(self._config.value, self._config.origins, self._settings.policy)
        if not self._rights.is_admin(peer.uid):
            mine = tuple(f"{USERS}{name}." for name in names_of(peer.uid))
            found = (
                each
                for each in found
                if not each.key.startswith(USERS) or each.key.startswith(mine)
            )
        file = self._config.origins.file
        return m.ConfigInfo(request.request, list(found), str(file or ""))

    def status(self, peer: Peer, request: m.Status) -> m.Message:
        counters, pool = self._counters, self._pool
        origins = self._config.origins
        capacity = self._scheduler.state.needs.capacity
        return m.StatusInfo(
            request.request,
            version=hetd.__version__,
            pid=os.getpid(),
            policy=policy_name(self._scheduler),
            started=self._started,
            tasks={str(state): n for state, n in self._journal.counts.items()},
            records=dict(counters.records),
            migrations=self._journal.migrations,
            decided=counters.decided,
            deciding_s=counters.deciding_ns / SECOND,
            commits=counters.commits,
            commit_s=counters.commit_ns / SECOND,
            refused=counters.refused,
            workers=pool.count(),
            launchers=pool.launchers(),
            watchers=len(self._subscriptions),
            memory_bytes=psutil.Process().memory_info().rss,
            shortage=self._store.shortage,
            config_file=str(origins.file or ""),
            state=str(origins.state or ""),
            log=origins.log,
            managed=origins.managed,
            command_policy=origins.policy or "",
            jobs=len(self._scheduler.system.graphs.jobs),
            build=build.NAME,
            cores=capacity.cores or 0,
            task_memory_bytes=capacity.memory_bytes or 0,
        )
