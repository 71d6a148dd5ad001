"""Subscriptions: an iterator over the changes of tasks, or of resources.

Each subscription has its own connection; closing it ends the subscription. When changes
were missed, because the reader was slow or the daemon restarted, it continues with the
present states of the tasks (changes whose `what` is `seen`).
"""

from __future__ import annotations

import queue
import threading
import time
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from msgspec import structs

from libtask.client.connection import Connection, ConnectionLostError
from libtask.errors import DaemonUnreachableError, HetError
from libtask.messages import ListTasks, ResourceChanged, Subscribe, TaskChanged

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType

    from libtask.messages import TaskInfo, TaskList

    Change = TaskChanged | ResourceChanged
    Sink = Callable[[Change | HetError], None]

REPLY_SECONDS = 10.0
PATIENCE_SECONDS = 30.0
"""Seconds for a lost daemon to return."""
PAUSE = 0.1
"""Seconds between two attempts to connect."""

PAGE = 500
"""Tasks requested in one message."""
OVERLAP_S = 1.0
"""Seconds before the last change from which ended tasks are listed again: changes come in
the order of their commits, which is not quite that of their times."""


def watch_of(*ids: int, progress: bool = True) -> Subscribe:
    """Return the subscription to these tasks (none named: all visible ones)."""
    return Subscribe(request=0, ids=list(ids) or None, progress=progress)


class Subscription:
    """A subscription over successive connections.

    Args:
        path: the daemon's socket.
        watch: what to subscribe to.
        sink: called with each change in a connection's thread, and last with the error
            that ended the subscription.
        patience: seconds to wait for a lost daemon.

    Raises:
        DaemonUnreachableError: no daemon answers; gives the reason.

    """

    def __init__(
        self,
        path: Path,
        watch: Subscribe,
        sink: Sink,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._path = path
        self._patience = patience
        self._watch = watch
        self._sink = sink
        self._heard = time.time_ns() / 1e9
        """Time of the newest delivered change; older changes were delivered as well."""
        self._closed = threading.Event()
        self._connection = self._open()

    def close(self) -> None:
        self._closed.set()
        self._connection.close()

    def open_again(self) -> None:
        """Continue after a `DaemonUnreachableError`, with all changes missed meanwhile.

        Raises:
            DaemonUnreachableError: the daemon is not back; gives the reason.

        """
        self._take_over(self._open())

    def _open(self) -> Connection:
        connection = Connection(self._path, self._tell, self._lost, self.catch_up)
        reply = connection.ask_until_served(self._watch)
        try:
            reply.result(REPLY_SECONDS)
        except TimeoutError:
            connection.close()
            text = f"{self._path}: the daemon gives no answer in {REPLY_SECONDS:g} s"
            raise DaemonUnreachableError(text) from None
        except BaseException:
            connection.close()
            raise
        return connection

    def _tell(self, change: Change) -> None:
        if isinstance(change, TaskChanged):
            self._heard = max(self._heard, change.at)
        self._sink(change)

    # ------------------------------------------------------------ missed changes

    def catch_up(self, connection: Connection | None = None) -> None:
        """Request the present states of the tasks; must not wait."""
        connection, watch = connection or self._connection, self._watch
        if watch.resources:
            connection.ask_until_served(watch)  # their states come first
        elif watch.ids is not None:
            for start in range(0, len(watch.ids), PAGE):
                page = ListTasks(0, ids=watch.ids[start : start + PAGE], limit=PAGE)
                self._ask_page(connection, page)
        elif watch.mine:
            since = self._heard - OVERLAP_S
            page = ListTasks(0, mine=True, since=since, limit=PAGE)
            self._ask_page(connection, page)
        else:
            self._ask_page(connection, ListTasks(0, limit=PAGE))

    def _ask_page(self, connection: Connection, page: ListTasks) -> None:
        asked = connection.ask_until_served(page)
        asked.add_done_callback(partial(self._caught_up, connection, page))

    def _caught_up(
        self, connection: Connection, page: ListTasks, asked: Future[TaskList]
    ) -> None:
        error = asked.exception()
        if isinstance(error, HetError) and not isinstance(error, ConnectionLostError):
            self._sink(error)
        if error is not None:
            return
        found = asked.result()
        for info in reversed(found.tasks):
            change = as_change(info)
            if self._was_missed(info, change):
                self._sink(change)
        whole = self._watch.ids is not None or self._watch.mine
        if whole and found.next is not None:
            self._ask_page(connection, structs.replace(page, before=found.next))

    def _was_missed(self, info: TaskInfo, change: TaskChanged) -> bool:
        """Whether the present state of a listed task may be new to the subscriber."""
        watch = self._watch
        if watch.ids is not None:
            return True
        if watch.mine:
            named = not watch.name or fnmatchcase(info.name, watch.name)
            return named and watch.job in ("", info.job)
        return change.at >= self._heard

    # ------------------------------------------------------------ reconnection

    def _lost(self, _: Connection) -> None:
        """Handle the loss in the connection's thread, which must not wait."""
        threading.Thread(target=self._restore, daemon=True).start()

    def _restore(self) -> None:
        deadline = time.monotonic() + self._patience
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
        elif not self._watch.resources:  # their states came with the subscription
            self.catch_up(connection)


Item = TypeVar("Item", bound="Change")


class ChangeIterator(Generic[Item]):
    """Iterator over changes until `close`.

    If the daemon does not return in time, `DaemonUnreachableError` is raised; a further
    `next` continues when it is back, with the changes that were missed.
    """

    def __init__(
        self,
        path: Path,
        watch: Subscribe,
        *,
        patience: float = PATIENCE_SECONDS,
        present: bool = False,
    ) -> None:
        self._changes: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lost = False
        self._closed = False
        self._subscription = Subscription(path, watch, self._changes.put, patience)
        if present:
            self._subscription.catch_up()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        self._continue()
        return self._checked(self._changes.get())

    def within(self, seconds: float) -> Item | None:
        """Return the next change; None: none arrived within `seconds`."""
        self._continue()
        try:
            return self._checked(self._changes.get(timeout=seconds))
        except queue.Empty:
            return None

    def close(self) -> None:
        self._closed = True
        self._subscription.close()
        self._changes.put(DaemonUnreachableError("the watch was closed"))

    def _continue(self) -> None:
        """Look for a daemon that did not return in time."""
        if not self._lost:
            return
        if self._closed:
            raise DaemonUnreachableError("the watch was closed")
        self._subscription.open_again()
        self._lost = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _checked(self, item: Item | HetError) -> Item:
        if isinstance(item, HetError):
            self._lost = isinstance(item, DaemonUnreachableError)
            raise item
        return item


class TaskChanges(ChangeIterator[TaskChanged]):
    """Iterator over the changes of tasks."""


class ResourceChanges(ChangeIterator[ResourceChanged]):
    """Iterator over the states of resources: first the present ones, then each new one."""


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
        name=info.name,
    )
