"""What users ask of tasks that have ended: submit them again, forget them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hetd.requests.slices import Reading, slices_of_pages
from libtask import messages as m
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from hetd.requests.permissions import Permissions
    from hetd.requests.slices import Work
    from hetd.requests.submit import SubmissionDesk
    from hetd.runtime import Node
    from hetd.tasks.page import Entry
    from hetd.transport.router import Peer


class PastDesk:
    """Answers what users ask of tasks that have ended."""

    def __init__(
        self, node: Node, rights: Permissions, submission: SubmissionDesk
    ) -> None:
        self._node = node
        self._rights = rights
        self._submission = submission

    # ------------------------------------------------------------ again

    def requeue(self, peer: Peer, request: m.Requeue) -> Work:
        """Submit ended tasks again, as new ones of their owners.

        Those whose descriptions fill a message are left to another request: the answer
        is shorter than what was asked.
        """
        if len(request.ids) > m.MAX_TASKS:
            text = f"ids: {len(request.ids)} tasks, at most {m.MAX_TASKS} at once"
            raise InputError(text)
        again: list[Entry] = []
        room = m.MAX_FRAME
        reading = Reading(self._node.journal)
        for task in sorted(set(request.ids)):
            entry = self._ended(peer, task)
            room -= len(msgspec.msgpack.encode(entry.spec))
            if again and room < 0:
                break
            again.append(entry)
            if reading.is_enough():
                yield
        made = self._submission.again(peer, again, request)
        launcher = self._node.pool.has_launcher(peer.uid)
        return m.Submitted(request.request, [entry.id for entry in made], launcher)

    def _ended(self, peer: Peer, task: int) -> Entry:
        entry = self._rights.own(peer, task)
        if entry.state not in m.ENDED:
            raise InputError(
                f"task {task} is {entry.state}: only what has ended is submitted again; "
                f"`hetctl cancel {task}` first"
            )
        return entry

    # ------------------------------------------------------------ gone

    def forget(self, peer: Peer, request: m.DeleteTasks) -> Work:
        ids = yield from self._demand_ended(peer, list(dict.fromkeys(request.ids)))
        journal = self._node.journal
        for some in slices_of_pages(journal, ids):
            # what one commit removes is bounded: it takes as long as its bytes are many
            while journal.batch.removed:
                yield
            for task in some:
                journal.remove(task)
        return m.Done(request.request, ids)

    def _demand_ended(
        self, peer: Peer, ids: Sequence[int]
    ) -> Generator[None, None, list[int]]:
        """Return the tasks that are there; refuse those of others, and unended ones."""
        reading = Reading(self._node.journal)
        found: list[int] = []
        for task in ids:
            if reading.is_enough():
                yield
            self._rights.demand_own(peer, task)
            if task in self._node.journal.live:
                state = self._node.journal.live[task].state
                text = f"task {task} is {state}: only what has ended is forgotten"
                raise InputError(text)
            found.append(task)
        return found
