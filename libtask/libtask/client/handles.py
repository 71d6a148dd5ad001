"""Handles: tasks that a client follows, and the registry that keeps them current."""

from __future__ import annotations

import os
import threading
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from libtask.client.connection import ConnectionLostError
from libtask.client.control import PARK_S
from libtask.client.logs import logs_of
from libtask.client.subscription import PAGE, as_change
from libtask.endpoint import is_same_socket
from libtask.errors import (
    DaemonUnreachableError,
    HetError,
    InputError,
    RemoteTraceback,
    TaskFailedError,
    own_copy,
)
from libtask.inputs import TaskReference
from libtask.messages import (
    ENDED,
    MAX_IDS,
    ListTasks,
    Subscribe,
    TaskChanged,
    TaskInfo,
    TaskList,
)
from libtask.results import has_pickled, restored
from libtask.task_waits import TaskFuture

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from libtask.client.connection import Connection
    from libtask.client.subscription import TaskChanges
    from libtask.messages import ParkedTask
    from libtask.snapshots import SnapshotSummary

_ENDING = threading.Lock()
"""Guards the ends of all handles, and the futures made of them: each is held for a moment."""
os.register_at_fork(  # a child must not find it taken by a thread that it has not
    before=_ENDING.acquire,
    after_in_parent=_ENDING.release,
    after_in_child=_ENDING.release,
)
MOST_WATCHED = MAX_IDS
"""Maximum ids of a subscription; with more, it covers all tasks."""


class Follower(Protocol):
    """The interface of a client that a handle uses."""

    path: Path

    def cancel(self, *ids: int) -> list[int]: ...
    def show(self, task_id: int) -> TaskInfo: ...
    def watch(self, *ids: int, progress: bool = True) -> TaskChanges: ...
    def adopt(self, task_id: int, path: Path | str) -> SnapshotSummary: ...
    def park(self, *ids: int, timeout: float = PARK_S) -> list[ParkedTask]: ...
    def follow_again(self, timeout: float | None = None) -> None: ...


class EndFuture(TaskFuture[TaskChanged]):
    """The future of the change that ended a task."""

    def __init__(self, task_id: int, socket: Path) -> None:
        super().__init__()
        self._task = task_id
        self._socket = socket

    def awaited(self, socket: Path) -> list[int]:
        return [self._task] if is_same_socket(self._socket, socket) else []


