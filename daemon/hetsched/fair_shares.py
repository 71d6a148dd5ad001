"""Fair shares: users take turns in proportion to the time that their tasks use.

Start-time fair queueing (Goyal, Vin and Cheng 1996) orders the tasks of several users that
wait for one resource. A task's place is part of its key in a run queue and is fixed when it
arrives, by the time that is expected of it. What the tasks of each user really use is
compared with that; where it differs, the user's waiting tasks get new places, up to a limit
of steps at each event. While only one user has tasks nothing is compared.
"""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING

from hetsched.system import SECOND
from hetsched.tasks import RUNNING

if TYPE_CHECKING:
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.quotas import AdmissionQuota
    from hetsched.system import ResourceState, System
    from hetsched.tasks import TaskRecord

LEAST_FIT = 0.1
"""Least part of a second on a resource that counts for fair shares."""
by_sequence = attrgetter("sequence")

OWNERS_KEPT = 10_000
"""Owners whose next virtual start is kept even when it has passed."""

LEAST_ERROR_S = 0.03
"""Virtual seconds by which charges may be wrong before waiting tasks are charged again."""
EXACT_S = 1e-6
"""Virtual seconds by which sums of charges differ, as they are rounded."""
REST_OF_TASK = 300_000
"""Nanoseconds without another correction for each task that was charged again: thirty times as
long as it takes."""


class OwnerCharges:
    """The charges of an owner, in virtual seconds: seconds by the owner's share.

    Attributes:
        reached: where the charges of its tasks end that have begun.
        following: where those of all its tasks end: the virtual start of its next one.
        error: what its tasks used and were not charged; negative: the reverse.
        disorder: charges of tasks that began before earlier ones, or ended without a start:
            the virtual starts of those that wait do not follow `reached` any more.
        misjudged: whether the charges of waiting tasks may be wrong by any amount.
        rests_until: instant before which its tasks are not charged again.

    """

    def __init__(self) -> None:
        self.reached = 0.0
        self.following = 0.0
        self.error = 0.0
        self.disorder = 0.0
        self.misjudged = False
        self.rests_until: Nanoseconds = 0

    @property
    def is_off(self) -> bool:
        """Whether the virtual starts of its waiting tasks are to be corrected."""
        return self.misjudged or max(abs(self.error), self.disorder) > LEAST_ERROR_S


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
        self._reached = 0.0
        """`OwnerCharges.reached` of the only owner."""
        self._accounts: dict[int, OwnerCharges] = {}

    def account(self, owner: int) -> OwnerCharges:
        """Return the account of an owner; a new one where there is none."""
        return self._accounts.get(owner) or self._add_account(owner)

    def virtual_start(self, owner: int, charge: float) -> float:
        """Return the virtual start of an owner's next task.

        Args:
            owner: its uid.
            charge: for the task, in virtual seconds.

        """
        account = self._accounts.get(owner) or self._add_account(owner)
        start = max(account.following, self._clock)
        account.following = start + charge
        return start

    def advance(self, virtual_start: float, charge: float) -> None:
        """Advance the clock, as a task of the only owner is dispatched."""
        if virtual_start >= self._clock:
            self._clock = virtual_start
            self._reached = virtual_start + charge

    def take_turn(self, owner: int, virtual_start: float, charge: float) -> None:
        """Advance the clock, as a task of one of several owners begins.

        Args:
            owner: its uid.
            virtual_start: of the task.
            charge: for the task, in virtual seconds.

        """
        account = self.account(owner)
        start = self._clock = max(self._clock, account.reached)
        if virtual_start > start + EXACT_S:
            account.disorder += charge
        elif virtual_start < start - LEAST_ERROR_S:
            account.misjudged = True
        account.reached = start + charge

    def has_others(self, owner: int) -> bool:
        """Whether other owners have tasks that were charged and not dispatched."""
        return any(
            each.following > self._clock
            for other, each in self._accounts.items()
            if other != owner
        )

    def drop_common_error(self) -> None:
        """Drop the part of the error that is the same for all owners with waiting tasks."""
        errors = [
            each.error
            for each in self._accounts.values()
            if each.following > self._clock
        ]
        if not errors:
            return
        common = max(min(errors), 0.0) + min(max(errors), 0.0)
        if common:
            for each in self._accounts.values():
                if each.following > self._clock:
                    each.error -= common

    def forgive(self, owner: int) -> None:
        """Compare an owner's use and charges from now on: no other was waiting until now."""
        account = self.account(owner)
        account.error = account.disorder = 0.0
        account.misjudged = True

    def restart(self, owner: int) -> None:
        """Let the virtual starts of an owner's tasks begin after what it has used."""
        account = self.account(owner)
        reached = max(self._clock, account.reached) + account.error
        account.reached = account.following = max(self._clock, reached)
        account.error = account.disorder = 0.0
        account.misjudged = False

    def _add_account(self, owner: int) -> OwnerCharges:
        if len(self._accounts) >= OWNERS_KEPT:
            self._forget_idle()
        if self._accounts and not self.shared:
            self.shared = True
            for only in self._accounts.values():  # what its tasks used was not counted
                only.reached = self._reached
                only.misjudged = True
        made = self._accounts[owner] = OwnerCharges()
        return made

    def _forget_idle(self) -> None:
        """Forget the owners whose next virtual start has passed; all, if none has."""
        left = {o: a for o, a in self._accounts.items() if a.following > self._clock}
        self._accounts = left if len(left) < OWNERS_KEPT else {}


