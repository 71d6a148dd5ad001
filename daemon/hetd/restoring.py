"""Restoring: what the journal tells the scheduler of tasks that had not ended.

A worker may still hold a task that ran, or waited in it: the task keeps its epoch, so
that the worker is known when it greets. What was wanted of a task and acknowledged
(its end, a hold, another place) is wanted again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from hetsched import events as e
from hetsched.ids import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetd.entry import Entry
    from hetsched.tasks import TaskRecord

WAITS = frozenset({"preempted", "held"})
"""States in which a task may have a worker, and no resource."""


def restored(
    entry: Entry, submitted: e.TaskSubmitted
) -> e.TaskSubmitted | e.TaskRestored:
    """Describe a task as it was when the daemon stopped."""
    if submitted.hold != (entry.state == "held"):
        submitted = structs.replace(submitted, hold=not submitted.hold)
    where = (entry.resource or "") if _ran(entry) else None
    epoch = entry.epoch if where is not None or entry.in_worker else 0
    if not (epoch or entry.kept or entry.attempts or entry.failures):
        return submitted
    last = entry.segments[-1] if entry.segments else None
    return e.TaskRestored(
        submitted,
        where,
        epoch,
        progress=entry.progress if epoch else entry.kept,
        kept=entry.kept,
        attempts=entry.attempts,
        failures=entry.failures,
        excluded=entry.excluded,
        checkpointed=last is not None and last.computing is not None,
    )


def _ran(entry: Entry) -> bool:
    """Whether a worker may run a task; one ordered behind others has dropped it."""
    last = entry.segments[-1] if entry.segments else None
    return entry.state == "running" and last is not None and last.finish is None


def wishes(entry: Entry, resources: frozenset[str]) -> Iterator[e.Event]:
    """Say again what was wanted of a task.

    Args:
        entry: what the journal knows of it.
        resources: those that there are.

    """
    task = TaskId(entry.id)
    if entry.pinned is not None and entry.pinned in resources:
        yield e.TaskMoved(task, entry.pinned)
    if entry.holding:
        yield e.TaskHeld(task, entry.requeuing)
    if entry.cancelling is not None:
        yield e.TaskCancelled(task, entry.cancelling)


def note(entry: Entry, record: TaskRecord) -> None:
    """Note in the journal what restoring needs and no change of state tells."""
    entry.pinned = record.pinned
    entry.holding = record.holding
    entry.suspended, entry.requeuing = record.suspended, record.requeuing
    entry.cancelling = record.cancelling
    entry.attempts = record.attempts
    entry.failures, entry.excluded = record.failures, record.excluded
    entry.in_worker = record.bound and record.state.value in WAITS
