"""Fair shares: owners take turns in proportion to the time that their tasks use.

Each owner has an account of the virtual time that its tasks used: seconds in slots, divided
by the owner's share. Among tasks that are otherwise equal, that one goes first whose owner has
used least (`hetsched.queues`). This is stride scheduling (Waldspurger and Weihl, MIT/LCS/TM-528,
1995, sections 2 and 3) for tasks whose times are not known before: a task that gets a slot is
charged what is expected of it, and what it really used as soon as that is known. Charges are
those of owners and not of waiting tasks, so they cost the same however many tasks wait.

An owner who comes back starts level with those whose tasks run: absence gives no credit.
While only one owner has tasks nothing is charged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.accounts import OwnerAccount
from hetsched.system import SECOND

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from hetsched.ids import Nanoseconds
    from hetsched.quotas import AdmissionQuota
    from hetsched.system import ResourceState, System
    from hetsched.tasks import TaskRecord

LEAST_FIT = 0.1
"""Least part of a second on a resource that counts for fair shares."""
MOST_CREDIT = 1.0
"""Virtual seconds by which an owner may have used less than others when a resource serves it:
one that waited, but not for this resource, must not have it alone for long."""
OVERDUE_EVERY: Nanoseconds = 10_000_000
"""Nanoseconds between charges of running tasks that take longer than expected."""


class FairShares:
    """The accounts of owners.

    Attributes:
        compared: whether there are several owners; nothing is charged before.

    """

    def __init__(self, system: System, admission: AdmissionQuota) -> None:
        self.compared = False
        self._system = system
        self._admission = admission
        self._accounts: dict[int, OwnerAccount] = {}
        self._opened = 0
        self._clocks = dict.fromkeys(system.states, 0.0)
        """Resource -> the most that an owner had used when it was served there."""
        self._latest = 0.0
        """The most that any owner has used."""
        self._overdue_at: Nanoseconds = 0

    def account(self, owner: int) -> OwnerAccount:
        """Return the account of an owner; a new one where there is none."""
        return self._accounts.get(owner) or self._open(owner)

    def forget(self, accounts: Collection[OwnerAccount]) -> None:
        """Forget the owners without live tasks who have not used more than others.

        Args:
            accounts: of the owners with live tasks.

        """
        least = min((each.used for each in accounts), default=self._latest)
        self._accounts = {
            owner: each
            for owner, each in self._accounts.items()
            if each in accounts or each.used > least
        }

    def expect(self, task: TaskRecord) -> None:
        """Set what a task is to be charged: the time that is expected of the rest of it."""
        seconds = self._system.fit(task.row).least_s * (task.limit - task.progress)
        task.charge = seconds / self._share_of(task)

    def enter(self, task: TaskRecord) -> None:
        """Let an owner begin level with those whose tasks run, if no other task of it waits."""
        account = task.row.account
        if not (account.waiting or account.running):
            account.returns = True
            account.used = max(account.used, self._level())

    def take_turn(self, task: TaskRecord, state: ResourceState) -> None:
        """Charge a task that gets a slot, or is dispatched behind others."""
        account, name = task.row.account, state.resource.name
        clock = self._clocks[name]
        credit = 0.0 if account.returns else MOST_CREDIT
        account.returns = False
        account.used = max(account.used, clock - credit)
        self._clocks[name] = max(clock, account.settled)
        self.expect(task)
        account.charge(task.charge)
        account.running += 1

    def end_turn(self, task: TaskRecord, state: ResourceState) -> None:
        """Charge a task that leaves its slot what it used."""
        account = task.row.account
        used = 0.0 if task.not_started else self._use_of(task, state)
        account.settle(task.charge, used)
        self._latest = max(self._latest, account.settled)
        self.expect(task)

    def charge_overdue(self) -> None:
        """Charge running tasks that take longer than was expected what they have used."""
        if self._system.now < self._overdue_at:
            return
        self._overdue_at = self._system.now + OVERDUE_EVERY
        for task, state in self._running():
            more = self._use_of(task, state) - task.charge
            if more > 0.0:
                task.charge += more
                task.row.account.charge(more)

    def _open(self, owner: int) -> OwnerAccount:
        self._opened += 1
        made = self._accounts[owner] = OwnerAccount(self._opened)
        if len(self._accounts) > 1 and not self.compared:
            self.compared = True
            self._charge_running()
        return made

    def _charge_running(self) -> None:
        """Charge what runs already, as another owner comes."""
        for state in self._system.states.values():
            for task in (*state.running.values(), *state.trailing.values()):
                task.row.account.charge(task.charge)
                task.row.account.running += 1

    def _level(self) -> float:
        """Return the least that an owner has used by now whose task runs.

        The most that any has used, where no task runs.
        """
        used: dict[OwnerAccount, float] = {}
        for task, state in self._running():
            account = task.row.account
            settled = used.get(account, account.settled)
            used[account] = settled + self._use_of(task, state)
        return min(used.values(), default=self._latest)

    def _running(self) -> Iterator[tuple[TaskRecord, ResourceState]]:
        for state in self._system.states.values():
            for task in state.running.values():
                yield task, state

    def _use_of(self, task: TaskRecord, state: ResourceState) -> float:
        """Return the virtual seconds that a task has had its slot.

        Time on a resource that does not fit the task best counts less, as nobody chose it;
        but a tenth at least, as a task can be made to fit one resource only.
        """
        seconds = (self._system.now - task.since) / SECOND
        if state.resource.shared:
            seconds /= max(len(state.running), 1)
        fit = self._system.fit(task.row)
        expected = fit.expected.get(state.resource.name, 0) / SECOND
        if expected > fit.least_s:
            seconds *= max(fit.least_s / expected, LEAST_FIT)
        return seconds / self._share_of(task)

    def _share_of(self, task: TaskRecord) -> float:
        return self._admission.quotas.of(task.submitted.owner).share
