"""Subscriptions: an iterator over the changes of all visible tasks.

Each subscription has its own connection; closing it ends the subscription. When changes
were missed, because the reader was slow or the daemon restarted, it continues with the
present states of the tasks (changes whose `what` is `seen`).
"""

from __future__ import annotations

import queue
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from libtask.client.connection import Connection, ConnectionLostError
from libtask.errors import DaemonUnreachableError, HetError
from libtask.messages import ListTasks, Subscribe, TaskChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType

    from libtask.messages import TaskInfo, TaskList

    Sink = Callable[[TaskChanged | HetError], None]

REPLY_SECONDS = 10.0
PATIENCE_SECONDS = 30.0
"""Seconds for a lost daemon to return."""
PAUSE = 0.1
"""Seconds between two attempts to connect."""

PAGE = 500
"""Tasks requested in one message."""


class Subscription:
    """A subscription to changes over successive connections.

    Args:
        path: the daemon's socket.
        ids: the tasks; none: all visible ones.
        sink: called with each change in a connection's thread, and last with the error
            that ended the subscription.
        progress: whether to include progress.

    Raises:
        DaemonUnreachableError: no daemon answers; gives the reason.

    """

    def __init__(
        self, path: Path, ids: Sequence[int], sink: Sink, *, progress: bool
    ) -> None:
        self._path = path
        self._ids = list(ids)
        self._sink = sink
        self._progress = progress
        self._heard = time.time_ns() / 1e9
        """Time of the newest delivered change; older changes were delivered as well."""
        self._closed = threading.Event()
        self._connection = self._open()

    def close(self) -> None:
        self._closed.set()
        self._connection.close()

    def _open(self) -> Connection:
        connection = Connection(self._path, self._tell, self._lost, self._catch_up)
        ids = self._ids or None
        watch = Subscribe(request=0, ids=ids, progress=self._progress)
        reply = connection.ask_until_served(watch)
        try:
            reply.result(REPLY_SECONDS)
        except BaseException:
            connection.close()
            raise
        return connection

    def _tell(self, change: TaskChanged) -> None:
        self._heard = max(self._heard, change.at)
        self._sink(change)

    # ------------------------------------------------------------ missed changes

    def _catch_up(self, connection: Connection) -> None:
        """Request the present states of the tasks; must not wait."""
        pages: list[list[int] | None] = [None]
        if self._ids:
            starts = range(0, len(self._ids), PAGE)
            pages = [self._ids[start : start + PAGE] for start in starts]
        for ids in pages:
            self._ask_page(connection, ids, None)

    def _ask_page(
        self, connection: Connection, ids: list[int] | None, before: int | None
    ) -> None:
        page = ListTasks(request=0, ids=ids, limit=PAGE, before=before)
        asked = connection.ask_until_served(page)
        asked.add_done_callback(partial(self._caught_up, connection, ids))

    def _caught_up(
        self,
        connection: Connection,
        ids: list[int] | None,
        asked: Future[TaskList],
    ) -> None:
        error = asked.exception()
        if isinstance(error, HetError) and not isinstance(error, ConnectionLostError):
            self._sink(error)
        if error is not None:
            return
        found = asked.result()
        for info in reversed(found.tasks):
            change = as_change(info)
            if self._ids or change.at >= self._heard:
                self._sink(change)
        if ids is not None and found.next is not None:
            self._ask_page(connection, ids, found.next)

    # ------------------------------------------------------------ reconnection

    def _lost(self, _: Connection) -> None:
        """Handle the loss in the connection's thread, which must not wait."""
        threading.Thread(target=self._restore, daemon=True).start()

    def _restore(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._closed.wait(PAUSE):
            try:
                connection = self._open()
            except DaemonUnreachableError as error:
                if time.monotonic() > deadline:
                    self._sink(error)
                    return
            except HetError as error:
                self._sink(error)
                return
            else:
                self._take_over(connection)
                return

    def _take_over(self, connection: Connection) -> None:
        self._connection = connection
        if self._closed.is_set():  # while it was opened
            connection.close()
        else:
            self._catch_up(connection)


class TaskChanges:
    """Iterator over changes; ends with `close`, or if the daemon does not return."""

    def __init__(self, path: Path, ids: Sequence[int], *, progress: bool) -> None:
        self._changes: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._subscription = Subscription(
            path, ids, self._changes.put, progress=progress
        )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> TaskChanged:
        return self._checked(self._changes.get())

    def within(self, seconds: float) -> TaskChanged | None:
        """Return the next change; None: none arrived within `seconds`."""
        try:
            return self._checked(self._changes.get(timeout=seconds))
        except queue.Empty:
            return None

    def close(self) -> None:
        self._subscription.close()
        self._changes.put(DaemonUnreachableError("the watch was closed"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _checked(self, item: TaskChanged | HetError) -> TaskChanged:
        if isinstance(item, HetError):
            raise item
        return item


def as_change(info: TaskInfo) -> TaskChanged:
    """Return the present state of a task as a change."""
    at = info.finished or info.started or info.submitted
    return TaskChanged(
        id=info.id,
        state=info.state,
        at=at,
        resource=info.resource,
        progress=info.progress,
        reason=info.reason,
        result=info.result,
        what="seen",
        type=info.type,
        last_output=info.last_output,
        trace=info.trace,
    )
