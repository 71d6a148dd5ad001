"""The outlook: when resources run dry, what a move costs and what it saves.

Estimates of one instant, made for each decision. All times are seconds from now.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hetsched.system import SECOND

if TYPE_CHECKING:
    from hetsched.ids import Nanoseconds
    from hetsched.system import System
    from hetsched.tasks import TaskRecord

CHECKPOINT_S = 0.05
"""Time between two checkpoints where strips are sized by the runtime: its target."""
REPORT_S = 0.1
"""Time between two reports of a worker: the first one after a move tells nothing, as its
strips may hold a compilation."""
TRYING_STRIPS = 2
"""Strips until a resource that is tried is measured: one for each of these reports."""


class Outlook:
    """Estimates of the future of a system in its present state.

    Args:
        caution: a move must save this multiple of its cost: estimates are wrong.
        amortize: a task that was moved stays for this multiple of the cost of the move.

    """

    def __init__(self, system: System, caution: float, amortize: float) -> None:
        self.system = system
        self.caution = caution
        self.amortize = amortize

    # ------------------------------------------------------------ times

    def left(self, task: TaskRecord, resource: str) -> float:
        """Time that the rest of a task takes alone on a resource; infinite: cannot run."""
        return self.system.remaining(task, resource)

    def dry(self, resource: str) -> float:
        """Time until a resource has done all its running and waiting work. O(rows)."""
        state = self.system.states[resource]
        work = sum(self.left(task, resource) for task in state.running.values())
        queue = state.queue
        for row in queue.rows():
            work += queue.count_of(row) * self.system.seconds(row, resource)
        return work if state.resource.shared else work / max(1, state.slots)

    def pace(self, resource: str, newcomers: int = 0) -> int:
        """Return the slowdown of a task there, against having the resource alone."""
        state = self.system.states[resource]
        if not state.resource.shared:
            return 1
        return max(1, len(state.running) + newcomers)

    def until_done(self, task: TaskRecord) -> float:
        """Time until a running task is done if nothing is changed."""
        here = task.assigned_to
        if task.destination is None:
            return self.left(task, here) * self.pace(here)
        return self.leaving(task) + self.arriving(task, task.destination)

    def leaving(self, task: TaskRecord) -> float:
        """Time until a running task comes to a checkpoint: half a strip, as expected."""
        here = task.assigned_to
        return self.strip(task, here) * self.pace(here) / 2

    def arriving(self, task: TaskRecord, resource: str) -> float:
        """Time from the last checkpoint here until a task would be done there."""
        rest = self.left(task, resource) * self.pace(resource, newcomers=1)
        return self.moving(task, resource) + rest

    def strip(self, task: TaskRecord, resource: str) -> float:
        """Time between two checkpoints of a task alone on a resource."""
        if task.submitted.strips is None:
            return CHECKPOINT_S
        return self.system.seconds(task.row, resource) / task.submitted.strips

    # ------------------------------------------------------------ costs

    def moving(self, task: TaskRecord, resource: str) -> float:
        """Time to bring a started task there; one not started yet costs nothing."""
        here = task.last_resource
        if here is None or here == resource:
            return 0.0
        return self.transfer(task, here, resource)

    def transfer(self, task: TaskRecord, source: str, destination: str) -> float:
        """Time to move the state of a task between two resources."""
        seconds = task.submitted.migration_s
        for side in (source, destination):
            link = self.system.resources[side].link_bytes_per_s
            if link is not None:
                seconds += task.submitted.state_bytes / link
        return seconds

    def trying(self, task: TaskRecord, resource: str) -> float:
        """Return the time that a move must save if it only tries a resource.

        That is `caution` times what is lost if the resource turns out to be slow: the time
        until it is measured, and that of the way back.

        Returns:
            0 if the move is not a trial; infinite if the task may not try the resource now.

        """
        here = task.last_resource
        if here in (None, resource) or not self.system.is_untried(task.row, resource):
            return 0.0
        if not self._may_try(task, here, resource):
            return math.inf
        measuring = REPORT_S + TRYING_STRIPS * self.strip(task, resource)
        programs = sum(
            self.system.resources[name].reconfigure_s for name in (here, resource)
        )
        back = self.transfer(task, resource, here)
        return self.caution * (measuring + programs + back)

    def _may_try(self, task: TaskRecord, here: str, resource: str) -> bool:
        """Whether a started task may try a resource: each once, if nobody is there.

        Not from one that it tries itself and that is not measured yet, and not beside another
        task that tries the same one.
        """
        system = self.system
        if not task.preemptible or resource in task.tried:
            return False
        if system.is_untried(task.row, here) or resource not in system.idle():
            return False
        coming = [t for t in system.departing.values() if t.destination == resource]
        others = [*system.running(resource), *system.queue(resource), *coming]
        others = [other for other in others if other is not task]
        if system.resources[resource].shared and others:
            return False
        return not any(system.is_untried(other.row, resource) for other in others)

    def settles_at(self, task: TaskRecord) -> Nanoseconds:
        """Return when the move that brought a task to where it runs has paid."""
        if task.came_from is None or task.last_resource is None:
            return task.since
        cost = self.transfer(task, task.came_from, task.last_resource)
        return task.since + int(self.amortize * cost * SECOND)

    def settled(self, task: TaskRecord) -> bool:
        return self.settles_at(task) <= self.system.now

    # ------------------------------------------------------------ gains

    def dry_donors(self) -> dict[str, float]:
        """Return `dry` of each resource that has work waiting."""
        states = self.system.states
        return {name: self.dry(name) for name, state in states.items() if state.queue}

    def saved_by_taking(
        self, task: TaskRecord, donor: str, taker: str, dry: float
    ) -> float:
        """Return the donor's time that is saved, less the cost, if the taker takes a task.

        The donor loses nothing while it has other work. If the taker has not completed
        the task by then, the rest goes back.

        Args:
            task: runs or waits on the donor.
            donor: name of its resource; `taker`: of the other one.
            dry: what `dry` returns of the donor; to compute it for each task would take
                time in proportion to the square of the rows.

        """
        there = self.left(task, donor)
        here = max(self.left(task, taker) * self.pace(taker, newcomers=1), 1e-9)
        window = dry - there
        cost = self.moving(task, taker)
        share = max(window - cost, 0.0) / here
        if share < 1.0:
            cost += self.transfer(task, taker, donor) + self.strip(task, taker) / 2
        return min(share, 1.0) * there - self.caution * cost

    def saved_by_moving(self, task: TaskRecord, resource: str) -> float:
        """Return the time by which a move to an idle resource ends a running task sooner."""
        moved = self.leaving(task) + self.arriving(task, resource)
        return self.until_done(task) - moved
