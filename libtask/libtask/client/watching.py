"""Watching: the changes of anybody's visible tasks, as an iterator.

Each watch has a connection of its own; closing it ends the subscription.
"""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Self

from libtask.client.connection import Connection
from libtask.errors import DaemonUnreachableError, HetError
from libtask.messages import TaskChanged, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    Sink = Callable[[TaskChanged | HetError], None]

REPLY_SECONDS = 10.0


def subscribe(
    path: Path, ids: Sequence[int], sink: Sink, *, progress: bool
) -> Connection:
    """Have hetd send the changes of these tasks (none named: all visible) to `sink`.

    The sink is called in the connection's thread, last with the error that ended it.
    """

    def lost(_: Connection) -> None:
        sink(DaemonUnreachableError(f"{path}: the daemon went away"))

    connection = Connection(path, sink, lost)
    reply = connection.ask(Watch(request=0, ids=list(ids) or None, progress=progress))
    try:
        reply.result(REPLY_SECONDS)
    except BaseException:
        connection.close()
        raise
    return connection


class Watching:
    """Iterator over changes; ends with the daemon or with `close`."""

    def __init__(self, path: Path, ids: Sequence[int], *, progress: bool) -> None:
        self._changes: queue.SimpleQueue[TaskChanged | HetError] = queue.SimpleQueue()
        self._connection = subscribe(path, ids, self._changes.put, progress=progress)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> TaskChanged:
        return self._checked(self._changes.get())

    def within(self, seconds: float) -> TaskChanged | None:
        """Return the next change, or None where there is none within `seconds`."""
        try:
            return self._checked(self._changes.get(timeout=seconds))
        except queue.Empty:
            return None

    def close(self) -> None:
        self._connection.close()
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
