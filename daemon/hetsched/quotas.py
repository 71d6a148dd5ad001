"""Quotas limit how many tasks of each user are admitted.

A user's tasks beyond the quota are *deferred*: they wait, in order, hidden from policies,
and are admitted as other tasks of that user end. A quota counts admitted tasks, not used
slots: an admitted task that waits for a busy resource counts.
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


class AdmissionQuota:
    """Admits tasks within their owners' quotas, while the owners can have workers."""

    def __init__(self, system: System, quotas: Quotas) -> None:
        self._system = system
        self.quotas = quotas
        self.limited = quotas.limited
        """Whether any owner's quota limits how many tasks are admitted."""
        self.inside: dict[int, set[TaskId]] = {}
        """Owner -> admitted tasks, where a quota limits them; read only."""
        self.to_review: set[int] = set()
        """Owners whose deferred tasks may be admitted as something changed; read only."""

    def admit(self, task: TaskRecord) -> bool:
        """Admit a task that waits for a slot, if its owner's quota allows; return whether.

        A task that no usable resource can run is not admitted: it would keep others of
        its owner waiting without need.
        """
        owner = task.submitted.owner
        if self.lacks_worker(task):
            self.leave(task)
            return False
        limit = self.quotas.of(owner).running
        if limit is None:
            return True
        inside = self.inside.setdefault(owner, set())
        fits = bool(self._system.affinities(task.row))
        if fits and (task.id in inside or len(inside) < limit):
            inside.add(task.id)
            return True
        self.leave(task)
        return False

    def close(self, owner: int) -> None:
        """Stop admitting tasks of an owner that need a new worker."""
        self._system.unattended.add(owner)

    def open(self, owner: int) -> None:
        """Admit an owner's tasks that need a new worker again."""
        self._system.unattended.discard(owner)
        self.to_review.add(owner)

    def enter(self, task: TaskRecord) -> None:
        """Count a running task, within the quota or not."""
        owner = task.submitted.owner
        if self.quotas.of(owner).running is not None:
            self.inside.setdefault(owner, set()).add(task.id)

    def leave(self, task: TaskRecord) -> None:
        """Stop counting a task, which does not wait for a slot or run any more."""
        owner = task.submitted.owner
        inside = self.inside.get(owner)
        if inside is not None and task.id in inside:
            inside.remove(task.id)
            self.to_review.add(owner)

    def defer(self, task: TaskRecord) -> None:
        """Let a task wait until its owner's quota admits it."""
        deferred = self._system.deferred.setdefault(task.submitted.owner, RunQueue())
        deferred.push(task, task.rank)

    def deferred_queue(self, task: TaskRecord) -> RunQueue | None:
        """Return the queue in which a task is deferred; None: it is not."""
        if not self._system.deferred:
            return None
        queue = self._system.deferred.get(task.submitted.owner)
        return queue if queue is not None and task in queue else None

    def review(self) -> None:
        """Review all deferred tasks, because resources or quotas changed."""
        self.to_review.update(self._system.deferred)

    def change(self, quotas: Quotas) -> None:
        """Set other quotas; admitted tasks stay admitted, above a lower quota too."""
        self.quotas = quotas
        self.limited = quotas.limited
        self.inside.clear()
        for task in self._system.tasks.values():
            up = task.state.placeable and not self._is_hidden(task)
            if up or task.resource is not None:
                self.enter(task)
        self.review()

    def _is_hidden(self, task: TaskRecord) -> bool:
        """Whether a waiting task waits for a quota, or for others of its array."""
        array = self._system.array_queue(task)
        return array is not None or self.deferred_queue(task) is not None

    def admit_deferred(self, most: int) -> Iterator[TaskRecord]:
        """Admit and yield deferred tasks, in order; at most `most`."""
        while self.to_review:
            owner = self.to_review.pop()
            queue = self._system.deferred.get(owner)
            while queue and (task := self._first(queue)):
                if most <= 0:  # before it counts as admitted
                    self.to_review.add(owner)
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
        """Whether deferred tasks may be admitted."""
        return not self.to_review.isdisjoint(self._system.deferred)

    def _first(self, queue: RunQueue) -> TaskRecord | None:
        """Return the first task that some usable resource can run."""
        heads = [queue.head_of(row) for row in queue.rows()]
        fit = [
            task
            for task in heads
            if self._system.affinities(task.row) and not self.lacks_worker(task)
        ]
        return min(fit, key=queue.key_of, default=None)

    def lacks_worker(self, task: TaskRecord) -> bool:
        """Whether a task has no worker, and its owner has no launcher to start one."""
        unattended = task.submitted.owner in self._system.unattended
        return unattended and not task.bound and not task.submitted.served
