"""Dask's configuration for a pool; applied before its first object is made."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import dask
from distributed.security import Security

if TYPE_CHECKING:
    from hetpool.setup.settings import EngineSettings

OPEN_TASKS = 100_000
"""Errands open on a node at a time. They are coroutines, so that none needs a thread."""
HTTP = "127.0.0.1:0"
"""Address of Dask's HTTP servers, which TLS does not protect. They cannot be left out, so
they have no routes, and no other machine reaches them."""
UNUSED_PERIOD = "60s"
"""Period of what Dask does again and again and a pool makes no use of."""
LOUD = tuple(
    f"distributed.{name}"
    for name in ("worker", "scheduler", "core", "client", "utils", "batched", "comm")
)


def configure(settings: EngineSettings) -> None:
    """Set what the pool depends on; the rest of Dask's configuration is the user's."""
    dask.config.set({f"distributed.{key}": value for key, value in _keys(settings)})
    for name in LOUD:
        # a traceback for each attempt to reach a lost scheduler; the pool says it in a line
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _keys(settings: EngineSettings) -> list[tuple[str, Any]]:
    patience = f"{settings.patience_s}s"
    return [
        # stealing ignores loose restrictions, and gives tasks to gateways
        ("scheduler.work-stealing", False),
        ("scheduler.active-memory-manager.start", False),
        ("scheduler.worker-ttl", patience),
        ("scheduler.allowed-failures", 1000),  # else `KilledWorker` after 3 restarts
        ("scheduler.no-workers-timeout", None),  # the broker decides
        ("scheduler.worker-saturation", float("inf")),
        ("scheduler.locks.lease-timeout", None),
        ("comm.timeouts.tcp", patience),
        ("comm.timeouts.connect", patience),
        ("comm.retry.count", 0),
        ("comm.require-encryption", settings.ca is not None),
        # one connection and small messages: transfers keep the order of priorities
        ("worker.connections.outgoing", 1),
        ("worker.transfer.message-bytes-limit", "1MB"),
        # Dask measures its own loops 50 times a second, and the machine twice: an idle node
        # used 1 to 3 % of a processor for figures that only its dashboard shows
        ("admin.tick.interval", UNUSED_PERIOD),
        ("admin.tick.cycle", UNUSED_PERIOD),
        ("admin.system-monitor.interval", UNUSED_PERIOD),
        ("admin.system-monitor.disk", False),
        ("admin.system-monitor.gil.enabled", False),
        ("client.scheduler-info-interval", UNUSED_PERIOD),
        ("worker.profile.enabled", False),
        ("worker.memory.target", False),
        ("worker.memory.spill", False),
        ("worker.memory.pause", False),
        ("worker.memory.terminate", False),
        ("worker.http.routes", []),
        ("scheduler.http.routes", []),
        ("worker.lifetime.duration", None),
    ]


def security(settings: EngineSettings) -> Security:
    """Return the certificates as Dask takes them, the same ones for every role."""
    if settings.ca is None:
        return Security(require_encryption=False)
    parts: dict[str, Any] = {"tls_ca_file": str(settings.ca)}
    for role in ("client", "scheduler", "worker"):
        parts[f"tls_{role}_cert"] = str(settings.cert)
        parts[f"tls_{role}_key"] = str(settings.key)
    return Security(require_encryption=True, **parts)
