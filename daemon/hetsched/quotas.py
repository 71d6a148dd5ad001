"""Quotas limit how many tasks of each user are admitted; a fair queue orders users.

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

OWNERS_KEPT = 10_000
"""Owners whose next virtual start is kept even when it has passed."""

LEAST_ERROR_S = 0.25
"""Seconds by which charges may differ from use before the tasks that wait are charged again."""
EXACT_S = 1e-6
"""Seconds by which sums of charges differ, as they are rounded."""
ERROR_OF_TASK_S = 50e-6
"""The same for each task, so that this takes a small part of the scheduler's time."""


class Account:
    """The charges of an owner, in seconds; `reached` and `following` are virtual instants.

    Attributes:
        reached: where the charges of its tasks end that have begun.
        following: where those of all its tasks end: the virtual start of its next one.
        error: time that its tasks used and were not charged; negative: the reverse.
        disorder: charges of tasks that began before earlier ones, or ended without a start:
            the virtual starts of those that wait do not follow `reached` any more.
        misjudged: whether the charges of waiting tasks may be wrong by any amount.

    """

    def __init__(self) -> None:
        self.reached = 0.0
        self.following = 0.0
        self.error = 0.0
        self.disorder = 0.0
        self.misjudged = False

    def is_off(self, allowed: float) -> bool:
        """Whether the virtual starts of its waiting tasks are wrong by more than this."""
        return self.misjudged or max(abs(self.error), self.disorder) > allowed


class FairQueue:
    """Start-time fair queueing over the computing time that tasks use.

    A virtual clock advances as tasks are dispatched. The virtual start of a task is where
    its owner's last one ends; among tasks that are otherwise equal the earliest start goes
    first. With one user that is the order of arrival.

    A task is charged the time that is expected of it when it arrives. Where an owner's
    tasks use more or less, or begin in another order, those that wait are charged again
    from what was used: neither wrong expectations nor false statements change an owner's
    part for long.

    Attributes:
        shared: whether tasks of several owners were charged; nothing is compared before.

    """

    def __init__(self) -> None:
        self.shared = False
        self._clock = 0.0
        self._accounts: dict[int, Account] = {}

    def account(self, owner: int) -> Account:
        """Return the account of an owner; a new one where there is none."""
        found = self._accounts.get(owner)
        if found is None:
            found = self._add_account(owner)
        return found

    def virtual_start(self, owner: int, seconds: float, share: float) -> float:
        """Return the virtual start of an owner's next task.

        Args:
            owner: its uid.
            seconds: computing time that the task is charged.
            share: weight of the owner, above 0.

        """
        account = self.account(owner)
        start = max(self._clock, account.following)
        account.following = start + seconds / share
        return start

    def dispatch(
        self, owner: int, virtual_start: float, seconds: float, share: float
    ) -> None:
        """Advance the clock, as a task of an owner is dispatched for the first time.

        Args:
            owner: its uid.
            virtual_start: of the task.
            seconds: what it was charged.
            share: weight of the owner, above 0.

        """
        account = self.account(owner)
        start = self._clock = max(self._clock, account.reached)
        if abs(virtual_start - start) * share > EXACT_S:
            account.disorder += seconds
        account.reached = start + seconds / share

    def has_others(self, owner: int) -> bool:
        """Whether other owners have tasks that were charged and not dispatched."""
        return any(
            each.following > self._clock
            for other, each in self._accounts.items()
            if other != owner
        )

    def forgive(self, owner: int) -> None:
        """Compare an owner's use and charges from now on: no other was waiting until now."""
        account = self.account(owner)
        account.error = account.disorder = 0.0
        account.misjudged = True

    def restart(self, owner: int, share: float) -> None:
        """Let the virtual starts of an owner's tasks begin after what it has used.

        Args:
            owner: its uid.
            share: weight of the owner, above 0.

        """
        account = self.account(owner)
        reached = max(self._clock, account.reached) + account.error / share
        account.reached = account.following = max(self._clock, reached)
        account.error = account.disorder = 0.0
        account.misjudged = False

    def _add_account(self, owner: int) -> Account:
        if len(self._accounts) >= OWNERS_KEPT:
            self._forget_idle()
        if self._accounts and not self.shared:
            self.shared = True
            for first in self._accounts.values():
                first.misjudged = True  # what its tasks used was not counted
        made = self._accounts[owner] = Account()
        return made

    def _forget_idle(self) -> None:
        """Forget the owners whose next virtual start has passed; all, if none has."""
        left = {o: a for o, a in self._accounts.items() if a.following > self._clock}
        self._accounts = left if len(left) < OWNERS_KEPT else {}


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
