"""Work stealing: idle resources take tasks from others, one best offer at a time.

`principles`, `finish-time` and the batch policies differ in what they offer and in how
they rank it; the loop is the same.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hetsched.accounts import OwnerAccount
    from hetsched.queues import ExpectedUse
    from hetsched.system import System
    from hetsched.tasks import TaskRecord

Offer: TypeAlias = "tuple[tuple[Any, ...], TaskRecord, str]"
"""Rank, task, and the idle resource that could take it; the lowest rank is best."""


def steal(
    idle: Callable[[], list[str]],
    offers: Callable[[list[str]], Iterable[Offer]],
) -> Iterator[tuple[TaskRecord, str]]:
    """Yield the best task and resource, until nothing is idle or nothing is offered.

    Both functions are called again after each pair: by then the caller's decision about
    it has been applied. Of equal ranks the first offer is taken.

    Args:
        idle: lists the resources that can take a task now.
        offers: lists what these resources could take.

    """
    while names := idle():
        best = min(offers(names), key=itemgetter(0), default=None)
        if best is None:
            return
        _, task, name = best
        yield task, name


def waiting_tasks(system: System) -> Iterator[tuple[str, TaskRecord]]:
    """List the first waiting task of each row with its resource.

    Tasks that a free slot takes next are left out.
    """
    for name, state in system.states.items():
        if state.queue:
            for task in system.waiting(name):
                yield name, task


def offers_in_turn(
    waiting: Iterable[tuple[str, TaskRecord]],
    use: ExpectedUse,
    offers: Callable[[list[tuple[str, TaskRecord]]], list[Offer]],
) -> list[Offer]:
    """Return the offers of the first owner in turn who has any.

    Args:
        waiting: resources and their waiting tasks.
        use: of the owners, with the tasks that were taken already.
        offers: lists what idle resources could take of the tasks of one owner.

    """
    owners: dict[OwnerAccount, list[tuple[str, TaskRecord]]] = {}
    for where, task in waiting:
        owners.setdefault(task.row.account, []).append((where, task))
    for account in sorted(owners, key=lambda each: (use.of(each), each.number)):
        found = offers(owners[account])
        if found:
            return found
    return []


def running_tasks(system: System) -> list[TaskRecord]:
    """List the running tasks of all resources."""
    return [t for state in system.states.values() for t in state.running.values()]
