"""Changes of a node's resources, as its hetd pushes them: a device that is lost or comes back."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from libtask.errors import HetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.client.client import Client
    from libtask.client.subscription import ResourceChanges

PAUSE_S = 2.0
"""Seconds until a hetd that did not return is asked again."""

log = logging.getLogger("hetpool")


class ResourceWatch:
    """Waits in a thread for changes of resources.

    Args:
        client: the connection to hetd.
        told: called after each change, in that thread; also once at the beginning.

    """

    def __init__(self, client: Client, told: Callable[[], object]) -> None:
        self._client = client
        self._told = told
        self._closed = threading.Event()
        self._changes: ResourceChanges | None = None
        thread = threading.Thread(target=self._run, name="resources", daemon=True)
        thread.start()

    def close(self) -> None:
        """End the watch; does not wait for it."""
        self._closed.set()
        if self._changes is not None:
            self._changes.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with self._client.watch_resources() as changes:
                    self._changes = changes
                    self._follow(changes)
            except HetError as error:
                if not self._closed.is_set():
                    log.warning("resources: %s", error)
            self._closed.wait(PAUSE_S)

    def _follow(self, changes: ResourceChanges) -> None:
        while not self._closed.is_set():
            next(changes)
            self._told()
