"""Checks at the end of a run: replies to clients against the state on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.tasks.journal import Journal
from hetd.tasks.page import decode
from libtask.messages import ENDED
from torture.history import Found, complaints
from torture.simulation.disk import SimulatedStore
from torture.simulation.workers import CRASHED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetd.tasks.page import TaskPage
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
    "cancelled": (
        "which it comes after",
        "whose result it takes",
        "not needed",
        "stopped at its deadline",
        "its time limit",
        ", which called it, ",
    ),
}
"""State -> what the reason says where a task ended so for good cause: applications and
devices fail, tasks crash, policies drop, and who depends on others shares their fate."""


def final_complaints(setup: Setup) -> list[str]:
    """Return all that is wrong, as one more start of the daemon would see it."""
    setup.daemon.supervised = False
    setup.daemon.crash()
    seen = [text for client in setup.clients for text in client.complaints]
    pages = list(_stored(setup))
    for page in pages:
        _excuse(setup, page)
    tasks = [Found(e.id, e.spec.name, e.state, e.result) for e in pages]
    owners = [_foreign(setup, page) for page in pages]
    return [
        *seen,
        *complaints(setup.history, tasks),
        *filter(None, owners),
        *_before_their_turn(pages),
        *_overheard(setup, pages),
        *_stored_as_unfinished(setup),
    ]


def _store(setup: Setup) -> SimulatedStore:
    return SimulatedStore(setup.daemon.disk, setup.world, lambda: None, lambda _: None)


def _stored_as_unfinished(setup: Setup) -> Iterator[str]:
    """Find ended tasks that are stored as unfinished, so that retention never removes them."""
    for page in map(decode, _store(setup).unfinished()):
        if page.state in ENDED:
            yield f"task {page.id} is {page.state} and stored as unfinished"


def _stored(setup: Setup) -> Iterator[TaskPage]:
    journal = Journal(_store(setup))
    journal.restore(0.0)
    return journal.newest(None, ALL)


def _excuse(setup: Setup, page: TaskPage) -> None:
    """Record ends of tasks that the daemon did not cause."""
    reason = page.reason or ""
    if not any(excuse in reason for excuse in EXCUSES.get(page.state, ())):
        return
    if page.state == "cancelled":
        setup.history.ask_to_cancel(page.id)
    else:
        setup.history.excused.add(page.spec.name)


def _foreign(setup: Setup, page: TaskPage) -> str | None:
    """Report a task whose owner did not submit it."""
    uid = page.spec.name.partition("-")[0]
    return None if uid == str(page.owner) else f"task {page.id} is {page.owner}'s"


def _before_their_turn(pages: list[TaskPage]) -> Iterator[str]:
    """Report tasks that ran although a task they depend on had not completed."""
    state = {page.id: page.state for page in pages}
    for page in pages:
        if page.state != "completed":
            continue
        inputs = (each.task for each in page.spec.inputs)
        required = (*page.spec.after, *inputs)
        unmet = [task for task in required if state.get(task) != "completed"]
        if unmet:
            yield f"task {page.id} ran, though it comes after {unmet}"
        early = [t for t in page.spec.after_any if state.get(t) not in ENDED]
        if early:
            yield f"task {page.id} ran before the end of {early}"
        notok = {state.get(task) for task in page.spec.after_notok}
        if notok == {"completed"}:
            yield f"task {page.id} ran, though {page.spec.after_notok} completed"


def _overheard(setup: Setup, pages: list[TaskPage]) -> Iterator[str]:
    """Report users who heard of other users' tasks."""
    owners = {page.id: page.owner for page in pages}
    for user in setup.users:
        foreign = sorted(t for t in user.heard_of if owners.get(t) != user.uid)
        if foreign:
            yield f"user {user.uid} heard of tasks {foreign}, of other users"
