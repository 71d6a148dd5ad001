"""Run queues: the ordered waiting tasks of one resource, bucketed by row.

Tasks of one row are equal to a policy, so it reads only the first of each row. That costs
O(rows) however many tasks wait; a change costs O(log n).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from heapq import heappop, heappush, merge
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from sortedcontainers import SortedList

from hetsched.accounts import OwnerAccount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hetsched.ids import Nanoseconds
    from hetsched.tasks import Row, TaskRecord


Key: TypeAlias = tuple[int, float, OwnerAccount, int]
"""(-priority, rank, account of the owner, order of arrival): the smallest goes first. Accounts
compare by what their owners have used, which changes: keys of several owners are in no order
that lasts. The tasks of a row have one owner."""

FIRST, LAST = -1, 1 << 62
"""Bounds of the order of arrival."""

Entry: TypeAlias = "tuple[Key, TaskRecord]"

FEW = 1000
"""Entries up to which a bucket is a plain list, where a change costs less than a call."""

Bucket: TypeAlias = "list[Entry] | SortedList[Entry]"
"""The tasks of one row, in order."""


class RunQueue:
    """The waiting tasks of one resource, by priority, rank, use of the owner and arrival.

    Attributes:
        entries: the waiting tasks; read only, for what asks at each event whether there
            are any.
        touched: set by every change, for the scheduler, which clears it.

    """

    def __init__(self) -> None:
        self.touched = False
        self.entries: dict[TaskRecord, Entry] = {}
        self._buckets: dict[Row, Bucket] = {}
        self._heads: dict[Row, Entry] = {}
        """The first entry of each bucket."""
        # Made when a policy asks for the deadlines of a row; None: none has asked yet.
        self._orders: dict[Row, DeadlineOrder[TaskRecord]] | None = None
        # The rows of each owner, in order; None: nobody has asked for them yet.
        self._owners: dict[OwnerAccount, dict[Row, None]] | None = None

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, task: TaskRecord) -> bool:
        return task in self.entries

    def __iter__(self) -> Iterator[TaskRecord]:
        """Iterate in order; O(n log n), for checks and listings only."""
        return iter(self.first(len(self.entries)))

    def tasks(self) -> Iterable[TaskRecord]:
        """Return the waiting tasks in no particular order."""
        return self.entries.keys()

    def push(self, task: TaskRecord, rank: float = 0.0) -> None:
        row = task.row
        account = row.account
        account.waiting += 1
        entry = (-task.submitted.priority, rank, account, task.sequence), task
        self.entries[task] = entry
        bucket = self._buckets.get(row)
        if bucket is None:
            self._buckets[row] = [entry]
            self._heads[row] = entry
            if self._owners is not None:
                self._owners.setdefault(account, {})[row] = None
        else:
            self._insert(bucket, row, entry)
        if self._orders is not None and row in self._orders:
            self._orders[row].add(task, task.sequence, task.submitted.deadline)
        self.touched = True

    def _insert(self, bucket: Bucket, row: Row, entry: Entry) -> None:
        """Add an entry to a bucket that is not empty."""
        if not isinstance(bucket, list):
            bucket.add(entry)
            self._heads[row] = min(self._heads[row], entry)
            return
        if bucket[-1] < entry:  # as most do
            bucket.append(entry)
        else:
            insort(bucket, entry)
            self._heads[row] = bucket[0]
        if len(bucket) > FEW:
            self._buckets[row] = SortedList(bucket)

    def remove(self, task: TaskRecord) -> None:
        entry, row = self.entries.pop(task), task.row
        row.account.waiting -= 1
        bucket = self._buckets[row]
        is_head = self._heads[row][1] is task
        if is_head:
            bucket.pop(0)
        elif isinstance(bucket, list):
            del bucket[bisect_left(bucket, entry)]
        else:
            bucket.remove(entry)
        if self._orders is not None and row in self._orders:
            self._orders[row].remove(task, task.submitted.deadline)
        if not bucket:
            del self._buckets[row]
            del self._heads[row]
            if self._owners is not None:
                _forget(row, self._owners)
            if self._orders is not None:
                self._orders.pop(row, None)
        elif is_head:
            self._heads[row] = bucket[0]
        self.touched = True

    def pop(self) -> TaskRecord:
        """Remove and return the first task of a queue that is not empty. O(rows)."""
        _, task = min(self._heads.values())
        self.remove(task)
        return task

    def head(self) -> TaskRecord | None:
        """Return the first task, if there is one. O(rows)."""
        return self._first() if self._buckets else None

    def next_of(self, row: Row, credit: float) -> TaskRecord | None:
        """Return the first task of a row if it is the first of all, or as good as that.

        Args:
            row: one that has, or had, waiting tasks.
            credit: virtual seconds by which its owner may have used more than others whose
                tasks are otherwise equal.

        """
        first = self._heads.get(row)
        if first is None:
            return None
        (priority, rank, account, _), task = first
        for head in self._heads.values():
            (other_priority, other_rank, owner, _), _ = head
            alike = (other_priority, other_rank) == (priority, rank)
            if owner is account or not alike:
                if head < first:
                    return None
            elif owner.used < account.used - credit:
                return None
        return task

    def count_ahead_of(self, task: TaskRecord) -> Counter[Row]:
        """Count the tasks before one in the queue, by row. O(rows log n).

        Of other owners as many as have their turn before it, by what is expected of them.
        """
        entry = self.entries[task]
        if not self.is_mixed():
            counts = {row: _index(b, entry) for row, b in self._buckets.items()}
        else:
            counts = self._count_turns_before(entry)
        return Counter({row: count for row, count in counts.items() if count})

    def _count_turns_before(self, entry: Entry) -> dict[Row, int]:
        """Count the tasks of several owners that have their turn before one, by row."""
        (priority, rank, account, _), task = entry
        counts: dict[Row, int] = {}
        alike: dict[OwnerAccount, list[tuple[Row, int]]] = {}
        start = account.used
        for row, bucket in self._buckets.items():
            first = _index(bucket, ((priority, rank, row.account, FIRST), task))
            counts[row] = first
            if row.account is account:
                counts[row] = _index(bucket, entry)
                start += (counts[row] - first) * self._charge_of(row)
            else:
                last = _index(bucket, ((priority, rank, row.account, LAST), task))
                alike.setdefault(row.account, []).append((row, last - first))
        for owner, rows in alike.items():
            total = math.fsum([count * self._charge_of(row) for row, count in rows])
            part = (start - owner.used) / total if total else float(owner < account)
            for row, count in rows:
                counts[row] += round(min(max(part, 0.0), 1.0) * count)
        return counts

    def _charge_of(self, row: Row) -> float:
        """Return what the owner is charged for the first task of a row."""
        return self._heads[row][1].charge

    def key_of(self, task: TaskRecord) -> Key:
        """Return the key by which a waiting task is ordered."""
        return self.entries[task][0]

    def rows(self) -> Iterable[Row]:
        """Return the rows with at least one waiting task."""
        return self._buckets.keys()

    def is_mixed(self) -> bool:
        """Whether tasks of several owners wait."""
        return len(self._by_owner()) > 1

    def rows_of_owners(self) -> list[Iterable[Row]]:
        """Return the rows of each owner with at least one waiting task."""
        return [rows.keys() for rows in self._by_owner().values()]

    def _by_owner(self) -> dict[OwnerAccount, dict[Row, None]]:
        """Return the rows of each owner; maintained from then on."""
        if self._owners is None:
            self._owners = {}
            for row in self._buckets:
                self._owners.setdefault(row.account, {})[row] = None
        return self._owners

    def head_of(self, row: Row) -> TaskRecord:
        """Return the first task of a row in `rows()`."""
        return self._heads[row][1]

    def first_of(self, row: Row, count: int) -> list[TaskRecord]:
        """Return the first `count` tasks of a row."""
        if count == 1 and row in self._heads:
            return [self._heads[row][1]]
        return [task for _, task in islice(self._buckets.get(row, ()), count)]

    def deadlines_of(self, row: Row) -> DeadlineOrder[TaskRecord]:
        """Return the tasks of a row in `rows()` by deadline; maintained from then on."""
        if self._orders is None:
            self._orders = {}
        order = self._orders.get(row)
        if order is None:
            order = self._orders[row] = DeadlineOrder()
            waiting = [task for _, task in self._buckets[row]]
            for task in sorted(waiting, key=attrgetter("sequence")):
                order.add(task, task.sequence, task.submitted.deadline)
        return order

    def count_of(self, row: Row) -> int:
        """Count the waiting tasks of a row."""
        return len(self._buckets.get(row, ()))

    def heads(self, skip: int = 0) -> Iterator[TaskRecord]:
        """Iterate over the first task of each row, without the first `skip` tasks of all."""
        if skip <= 0:
            return iter([task for _, task in self._heads.values()])
        return iter(list(self._heads_after(skip)))

    def first(self, count: int) -> list[TaskRecord]:
        """Return the first `count` tasks. O(rows + count log rows)."""
        if count == 1 and self._heads:
            return [self._first()]
        buckets = self._buckets
        if self.is_mixed():
            return self._first_in_turn(count)
        if count * count > len(buckets):
            return [task for _, task in islice(merge(*buckets.values()), count)]
        # A few are among the first of the buckets with the first heads.
        leading = [task.row for _, task in sorted(self._heads.values())[:count]]
        entries = [entry for row in leading for entry in islice(buckets[row], count)]
        return [task for _, task in sorted(entries)[:count]]

    def _first(self) -> TaskRecord:
        return min(self._heads.values())[1]

    def _first_in_turn(self, count: int) -> list[TaskRecord]:
        """Return the first tasks as their owners take turns. O(rows + count log rows)."""
        use = ExpectedUse()
        turns: Turns[Iterator[Entry]] = Turns(use)
        # each of the first owners has its turn before any later one
        owners = sorted(self._by_owner().values(), key=self._first_key)[:count]
        for row in chain.from_iterable(owners):
            entries = iter(self._buckets[row])
            turns.offer(*next(entries), entries)
        found: list[TaskRecord] = []
        while turns and len(found) < count:
            task, entries = turns.take()
            found.append(task)
            use.charge(task)
            following = next(entries, None)
            if following is not None:
                turns.offer(*following, entries)
        return found

    def _first_key(self, rows: Iterable[Row]) -> Key:
        """Return the least key of the tasks of some rows."""
        return min([self._heads[row][0] for row in rows])

    def _heads_after(self, skip: int) -> Iterator[TaskRecord]:
        left_out = set(self.first(skip))
        for bucket in self._buckets.values():
            for _, task in islice(bucket, skip + 1):
                if task not in left_out:
                    yield task
                    break


def _forget(row: Row, owners: dict[OwnerAccount, dict[Row, None]]) -> None:
    """Remove a row without waiting tasks from those of its owner."""
    rows = owners[row.account]
    del rows[row]
    if not rows:
        del owners[row.account]


def _index(bucket: Bucket, entry: Entry) -> int:
    """Count the entries of a bucket before one."""
    if isinstance(bucket, list):
        return bisect_left(bucket, entry)
    return bucket.bisect_left(entry)


T = TypeVar("T")

Place: TypeAlias = tuple[int, float, float, int, int]
"""(-priority, rank, virtual time used by then, number of the account, order of arrival)."""


class ExpectedUse:
    """The virtual time that owners will have used, with tasks that have no slot yet."""

    def __init__(self) -> None:
        self._used: dict[OwnerAccount, float] = {}
        """That of the owners of the tasks that were charged."""

    def of(self, account: OwnerAccount) -> float:
        return self._used.get(account, account.used)

    def charge(self, task: TaskRecord) -> None:
        """Count what is expected of a task as used."""
        account = task.row.account
        self._used[account] = self.of(account) + task.charge


class Turns(Generic[T]):
    """The order of tasks of several owners, if each task takes the time expected of it.

    Of each source of tasks, in which they are in order, the first one is offered; the caller
    that takes it offers the next one.

    Args:
        use: of the owners; the caller charges it the tasks that it takes.

    """

    def __init__(self, use: ExpectedUse) -> None:
        self._use = use
        self._offers: list[tuple[Place, TaskRecord, T]] = []

    def __bool__(self) -> bool:
        return bool(self._offers)

    def offer(self, key: Key, task: TaskRecord, source: T) -> None:
        heappush(self._offers, (self._place_of(key), task, source))

    def take(self) -> tuple[TaskRecord, T]:
        """Remove and return the task whose turn it is, and its source; there must be one."""
        while True:
            place, task, source = heappop(self._offers)
            used = self._use.of(task.row.account)
            if used <= place[2]:
                return task, source
            later = (place[0], place[1], used, place[3], place[4])
            heappush(self._offers, (later, task, source))

    def _place_of(self, key: Key) -> Place:
        priority, rank, account, arrival = key
        return priority, rank, self._use.of(account), account.number, arrival


def blocked_key(task: TaskRecord) -> Key:
    """Return the key of a task that waits for its needs; ranks of policies do not count."""
    return -task.priority, 0.0, task.row.account, task.sequence


class BlockedTasks:
    """Tasks that wait for cores or memory, grouped by what they need and are.

    Tasks of one group have the same row, needs and time limit: where the first of them
    cannot start, no other can. A change costs O(log n).
    """

    def __init__(self) -> None:
        self._keys: dict[TaskRecord, Key] = {}
        self._groups: dict[object, SortedList[Entry]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, task: TaskRecord) -> bool:
        return task in self._keys

    def __iter__(self) -> Iterator[TaskRecord]:
        """Iterate in no particular order."""
        return iter(self._keys)

    def push(self, task: TaskRecord) -> None:
        key = self._keys[task] = blocked_key(task)
        task.row.account.waiting += 1
        self._groups.setdefault(self.group_of(task), SortedList()).add((key, task))

    def remove(self, task: TaskRecord) -> None:
        entry = (self._keys.pop(task), task)
        task.row.account.waiting -= 1
        group = self.group_of(task)
        self._groups[group].remove(entry)
        if not self._groups[group]:
            del self._groups[group]

    def group_of(self, task: TaskRecord) -> tuple[object, ...]:
        """Return what tasks of a group have in common."""
        return task.row, task.needs, task.submitted.time_limit_s

    def heads(self) -> list[TaskRecord]:
        """Return the first task of each group, in no particular order."""
        return [group[0][1] for group in self._groups.values()]

    def head_of(self, group: object) -> TaskRecord | None:
        """Return the first task of a group, if it has any."""
        entries = self._groups.get(group)
        return entries[0][1] if entries else None


NEVER: Nanoseconds = 1 << 62
"""Deadline of a task that has none."""


class DeadlineOrder(Generic[T]):
    """Tasks by deadline; among equals in the order in which they were added."""

    __slots__ = ("_instants", "_numbers", "_straight", "_tasks")

    def __init__(self) -> None:
        self._instants: list[Nanoseconds] = []
        self._numbers: list[int] = []
        self._tasks: list[T] = []
        # Whether deadlines are in the order of arrival, so that no search is needed.
        self._straight = True

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: T, number: int, deadline: Nanoseconds | None) -> None:
        """Add a task; `number`: its place in the order of arrival."""
        at = NEVER if deadline is None else deadline
        index = bisect_right(self._instants, at)
        last = index == len(self._tasks)
        in_turn = last and (index == 0 or self._numbers[-1] < number)
        self._straight = in_turn and (self._straight or index == 0)
        self._instants.insert(index, at)
        self._numbers.insert(index, number)
        self._tasks.insert(index, task)

    def remove(self, task: T, deadline: Nanoseconds | None) -> None:
        """Remove a task that was added with this deadline."""
        at = NEVER if deadline is None else deadline
        index = bisect_left(self._instants, at)
        while self._tasks[index] is not task:
            index += 1
        del self._instants[index], self._numbers[index], self._tasks[index]

    def soonest(self) -> tuple[Nanoseconds, int, T]:
        """Return the soonest deadline, its task's number and the task of an order not empty."""
        return self._instants[0], self._numbers[0], self._tasks[0]

    def latest(self) -> tuple[Nanoseconds, int, T]:
        """Return the latest deadline, its task's number and the task of an order not empty."""
        return self._instants[-1], self._numbers[-1], self._tasks[-1]

    def first_from(self, instant: Nanoseconds) -> tuple[Nanoseconds, int, T] | None:
        """Return the soonest deadline that is not before `instant`."""
        index = bisect_left(self._instants, instant)
        if index == len(self._tasks):
            return None
        return self._instants[index], self._numbers[index], self._tasks[index]

    def oldest(
        self, start: Nanoseconds = -NEVER, stop: Nanoseconds = NEVER + 1
    ) -> tuple[Nanoseconds, int, T] | None:
        """Return the earliest arrival of those with a deadline in [start, stop)."""
        low = bisect_left(self._instants, start)
        high = bisect_left(self._instants, stop)
        if low >= high:
            return None
        if not self._straight:
            numbers = self._numbers[low:high]
            low += numbers.index(min(numbers))
        return self._instants[low], self._numbers[low], self._tasks[low]

    def before(self, instant: Nanoseconds) -> list[T]:
        """List the tasks with a deadline before `instant`."""
        return self._tasks[: bisect_left(self._instants, instant)]

    def entries(self) -> Iterator[tuple[Nanoseconds, int, T]]:
        """Iterate over deadlines, numbers and tasks."""
        return zip(self._instants, self._numbers, self._tasks, strict=True)
