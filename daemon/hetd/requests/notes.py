"""Notes: what administrators changed, with their uids, kept in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libtask import messages as m
from libtask.errors import InputError

if TYPE_CHECKING:
    from hetd.clock import Clock
    from hetd.store import Store
    from hetd.tasks.journal import Journal
    from hetd.transport.router import Peer

MOST_NOTES = 2000
"""Maximum number of notes in one answer."""


class NoteRequests:
    """Handles requests for notes, and writes them."""

    def __init__(self, clock: Clock, journal: Journal, store: Store) -> None:
        self._clock = clock
        self._journal = journal
        self._store = store

    def notes(self, peer: Peer, request: m.Notes) -> m.Message:
        if not 0 < request.limit <= MOST_NOTES:
            raise InputError(f"limit: expected 1 to {MOST_NOTES}, got {request.limit}")
        found = self._store.notes(request.since, request.limit)
        return m.NoteList(request.request, [m.Note(*each) for each in found])

    def write(
        self, peer: Peer, what: str, text: str, resource: str | None = None
    ) -> None:
        """Record what an administrator changed, with their uid."""
        told = f"{text}, by uid {peer.uid}"
        self._journal.record_note(self._clock.wall(), what, resource, told)
