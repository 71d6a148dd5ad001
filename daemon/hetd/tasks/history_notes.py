"""History notes: the reasons for decisions, recorded for users.

The rule that placed a task, when and why it was asked to stop, and when a resource was lost
and returned. The runtime calls this before it sends commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched import events as e
from hetsched.tasks import State

if TYPE_CHECKING:
    from hetd.tasks.journal import Journal
    from hetsched.events import Event
    from hetsched.ids import TaskId
    from hetsched.system import System
    from hetsched.tasks import TaskRecord


class HistoryNotes:
    """Writes the scheduler's reasons into the journal."""

    def __init__(self, system: System, journal: Journal) -> None:
        self._system = system
        self._journal = journal

    def record_stop(self, task: TaskId, at: float) -> None:
        """Record in the open segment of a running task when and why it was asked to stop."""
        record = self._system.tasks.get(task)
        if record is not None and record.state is State.RUNNING:
            page, why = self._journal.live[task], self._why(record)
            self._journal.open_segment(page, stop_ordered=at, stop_rule=why)
            self._journal.save(page)

    def record_resource_event(self, event: Event, at: float) -> None:
        """Record the loss or return of a resource; other events are not of interest."""
        if isinstance(event, e.ResourceLost):
            text = f"{event.resource} is lost: {event.reason}"
            self._journal.record_note(at, "lost", event.resource, text)
        elif isinstance(event, e.SlotsBlocked):
            text = event.reason or "all slots can be used again"
            what = "lost" if event.slots else "returned"
            self._journal.record_note(
                at, what, event.resource, f"{event.resource}: {text}"
            )
        elif isinstance(event, e.ResourceReturned):
            text = f"{event.resource} takes tasks again"
            self._journal.record_note(at, "returned", event.resource, text)

    def _why(self, task: TaskRecord) -> str:
        if task.cancelling is not None:
            return task.cancelling
        if task.holding:
            return "its owner holds it"
        if task.pinned is not None and task.pinned == task.destination:
            return "its owner moves it"
        state = self._system.states[task.assigned_to]
        if not state.usable:
            why = "drained" if state.up else "out of service"
            return f"{task.resource} is {why}"
        return task.rule