class FairShares:
    """Charges owners for tasks, and compares the charges with what the tasks use.

    Attributes:
        compared: whether several owners have had tasks.
        pending: whether tasks are to be charged again.
        to_charge: tasks of one owner, in the order of arrival: those that wait are to be
            charged again.

    """

    def __init__(self, system: System, admission: AdmissionQuota) -> None:
        self.compared = False
        self.pending = False
        self.to_charge: deque[TaskRecord] = deque()
        self._system = system
        self._admission = admission
        self._queue = FairQueue()
        self._charging: int | None = None
        """Owner of the tasks to charge."""
        self._misjudged: set[int] = set()
        """Owners whose waiting tasks are to be charged again."""
        self._turns: set[TaskId] = set()
        """Tasks that took a turn: what their owners reached includes their charges."""
        self._in_order = True
        """Whether no task ever went to the back: their order is that of arrival."""

    def charge(self, task: TaskRecord) -> None:
        """Charge a task's owner what is expected of the rest of it, and set its place."""
        owner = task.submitted.owner
        seconds = self._system.fit(task.row).least_s * (task.limit - task.progress)
        task.charged = seconds / self._admission.quotas.of(owner).share
        task.virtual_start = self._queue.virtual_start(owner, task.charged)

    def charge_new(self, task: TaskRecord) -> None:
        """Charge a task that arrives; it stays behind its owner's others."""
        self.charge(task)
        if self._queue.shared and not self.compared:
            self.compared = True
            for state in self._system.states.values():
                self._turns.update(state.running)
        if self.to_charge and task.submitted.owner == self._charging:
            self.to_charge.append(task)

    def charge_at_back(self, task: TaskRecord) -> None:
        """Charge a task that has used its charge, and goes behind its owner's others."""
        self._in_order = False
        self._take_back(task, self._queue.account(task.submitted.owner))
        self.charge_new(task)

    def take_turn(self, task: TaskRecord) -> None:
        """Advance the virtual clock, as a task is dispatched."""
        if not self.compared:
            self._queue.advance(task.virtual_start, task.charged)
        elif task.id not in self._turns:  # else it only goes on
            self._turns.add(task.id)
            owner = task.submitted.owner
            self._queue.take_turn(owner, task.virtual_start, task.charged)

    def count_use(self, task: TaskRecord, state: ResourceState) -> None:
        """Count the time that a task had a slot, in the measure of `charge`.

        Time on a resource that does not fit the task best counts less, as nobody chose it;
        but a tenth at least, as a task can be made to fit one resource only.
        """
        seconds = (self._system.now - task.since) / SECOND
        if state.resource.shared:
            seconds /= len(state.running) + 1
        fit = self._system.fit(task.row)
        expected = fit.expected.get(state.resource.name, 0) / SECOND
        if expected > fit.least_s:
            seconds *= max(fit.least_s / expected, LEAST_FIT)
        owner = task.submitted.owner
        account = self._queue.account(owner)
        account.error += seconds / self._admission.quotas.of(owner).share
        if account.error > LEAST_ERROR_S:
            self._note(owner, account)

    def settle(self, task: TaskRecord) -> None:
        """Take the charge of an ended task from what its owner used."""
        owner = task.submitted.owner
        account = self._queue.account(owner)
        if not self._take_back(task, account):
            account.disorder += task.charged
        if self._misjudged or account.is_off:
            self._note(owner, account)

    def _note(self, owner: int, account: OwnerCharges) -> None:
        """Note an owner whose charges are off, and let the next one be corrected that may be."""
        if account.is_off:
            self._queue.drop_common_error()
        if account.is_off:
            self._misjudged.add(owner)
        if self._misjudged and not self.pending:
            now = self._system.now
            rests = map(self._rests_until, self._misjudged)
            self.pending = any(until <= now for until in rests)

    def _rests_until(self, owner: int) -> Nanoseconds:
        return self._queue.account(owner).rests_until

    def correct(self) -> int:
        """Begin to charge the tasks of a misjudged owner again, if other owners wait.

        Returns:
            the number of tasks that were looked at.

        """
        if self.to_charge:
            return 0
        owner = min(self._misjudged, key=self._rests_until)
        self._misjudged.discard(owner)
        self.pending = False
        if not self._queue.has_others(owner):
            self._queue.forgive(owner)
            return 0
        self._charge_running(owner)
        tasks = self._system.tasks.values()
        found = [task for task in tasks if task.submitted.owner == owner]
        account = self._queue.account(owner)
        for number in tuple(self._turns):
            task = self._system.tasks[number]
            if task.submitted.owner == owner and task.state is not RUNNING:
                self._take_back(task, account)
        if not self._in_order:
            found.sort(key=by_sequence)
        self.to_charge.extend(found)
        self.pending = bool(found)
        self._charging = owner
        self._queue.restart(owner)
        account.rests_until = self._system.now + REST_OF_TASK * len(found)
        return len(tasks)

    def _take_back(self, task: TaskRecord, account: OwnerCharges) -> bool:
        """Take back the charge of a task that took a turn, as its use was counted."""
        if task.id not in self._turns:
            return False
        self._turns.discard(task.id)
        account.error -= task.charged
        return True

    def next(self) -> TaskRecord | None:
        """Return the next task to charge again, if it waits; None: another one, or none."""
        task = self.to_charge.popleft()
        self.pending = bool(self.to_charge)
        waits = task.id in self._system.tasks and task.state is not RUNNING
        return task if waits else None

    def _charge_running(self, owner: int) -> None:
        """Charge an owner's running tasks what is expected of them now."""
        account = self._queue.account(owner)
        share = self._admission.quotas.of(owner).share
        for state in self._system.states.values():
            for task in state.running.values():
                if task.submitted.owner == owner:
                    least = self._system.fit(task.row).least_s / share
                    charge = least * (task.limit - task.progress_then)
                    account.error += charge - task.charged
                    task.charged = charge
