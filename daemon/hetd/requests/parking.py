"""Requests to park tasks: hold them, and answer when their progress is on disk.

The hold is as durable as any other. Waiting requests are in memory only: a client
without an answer repeats its request, with its key, to the next daemon. The loop calls
`finished` after each turn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from hetsched.ids import TaskId
from hetsched.tasks import State
from libtask import messages as m
from libtask.errors import BusyError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hetd.runtime import Runtime
    from hetd.tasks.page import TaskPage
    from hetd.transport.router import Peer
    from hetd.workers.commands import Commands
    from hetsched.tasks import TaskRecord


@dataclass(slots=True)
class ParkedGroup:
    """The tasks of one request.

    Attributes:
        left: the tasks that are not on disk yet.
        done: task -> what to answer.
        asked: task -> the epoch and the route of the worker that was asked for a snapshot.

    """

    peer: Peer
    request: m.Control
    left: list[int]
    done: dict[int, m.ParkedTask] = field(default_factory=dict)
    asked: dict[int, tuple[int, bytes]] = field(default_factory=dict)


class ParkRequests:
    """The requests to park tasks that are not answered yet."""

    def __init__(self, runtime: Runtime, commands: Commands) -> None:
        self._journal = runtime.journal
        self._pool = runtime.pool
        self._system = runtime.scheduler.system
        self._commands = commands
        self.groups: dict[tuple[int, str], ParkedGroup] = {}
        """(uid, key of the request) -> its tasks; without a key, a number."""
        self._numbers = count()

    def check(self, peer: Peer, ids: Sequence[int]) -> None:
        """Refuse tasks that write no snapshots, and too many at a time.

        Raises:
            InputError: one of them is a command, or a request names too many.
            BusyError: as many of this user are being parked as may be.

        """
        if len(ids) > m.MAX_PARKED:
            raise InputError(f"park: {len(ids)} tasks, at most {m.MAX_PARKED}")
        for task in ids:
            page = self._journal.live.get(task)
            if page is not None and page.spec.app == m.COMMAND:
                raise InputError(
                    f"task {task} is a command, which writes no snapshots: `hetctl hold` "
                    "stops it; nothing was changed"
                )
        groups = (each for (uid, _), each in self.groups.items() if uid == peer.uid)
        if sum(len(each.left) for each in groups) + len(ids) > m.MAX_PARKED:
            raise BusyError(
                f"busy: {m.MAX_PARKED} of your tasks are being parked, retry"
            )

    def add(self, peer: Peer, request: m.Control, ids: Sequence[int]) -> None:
        """Answer a request when its tasks, which were just held, are on disk.

        One that is repeated while it waits is answered to the latest sender.
        """
        key = request.key or str(next(self._numbers))
        self.groups[peer.uid, key] = ParkedGroup(peer, request, list(ids))

    def finished(self) -> Iterator[tuple[Peer, m.Control, m.ParkedTasks]]:
        """Yield the requests of which all tasks are on disk, and their answers."""
        for key, group in list(self.groups.items()):
            for task in list(group.left):
                found = self._look(group, task)
                if found is not None:
                    group.done[task] = found
                    group.left.remove(task)
            if not group.left:
                del self.groups[key]
                ids = dict.fromkeys(group.request.ids)
                tasks = [group.done[task] for task in ids]
                reply = m.ParkedTasks(group.request.request, tasks)
                yield group.peer, group.request, reply

    def _look(self, group: ParkedGroup, task: int) -> m.ParkedTask | None:
        """Return what to answer for a task; None: it is not known yet."""
        page = self._journal.live.get(task)
        record = self._system.tasks.get(TaskId(task))
        if page is None or record is None:
            return m.ParkedTask(task, error=self._end_of(task))
        if record.state is State.RUNNING and (record.holding or record.cancelling):
            return None
        if record.state is not State.HELD:
            return m.ParkedTask(task, error="it was released before it was saved")
        return _saved(page) or self._awaited(group, page, record)

    def _end_of(self, task: int) -> str:
        page = self._journal.find(task)
        return "it has ended" if page is None else f"it has ended as {page.state}"

    def _awaited(
        self, group: ParkedGroup, page: TaskPage, record: TaskRecord
    ) -> m.ParkedTask | None:
        """Ask the worker that holds a task for a snapshot, once; say why there is none."""
        refused = partial(m.ParkedTask, page.id)
        if not record.bound:
            return refused(error="its worker was lost before it was saved")
        worker = self._pool.worker_of(page.id)
        if worker is None or not worker.route:
            return None  # it has not registered since a restart of hetd
        now = (record.epoch, worker.route)
        if group.asked.get(page.id) != now:
            group.asked[page.id] = now
            page.snapshot_error = ""
            self._commands.want_snapshot(record.id)
            return None
        return refused(error=page.snapshot_error) if page.snapshot_error else None


def _saved(page: TaskPage) -> m.ParkedTask | None:
    """Describe a held task of which nothing is lost without its worker."""
    done, snapshot = page.checkpoint.done, page.snapshot
    if snapshot is not None and snapshot.done >= done:
        return m.ParkedTask(page.id, snapshot.path, page.kept, snapshot.bytes)
    return None if done or page.started is not None else m.ParkedTask(page.id)
