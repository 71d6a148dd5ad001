"""Lending: a task that waits for others lends its slot to them.

The code of a task may submit other tasks and wait for their results. It keeps its slot, its
memory and what else it needs, as nothing else can free them, but does not compute. If such
tasks had all slots, those that they wait for could never run. So each of them lends its slot,
to a task that it waits for: directly, or because that one waits for another. Nothing else runs
in a lent slot: of the tasks that are queued, any number may do the same.

A lent slot is one more slot of the resource until the task that runs in it leaves it. The one
that waited does not wait for its own: it goes on at once, so a resource may compute more tasks
than it has slots until the next of these leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched import actions as a
from hetsched.tasks import PLACEABLE, State

if TYPE_CHECKING:
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.state import SchedulerState
    from hetsched.system import ResourceState
    from hetsched.tasks import TaskRecord

LOOKED_AT = 64
"""Tasks that are waited for, of which one call looks whether they may run."""
PAUSE_NS: Nanoseconds = 1_000_000
"""Time until the next call looks at others."""


class SlotLending:
    """Dispatches tasks that others wait for in the slots of these."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._unseen: dict[TaskId, int] = {}
        """Task that waits for others -> how many of these to look at since the last change."""
        self._budget = 0
        """Tasks that this call may still look at."""

    def fill(self) -> None:
        """Dispatch awaited tasks, where the slots of those that wait are all in use."""
        state, awaited = self._state, self._state.system.awaited
        if not (state.may_lend or self._unseen):
            return  # usually
        if state.may_lend:
            state.may_lend = False
            self._unseen = {number: len(others) for number, others in awaited.items()}
        self._budget = LOOKED_AT
        while self._unseen and self._budget > 0:
            number = next(iter(self._unseen))
            if number in awaited:
                # the next call begins with another one
                awaited[number] = awaited.pop(number)
                self._lend_for(state.system.tasks[number])
            if self._budget > 0:
                self._unseen.pop(number)
        if self._unseen:
            state.actions.append(a.SetTimer(state.system.now + PAUSE_NS))

    def _lend_for(self, waits: TaskRecord) -> None:
        """Let tasks that one waits for have the slots that may be lent on its resource."""
        place = self._state.system.states[waits.assigned_to]
        while self._lends(place):
            task = self._next_for(waits.id, place)
            if task is None:
                return
            self._state.withdraw(task)
            self._state.lend_slot(task, place)
            self._state.dispatch(task, place)

    def _lends(self, place: ResourceState) -> bool:
        """Whether a task that waits on a resource has not lent its slot, and none is free."""
        most = self._state.limits.lend * place.resource.slots
        return (
            place.usable
            and place.lent < min(place.awaiting, most)
            and len(place.running) >= place.slots
        )

    def _next_for(self, number: TaskId, place: ResourceState) -> TaskRecord | None:
        """Return one of the tasks that a task waits for and that may run on its resource now.

        Those that were looked at go to the end.
        """
        system = self._state.system
        others = system.awaited[number]
        while self._unseen[number] > 0 and self._budget > 0:
            self._unseen[number] -= 1
            self._budget -= 1
            other = others.take()
            task = system.tasks.get(other)
            if task is None:
                others.forget(other)
                continue
            others.put_back(other)
            if task.state is State.WAITING:
                new = others.put_first((*task.unmet, *task.parts_left))
                self._unseen[number] += new
            elif self._may_run(task, place):
                return task
        return None

    def _may_run(self, task: TaskRecord, place: ResourceState) -> bool:
        """Whether a task waits only for a slot of a resource."""
        state, name = self._state, place.resource.name
        if task.state not in PLACEABLE or name not in state.system.affinities(task.row):
            return False
        if task not in place.queue and task not in state.system.unplaced:
            return False
        if state.system.unattended and state.admission.lacks_worker(task):
            return False
        return task.needs is None or state.needs.may_start(task, name)
