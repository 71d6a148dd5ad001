"""Requests about ended tasks: requeue and delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hetd.requests.slices import ReadBudget, page_chunks
from libtask import messages as m
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from hetd.requests.permissions import Permissions
    from hetd.requests.slices import Steps
    from hetd.requests.submit import SubmitRequests
    from hetd.tasks.journal import Journal
    from hetd.tasks.page import TaskPage
    from hetd.transport.router import Peer
    from hetd.workers.pool import WorkerPool


class EndedTaskRequests:
    """Handles requests about ended tasks."""

    def __init__(
        self,
        journal: Journal,
        pool: WorkerPool,
        rights: Permissions,
        submission: SubmitRequests,
    ) -> None:
        self._journal = journal
        self._pool = pool
        self._rights = rights
        self._submission = submission

    # ------------------------------------------------------------ requeue

    def requeue(self, peer: Peer, request: m.Requeue) -> Steps:
        """Submit ended tasks again, as new tasks of the same owners.

        The answer covers as many tasks as have descriptions that fit into one message;
        the client requests the others again.
        """
        if len(request.ids) > m.MAX_TASKS:
            text = f"ids: {len(request.ids)} tasks, at most {m.MAX_TASKS} at once"
            raise InputError(text)
        again: list[TaskPage] = []
        room = m.MAX_FRAME
        reading = ReadBudget(self._journal)
        for task in sorted(set(request.ids)):
            page = self._ended(peer, task)
            room -= len(msgspec.msgpack.encode(page.spec))
            if again and room < 0:
                break
            again.append(page)
            if reading.is_enough():
                yield
        made = self._submission.again(peer, again, request)
        launcher = self._pool.has_launcher(peer.uid)
        return m.Submitted(request.request, [page.id for page in made], launcher)

    def _ended(self, peer: Peer, task: int) -> TaskPage:
        page = self._rights.own(peer, task)
        if page.state not in m.ENDED:
            raise InputError(
                f"task {task} is {page.state}: only ended tasks can be requeued; "
                f"`hetctl cancel {task}` first"
            )
        part = page.spec.part
        if part is not None:
            raise InputError(
                f"task {task} is a part of task {part.task}: requeue that one"
            )
        return page

    # ------------------------------------------------------------ delete

    def forget(self, peer: Peer, request: m.DeleteTasks) -> Steps:
        ids = yield from self._require_ended(peer, list(dict.fromkeys(request.ids)))
        journal = self._journal
        for some in page_chunks(journal, ids):
            # bound what one commit removes: its duration grows with the bytes
            while journal.batch.removed:
                yield
            for task in some:
                journal.remove(task)
        return m.Done(request.request, ids)

    def _require_ended(
        self, peer: Peer, ids: Sequence[int]
    ) -> Generator[None, None, list[int]]:
        """Return the ids; refuse unknown, foreign and unfinished tasks."""
        reading = ReadBudget(self._journal)
        found: list[int] = []
        for task in ids:
            if reading.is_enough():
                yield
            self._rights.require_own(peer, task)
            if task in self._journal.live:
                state = self._journal.live[task].state
                text = f"task {task} is {state}: only ended tasks can be deleted"
                raise InputError(text)
            found.append(task)
        return found
