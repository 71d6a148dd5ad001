"""Quotas: what each user's tasks may take, and whose turn it is.

A user's tasks beyond his quota are kept *outside*: they wait, in order, out of all
that policies look at, and come in as others of his end. A quota holds at the gate, not
at the slots: a task that came in may wait for a busy resource, and counts meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.queues import RunQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.ids import TaskId
    from hetsched.limits import Quotas
    from hetsched.system import System
    from hetsched.tasks import TaskRecord

OWNERS_KEPT = 10_000
"""Users whose next turn is kept even when it has passed."""


class FairQueue:
    """Whose turn it is: start-time fair queueing over expected computing time.

    Each task starts, on a clock of its own that goes on as tasks are dispatched, where
    its owner's last one ends; among tasks that are alike the earliest start goes first.
    With one user that is the order of arrival.
    """

    def __init__(self) -> None:
        self._clock = 0.0
        self._next: dict[int, float] = {}

    def virtual_start(self, owner: int, seconds: float, share: float) -> float:
        """Give a task its start; `seconds` is what it is expected to compute."""
        start = max(self._clock, self._next.get(owner, 0.0))
        self._next[owner] = start + seconds / share
        if len(self._next) > OWNERS_KEPT:
            self._next = {o: t for o, t in self._next.items() if t > self._clock}
        return start

    def advance(self, virtual_start: float) -> None:
        """Let the clock go on: a task with this start was dispatched."""
        self._clock = max(self._clock, virtual_start)


class AdmissionQuota:
    """Lets each user's tasks in as far as his quota goes, and while they can have workers."""

    def __init__(self, system: System, quotas: Quotas) -> None:
        self._system = system
        self.quotas = quotas
        self._inside: dict[int, set[TaskId]] = {}
        self._to_review: set[int] = set()
        """Owners whose tasks outside may come in: something of theirs changed."""

    def admit(self, task: TaskRecord) -> bool:
        """Take a task in that wants to wait for a slot, unless it is to stay outside.

        A task that no usable resource can run stays outside too: it would keep others of
        its owner out for nothing.
        """
        owner = task.submitted.owner
        if self.lacks_worker(task):
            self.leave(task)
            return False
        limit = self.quotas.of(owner).running
        if limit is None:
            return True
        inside = self._inside.setdefault(owner, set())
        fits = bool(self._system.affinities(task.row))
        if fits and (task.id in inside or len(inside) < limit):
            inside.add(task.id)
            return True
        self.leave(task)
        return False

    def close(self, owner: int) -> None:
        """Let no task of a user in that would need a worker to be made."""
        self._system.unattended.add(owner)

    def open(self, owner: int) -> None:
        """Let them in again."""
        self._system.unattended.discard(owner)
        self._to_review.add(owner)

    def enter(self, task: TaskRecord) -> None:
        """Count a task that runs, within the quota or not."""
        owner = task.submitted.owner
        if self.quotas.of(owner).running is not None:
            self._inside.setdefault(owner, set()).add(task.id)

    def leave(self, task: TaskRecord) -> None:
        """Take note that a task is not up for a slot any more."""
        owner = task.submitted.owner
        inside = self._inside.get(owner)
        if inside is not None and task.id in inside:
            inside.remove(task.id)
            self._to_review.add(owner)

    def defer(self, task: TaskRecord) -> None:
        """Let a task wait outside."""
        outside = self._system.deferred.setdefault(task.submitted.owner, RunQueue())
        outside.push(task, task.rank)

    def deferred_queue(self, task: TaskRecord) -> RunQueue | None:
        """Find the queue where a task waits outside; None: it does not."""
        if not self._system.deferred:
            return None
        queue = self._system.deferred.get(task.submitted.owner)
        return queue if queue is not None and task in queue else None

    def review(self) -> None:
        """Look at all that waits outside anew: resources or quotas changed."""
        self._to_review.update(self._system.deferred)

    def change(self, quotas: Quotas) -> None:
        """Take up other quotas; what came in stays in, above a lowered quota too."""
        self.quotas = quotas
        self._inside.clear()
        for task in self._system.tasks.values():
            up = task.state.placeable and self.deferred_queue(task) is None
            if up or task.resource is not None:
                self.enter(task)
        self.review()

    def admit_deferred(self, most: int) -> Iterator[TaskRecord]:
        """Take in the tasks outside that may come in now, in order; so many at most."""
        while self._to_review:
            owner = self._to_review.pop()
            queue = self._system.deferred.get(owner)
            while queue and (task := self._first(queue)):
                if most <= 0:  # before it counts as let in: another may be first then
                    self._to_review.add(owner)
                    return
                if not self.admit(task):
                    break
                most -= 1
                queue.remove(task)
                yield task
            if queue is not None and not queue:
                del self._system.deferred[owner]

    @property
    def may_admit(self) -> bool:
        """Whether tasks outside may come in."""
        return not self._to_review.isdisjoint(self._system.deferred)

    def _first(self, queue: RunQueue) -> TaskRecord | None:
        """Look at the first task that some usable resource can run."""
        heads = [queue.head_of(row) for row in queue.rows()]
        fit = [
            task
            for task in heads
            if self._system.affinities(task.row) and not self.lacks_worker(task)
        ]
        return min(fit, key=queue.key_of, default=None)

    def lacks_worker(self, task: TaskRecord) -> bool:
        """Whether a task has no worker, and nobody makes one."""
        unattended = task.submitted.owner in self._system.unattended
        return unattended and not task.bound and not task.submitted.served