class TaskHandle(TaskReference):
    """A submitted task, followed by its submitter.

    Among the parameters of another task it stands for the result of this one.

    Attributes:
        id: the task's id.
        last: the latest received change.
        known: whether hetd had the submission already, under the same key.
        own: whether it is known to be the caller's own task, as it was submitted here.

    """

    __slots__ = ("_client", "_end", "_future", "id", "known", "last", "own")

    def __init__(self, client: Follower, task_id: int) -> None:
        self._client = client
        self.id = task_id
        self.last: TaskChanged | None = None
        self.known = self.own = False
        self._end: TaskChanged | BaseException | None = None
        """The change that ended the task, or why that will never be known."""
        self._future: EndFuture | None = None

    def __repr__(self) -> str:
        return f"<TaskHandle {self.id} {self.state}>"

    def _repr_html_(self) -> str:
        """Show the task in a notebook."""
        from libtask.client.display import task_html

        return task_html(self.info())

    @property
    def socket(self) -> Path:
        """The socket of the hetd that has the task."""
        return self._client.path

    @property
    def input_id(self) -> int:
        return self.id

    @property
    def state(self) -> str:
        """State in the latest received change; `info` asks hetd for the present one.

        Without `Client.follow_progress`, only the end is received.
        """
        return self.last.state if self.last else "queued"

    @property
    def progress(self) -> float:
        """Share done in the latest received change, 0 to 1; see `Client.follow_progress`."""
        return self.last.progress if self.last else 0.0

    @property
    def ended(self) -> Future[TaskChanged]:
        """Future of the change that ended the task.

        It is made when it is first asked for: it takes six times the memory of the rest.
        """
        with _ENDING:
            if self._future is None:
                self._future = EndFuture(self.id, self.socket)
                if self._end is not None:
                    _set(self._future, self._end)
            return self._future

    def done(self) -> bool:
        """Return whether it has ended, or `ended` raises an error."""
        return self._end is not None

    @property
    def lost(self) -> bool:
        """Whether the daemon has been given up; `wait` and `result` look for it again."""
        return isinstance(self._end, DaemonUnreachableError)

    def follow_again(self) -> None:
        """Follow a lost task again.

        Raises:
            DaemonUnreachableError: the daemon is not back; gives the reason.

        """
        self._client.follow_again()

    def wait(self, timeout: float | None = None) -> str:
        """Wait for the end; return the state.

        Raises:
            TimeoutError: not ended within `timeout` seconds.
            DaemonUnreachableError: the daemon was away for longer than the client's
                `patience`. Call it again when the daemon is back.

        """
        return self._last_change(timeout).state

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end; return what the application's `save` returned.

        NumPy's scalars and small arrays, dates, paths, enumerations, dataclasses and sets
        are returned as plain values; other values are unpickled if the task is the
        caller's own.

        Raises:
            TaskFailedError: the task failed or was dropped; gives the reason and the last
                lines of its output.
            CancelledError: the task was cancelled.
            TimeoutError: not ended within `timeout` seconds.
            DaemonUnreachableError: as for `wait`.

        """
        change = self._last_change(timeout)
        result = outcome(change)
        if has_pickled(result) and self._is_own():
            return restored(result)
        return result

    def _is_own(self) -> bool:
        """Return whether the task is the caller's own: a pickle of others may do anything."""
        self.own = self.own or self.info().owner == f"uid:{os.getuid()}"
        return self.own

    def _last_change(self, timeout: float | None) -> TaskChanged:
        if isinstance(self._end, TaskChanged):
            return self._end
        if self.lost:
            self._client.follow_again(timeout)
        try:
            return self.ended.result(timeout)
        except TimeoutError:
            if self.done() or timeout is None:
                raise  # the error that ended the task's connection
            text = f"task {self.id} has not ended after {timeout:g} s"
            raise TimeoutError(text) from None

    def cancel(self) -> None:
        """Cancel the task, now or at its next checkpoint."""
        self._client.cancel(self.id)

    def park(self, timeout: float = PARK_S) -> ParkedTask:
        """Hold the task with its progress on disk; wait for the snapshot.

        A task that has not begun is held without a file. One that cannot be saved is held,
        and `ParkedTask.error` says why; so it does of a task that has ended.

        Args:
            timeout: seconds to wait; the task stays held if it passes.

        Raises:
            InputError: the task is a command, which has no snapshots.

        """
        return self._client.park(self.id, timeout=timeout)[0]

    def adopt(self, path: Path | str) -> SnapshotSummary:
        """Let the task continue from a snapshot of another task, after its release.

        The task is held, was submitted with `resume`, and has the parameters of the other
        one. The file comes from `libtask.snapshots.export`.

        Raises:
            SnapshotError: the file is damaged, of another application or version, or of
                a newer format; nothing was changed.
            InputError: the task has begun, or was not submitted so.

        """
        return self._client.adopt(self.id, path)

    def logs(self) -> str:
        """Return the task's output so far, of all its segments.

        Raises:
            InputError: a log is gone or belongs to another user.

        """
        return logs_of(self.info())

    def info(self) -> TaskInfo:
        """Return the task's full record."""
        return self._client.show(self.id)

    def events(self, *, progress: bool = True) -> Iterator[TaskChanged]:
        """Iterate over the task's changes from its present state to its end."""
        with self._client.watch(self.id, progress=progress) as changes:
            now = as_change(self.info())
            yield now
            while now.state not in ENDED:
                now = next(changes)
                yield now

    def changed(self, change: TaskChanged) -> None:
        """Apply a change; called by the registry."""
        if self.lost:
            self.recover()
        if self.done():
            return
        self.last = change
        if change.state in ENDED:
            self._finish(change)

    def lose(self, error: BaseException) -> None:
        """Record that the task's end will not be known; called by the registry."""
        if not self.done():
            self._finish(error)

    def recover(self) -> None:
        """Forget a loss: the daemon is back; called by the registry.

        A future that was asked for before keeps the error.
        """
        with _ENDING:
            if self.lost:
                self._end = self._future = None

    def _finish(self, end: TaskChanged | BaseException) -> None:
        with _ENDING:
            self._end = end
            future = self._future
        if future is not None:  # its callbacks may use the handle
            _set(future, end)


def _set(future: Future[TaskChanged], end: TaskChanged | BaseException) -> None:
    """Set what a future waits for, unless its owner has cancelled it."""
    if future.done():
        return
    if isinstance(end, BaseException):
        future.set_exception(end)
    else:
        future.set_result(end)


def outcome(change: TaskChanged) -> Any:
    """Return the result of an ended task, or raise its error."""
    if change.state == "completed":
        return change.result
    reason = change.reason or "no reason given"
    if change.state == "cancelled":
        raise CancelledError(f"task {change.id} was cancelled: {reason}")
    last = change.last_output
    text = f"task {change.id} {change.state}: {reason}"
    failed = TaskFailedError(text, last.lines if last is not None else ())
    if change.trace:
        raise failed from RemoteTraceback(change.trace)
    raise failed


