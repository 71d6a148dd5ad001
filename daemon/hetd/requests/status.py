"""Report the state of the daemon, its counters since the start, and its configuration."""

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
"""Prefix of the configuration keys with limits of single users."""


class StatusRequests:
    """Handles requests for status and configuration.

    Args:
        watchers: returns the number of connections with a subscription.

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
        """Return the active configuration; limits of other users only to administrators."""
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
