"""Judgement at the end of a run: what clients were told against what is on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.tasks.journal import Journal
from hettorture.history import Found, complaints
from hettorture.simulation.disk import SimulatedStore
from hettorture.simulation.workers import CRASHED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetd.tasks.page import Entry
    from hettorture.simulation.scene import Scene

ALL = 1 << 30
EXCUSES = {
    "failed": (
        "as it was told to",
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


def judged(scene: Scene) -> list[str]:
    """Return all that is wrong, as one more start of the daemon would see it."""
    scene.daemon.supervised = False
    scene.daemon.crash()
    seen = [text for client in scene.clients for text in client.complaints]
    entries = list(_stored(scene))
    for entry in entries:
        _excuse(scene, entry)
    tasks = [Found(e.id, e.spec.name, e.state, e.result) for e in entries]
    owners = [_foreign(scene, entry) for entry in entries]
    return [
        *seen,
        *complaints(scene.history, tasks),
        *filter(None, owners),
        *_before_their_turn(entries),
        *_overheard(scene, entries),
    ]


def _stored(scene: Scene) -> Iterator[Entry]:
    store = SimulatedStore(scene.daemon.disk, scene.world, lambda: None, lambda _: None)
    journal = Journal(store)
    journal.restore()
    return journal.newest(None, ALL)


def _excuse(scene: Scene, entry: Entry) -> None:
    """Note the ends of tasks that are no fault of the daemon."""
    reason = entry.reason or ""
    if not any(excuse in reason for excuse in EXCUSES.get(entry.state, ())):
        return
    if entry.state == "cancelled":
        scene.history.ask_to_cancel(entry.id)
    else:
        scene.history.excused.add(entry.spec.name)


def _foreign(scene: Scene, entry: Entry) -> str | None:
    """Complain of a task that is another user's than who submitted it."""
    uid = entry.spec.name.partition("-")[0]
    return None if uid == str(entry.owner) else f"task {entry.id} is {entry.owner}'s"


def _before_their_turn(entries: list[Entry]) -> Iterator[str]:
    """Complain of tasks that ran though one they come after had not completed."""
    state = {entry.id: entry.state for entry in entries}
    for entry in entries:
        unmet = [t for t in entry.spec.after if state.get(t) != "completed"]
        if unmet and entry.state == "completed":
            yield f"task {entry.id} ran, though it comes after {unmet}"


def _overheard(scene: Scene, entries: list[Entry]) -> Iterator[str]:
    """Complain of users who were told of others' tasks."""
    owners = {entry.id: entry.owner for entry in entries}
    for user in scene.users:
        foreign = sorted(t for t in user.heard_of if owners.get(t) != user.uid)
        if foreign:
            yield f"user {user.uid} was told of tasks {foreign}, not his"