class Registry:
    """The followed unfinished tasks; listens to the session's pushes."""

    def __init__(self, client: Follower) -> None:
        self._client = client
        self._handles: dict[int, TaskHandle] = {}
        self.wants_progress = False
        self._watching = threading.Lock()
        self._watched: Connection | None = None
        """The connection whose subscription has all handles of its beginning."""
        self._everything = False
        """Whether that is one of all tasks."""

    def submitted(self, task_id: int) -> TaskHandle:
        """Return the handle of a task that was submitted over our connection."""
        handle = self.follow(task_id)
        handle.own = True
        return handle

    def follow(self, task_id: int) -> TaskHandle:
        """Return the handle of a task, a new one if it is not followed yet."""
        handle = self._handles.get(task_id)
        if handle is None:
            # setdefault is atomic: two threads get the same handle
            handle = self._handles.setdefault(
                task_id, TaskHandle(self._client, task_id)
            )
        return handle

    def pushed(self, change: Any) -> None:
        """Apply a change of a task; states of resources are for other subscriptions."""
        if not isinstance(change, TaskChanged):
            return
        handle = self._handles.get(change.id)
        if handle is None:
            return
        handle.changed(change)
        if change.state in ENDED:
            self._handles.pop(change.id, None)

    def renewed(self, connection: Connection) -> None:
        self._recover_lost()
        self.subscribe(connection, list(self._handles))

    def gone(self, error: HetError) -> None:
        """Fail the waits; the tasks stay here, to be followed again with `follow_again`."""
        for handle in list(self._handles.values()):
            handle.lose(own_copy(error))

    def follow_again(self, connection: Connection) -> None:
        """Follow the tasks that were lost after the connection was made."""
        self.subscribe(connection, self._recover_lost())

    def close(self, error: HetError) -> None:
        """Follow nothing any more."""
        for task_id in list(self._handles):
            self._fail(task_id, own_copy(error))

    def _recover_lost(self) -> list[int]:
        lost = [handle for handle in list(self._handles.values()) if handle.lost]
        for handle in lost:
            handle.recover()
        return [handle.id for handle in lost]

    def subscribe(self, connection: Connection, ids: list[int]) -> None:
        """Subscribe to these tasks over `connection`, starting with their present state."""
        if not ids:
            return
        with self._watching:  # the order of subscriptions counts
            asked = self._watch(connection, ids)
        if asked is not None:
            asked.add_done_callback(partial(self._watch_refused, connection))
        for start in range(0, len(ids), PAGE):
            self._refresh(connection, ids[start : start + PAGE])

    def _watch(self, connection: Connection, ids: list[int]) -> Future[Any] | None:
        """Add tasks to the subscription of a connection; the first one is of all handles."""
        first = self._watched is not connection
        if first:
            self._watched, self._everything = connection, False
        if self._everything:
            return None
        self._everything = len(self._handles) > MOST_WATCHED
        some = list(self._handles) if first else ids
        watch = Subscribe(
            request=0,
            ids=None if self._everything else some,
            progress=self.wants_progress,
            add=not (first or self._everything),
        )
        return connection.ask_until_served(watch)

    def _watch_refused(self, connection: Connection, done: Future[Any]) -> None:
        """Watch all tasks if the user watches too many by their ids."""
        error = done.exception()
        if not isinstance(error, InputError):
            return
        with self._watching:
            if self._watched is connection and not self._everything:
                self._everything = True
                watch = Subscribe(request=0, progress=self.wants_progress)
                connection.ask_until_served(watch)

    def follow_progress(self, connection: Connection) -> None:
        """Subscribe to progress of all followed tasks from now on."""
        self.wants_progress = True
        with self._watching:
            self._watched = None
        self.subscribe(connection, list(self._handles))

    def _refresh(
        self,
        connection: Connection,
        ids: list[int],
        before: int | None = None,
        *,
        detail: bool = False,
    ) -> None:
        wanted = ListTasks(
            request=0, ids=ids, limit=len(ids), before=before, detail=detail
        )
        reply = connection.ask_until_served(wanted)
        reply.add_done_callback(partial(self._refreshed, connection, wanted))

    def _refreshed(
        self, connection: Connection, wanted: ListTasks, done: Future[TaskList]
    ) -> None:
        error, ids = done.exception(), wanted.ids or []
        if error is None:
            self._take_in(connection, done.result(), full=wanted.detail)
            following = done.result().next
            if following is not None:  # their results are large
                self._refresh(connection, ids, following, detail=wanted.detail)
        elif isinstance(error, ConnectionLostError):
            return  # the next connection repeats the request
        elif len(ids) == 1:
            self._fail(ids[0], error)
        else:
            for task_id in ids:  # one of them is refused; which one?
                self._refresh(connection, [task_id])

    def _take_in(self, connection: Connection, reply: TaskList, *, full: bool) -> None:
        """Apply the tasks' present states; only full records hold the output of failed ones."""
        unknown = []
        for info in reply.tasks:
            if info.state == "failed" and not full:
                unknown.append(info.id)
            else:
                self.pushed(as_change(info))
        if unknown:
            self._refresh(connection, unknown, detail=True)

    def _fail(self, task_id: int, error: BaseException) -> None:
        handle = self._handles.pop(task_id, None)
        if handle is not None:
            handle.lose(error)
