"""Checks at the end of a run: replies to clients against the state on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.tasks.journal import Journal
from torture.history import Found, complaints
from torture.simulation.disk import SimulatedStore
from torture.simulation.workers import CRASHED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetd.tasks.page import Entry
    from torture.simulation.setup import Setup

ALL = 1 << 30
EXCUSES = {
    "failed": (
        "as ordered",
        "failed",
        "attempts are the limit",
        f"status {CRASHED}",
        "no strip was finished in",
    ),
    "dropped": ("",),
    "cancelled": ("which it comes after", "stopped at its deadline"),
}
"""State -> what the reason says where a task ended so for good cause: applications and
devices fail, tasks crash, policies drop, and who depends on others shares their fate."""


def final_complaints(setup: Setup) -> list[str]:
    """Return all that is wrong, as one more start of the daemon would see it."""
    setup.daemon.supervised = False
    setup.daemon.crash()
    seen = [text for client in setup.clients for text in client.complaints]
    entries = list(_stored(setup))
    for entry in entries:
        _excuse(setup, entry)
    tasks = [Found(e.id, e.spec.name, e.state, e.result) for e in entries]
    owners = [_foreign(setup, entry) for entry in entries]
    return [
        *seen,
        *complaints(setup.history, tasks),
        *filter(None, owners),
        *_before_their_turn(entries),
        *_overheard(setup, entries),
    ]


def _stored(setup: Setup) -> Iterator[Entry]:
    store = SimulatedStore(setup.daemon.disk, setup.world, lambda: None, lambda _: None)
    journal = Journal(store)
    journal.restore()
    return journal.newest(None, ALL)


def _excuse(setup: Setup, entry: Entry) -> None:
    """Record ends of tasks that the daemon did not cause."""
    reason = entry.reason or ""
    if not any(excuse in reason for excuse in EXCUSES.get(entry.state, ())):
        return
    if entry.state == "cancelled":
        setup.history.ask_to_cancel(entry.id)
    else:
        setup.history.excused.add(entry.spec.name)


def _foreign(setup: Setup, entry: Entry) -> str | None:
    """Report a task whose owner did not submit it."""
    uid = entry.spec.name.partition("-")[0]
    return None if uid == str(entry.owner) else f"task {entry.id} is {entry.owner}'s"


def _before_their_turn(entries: list[Entry]) -> Iterator[str]:
    """Report tasks that ran although a task they depend on had not completed."""
    state = {entry.id: entry.state for entry in entries}
    for entry in entries:
        unmet = [t for t in entry.spec.after if state.get(t) != "completed"]
        if unmet and entry.state == "completed":
            yield f"task {entry.id} ran, though it comes after {unmet}"


def _overheard(setup: Setup, entries: list[Entry]) -> Iterator[str]:
    """Report users who heard of other users' tasks."""
    owners = {entry.id: entry.owner for entry in entries}
    for user in setup.users:
        foreign = sorted(t for t in user.heard_of if owners.get(t) != user.uid)
        if foreign:
            yield f"user {user.uid} heard of tasks {foreign}, of other users"
