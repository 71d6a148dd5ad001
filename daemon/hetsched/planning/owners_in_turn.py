"""Turns of owners where tasks wait without a place until a slot is free.

Run queues are in the order of turns. A policy that binds late takes for a free slot a task of
the owner who has used least (`hetsched.fair_shares`), of those with tasks that are eligible and
of the highest priority; which of that owner's, is for its own rule. Policies of other packages
may use this too. Where the tasks of one owner wait nothing is counted, and nothing changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from hetsched.queues import ExpectedUse, Turns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hetsched.accounts import OwnerAccount
    from hetsched.system import System
    from hetsched.tasks import TaskRecord

Turn: TypeAlias = tuple[int, float, int]
"""(-priority, virtual time used by then, number of the account): the smallest is next."""


class OwnersInTurn:
    """The turns of one reaction.

    Tasks that the reaction places have to be charged: their owners' accounts change only
    when they are dispatched.

    Args:
        system: what is scheduled.

    Attributes:
        several: whether the tasks that wait without a place have several owners.

    """

    def __init__(self, system: System) -> None:
        self.several = system.unplaced.is_mixed()
        self._use = ExpectedUse()
        if self.several:
            self._charge_placed(system)
        self._passed: set[tuple[int, OwnerAccount]] = set()

    def _charge_placed(self, system: System) -> None:
        """Count the tasks that an earlier reaction of this instant has given free slots."""
        for state in system.usable_states():
            if state.queue.entries and len(state.running) < state.slots:
                for task in state.queue.first(state.slots - len(state.running)):
                    self._use.charge(task)

    def charge(self, task: TaskRecord) -> None:
        """Count what is expected of a task that was placed as used by its owner."""
        if self.several:
            self._use.charge(task)

    def next_of(self, eligible: Iterable[TaskRecord]) -> Iterable[TaskRecord]:
        """Return the tasks that may be taken: of the highest priority and the owner next in turn.

        They stay in their order. All of them where the tasks of one owner wait: priorities are
        then for the caller alone.
        """
        return self._first_turn(eligible) if self.several else eligible

    def pass_on(self, task: TaskRecord) -> None:
        """Leave out the owner and the priority of a task: its rule takes none of them now."""
        self._passed.add((task.priority, task.row.account))

    def each(self, tasks: list[TaskRecord]) -> Iterator[TaskRecord]:
        """Iterate over tasks in turn: charge those that are taken before going on.

        Args:
            tasks: those of each owner in order, by priority before all else.

        """
        return self._in_turn(tasks) if self.several else iter(tasks)

    def first(self, tasks: list[TaskRecord], most: int) -> list[TaskRecord]:
        """Return the first `most` tasks in turn, as if all of them were taken.

        Of each owner an equal part of that number, one at least: tasks of those who have used
        least may wait for other resources than the ones that are free.
        """
        if not self.several:
            return tasks[:most]
        owners = _by_owner(tasks)
        part = max(most // max(len(owners), 1), 1)
        found = []
        for task in self._in_turn([task for own in owners for task in own[:part]]):
            self._use.charge(task)
            found.append(task)
        return found

    def _first_turn(self, tasks: Iterable[TaskRecord]) -> list[TaskRecord]:
        first: Turn | None = None
        found: list[TaskRecord] = []
        for task in tasks:
            if (task.priority, task.row.account) in self._passed:
                continue
            turn = self._turn_of(task)
            if first is None or turn < first:
                first, found = turn, []
            if turn == first:
                found.append(task)
        return found

    def _turn_of(self, task: TaskRecord) -> Turn:
        account = task.row.account
        return -task.priority, self._use.of(account), account.number

    def _in_turn(self, tasks: list[TaskRecord]) -> Iterator[TaskRecord]:
        turns: Turns[Iterator[TaskRecord]] = Turns(self._use)
        for own in _by_owner(tasks):
            _offer_next(turns, iter(own))
        while turns:
            task, rest = turns.take()
            yield task
            _offer_next(turns, rest)


def _offer_next(
    turns: Turns[Iterator[TaskRecord]], tasks: Iterator[TaskRecord]
) -> None:
    task = next(tasks, None)
    if task is not None:
        turns.offer((-task.priority, 0.0, task.row.account, 0), task, tasks)


def _by_owner(tasks: list[TaskRecord]) -> list[list[TaskRecord]]:
    found: dict[OwnerAccount, list[TaskRecord]] = {}
    for task in tasks:
        found.setdefault(task.row.account, []).append(task)
    return list(found.values())
