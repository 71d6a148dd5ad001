"""The feed: fills the picture from the daemon, in a separate thread.

It lists the newest tasks once, then receives their changes. Changes are incomplete, so
each update requests the visible tasks again. If the daemon disappears, the feed reports
that, and starts over when the daemon is back.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from libtask.client.client import Client, Selection
from libtask.errors import HetError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hetctl.top.picture import Picture
    from libtask.client.subscription import TaskChanges

MOST_TASKS = 10_000
"""Most tasks in the picture; older ones are dropped."""
MOST_CHANGES = 5_000
"""Most changes per update: the screen must be drawn even under a flood of them."""


@dataclass(slots=True)
class Feed:
    """Fills a picture.

    Attributes:
        wanted: ids of the tasks that the screen shows now.
        interval: seconds between two updates.

    """

    socket: Path | None
    picture: Picture
    interval: float = 1.0
    wanted: tuple[int, ...] = ()
    _stopped: threading.Event = field(default_factory=threading.Event)
    _asked: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        self._stopped.set()
        self._asked.set()

    def hurry(self) -> None:
        """Update immediately."""
        self._asked.set()

    def run(self, updated: Callable[[], None]) -> None:
        """Update until stopped; call `updated` after each update."""
        while not self._stopped.is_set():
            try:
                with self._connect() as client, client.watch() as watching:
                    self._follow(client, watching, updated)
            except HetError as error:
                self.picture.problem = str(error)
                updated()
                self._pause()

    def once(self) -> None:
        """Update once.

        Raises:
            HetError: the daemon does not answer.

        """
        with self._connect() as client:
            self.begin(client)

    def _connect(self) -> Client:
        """Connect; without reconnecting, because the feed handles a lost daemon itself."""
        return Client(self.socket, patience=0.0)

    def begin(self, client: Client) -> None:
        """Read the status, the resources and the newest tasks."""
        self.picture.read(client.status(), client.devices())
        self.picture.tasks.clear()
        self.picture.enter(client.tasks(Selection(limit=MOST_TASKS)))
        self._look_at_shown(client)
        self.picture.problem = ""

    def _follow(
        self, client: Client, watching: TaskChanges, updated: Callable[[], None]
    ) -> None:
        self.begin(client)
        while not self._stopped.is_set():
            updated()
            self._pause()
            self._take_changes(client, watching)
            self.picture.read(client.status(), client.devices())
            self._look_at_shown(client)

    def _take_changes(self, client: Client, watching: TaskChanges) -> None:
        unknown: set[int] = set()
        for _ in range(MOST_CHANGES):
            changed = watching.within(0)
            if changed is None:
                break
            if not self.picture.change(changed):
                unknown.add(changed.id)
        if unknown:
            some = tuple(sorted(unknown)[-MOST_TASKS:])
            self.picture.enter(client.tasks(Selection(ids=some, limit=MOST_TASKS)))
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        tasks = self.picture.tasks
        for task in sorted(tasks)[: max(0, len(tasks) - MOST_TASKS)]:
            del tasks[task]

    def _look_at_shown(self, client: Client) -> None:
        on_resources = [task for each in self.picture.devices for task in each.running]
        ids = tuple({*self.wanted, *on_resources})
        if ids:
            shown = client.tasks(Selection(ids=ids, detail=True, limit=len(ids)))
            self.picture.enter(shown)

    def _pause(self) -> None:
        self._asked.wait(self.interval)
        self._asked.clear()
