"""Run queues: the ordered waiting tasks of one resource, bucketed by row.

Tasks of one row are alike to a policy, so it only ever looks at the first of each:
a look costs O(rows) however many tasks wait. Buckets are heaps; a removed task stays
in its heap until it comes to the top (lazy deletion) or the heap is mostly such tasks.
"""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heappush
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, TypeAlias

from hetd.core.deadlines import DeadlineOrder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hetd.core.tasks import Row, TaskRecord

Key: TypeAlias = tuple[int, float, float, int]
"""(-priority, rank, turn of the owner, order of arrival): the smallest goes first."""

Entry: TypeAlias = "tuple[Key, TaskRecord]"
"""One stay of a task in a queue; told from an earlier stay by identity."""

_SLACK = 32
_SHARES = (2, 3, 4, 5, 6)
"""A bucket is made anew when one in so many of its tasks was removed, and `_SLACK` more.
The shares differ by row, so that not all buckets of a queue come to it at once."""

_top = itemgetter(0)


class RunQueue:
    """The waiting tasks of one resource, in order of priority, rank, turn and arrival.

    Attributes:
        touched: set by every change, for the scheduler, which clears it.

    """

    def __init__(self) -> None:
        self.touched = False
        self._entries: dict[TaskRecord, Entry] = {}
        self._buckets: dict[Row, list[Entry]] = {}
        self._stale: Counter[Row] = Counter()
        # Made when a policy asks for the deadlines of a row; None: nobody ever did.
        self._orders: dict[Row, DeadlineOrder[TaskRecord]] | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, task: TaskRecord) -> bool:
        return task in self._entries

    def __iter__(self) -> Iterator[TaskRecord]:
        """Iterate in order; O(n log n), for checks and listings only."""
        return iter([task for _, task in sorted(self._entries.values())])

    def tasks(self) -> Iterable[TaskRecord]:
        """Waiting tasks, in no order."""
        return self._entries.keys()

    def push(self, task: TaskRecord, rank: float = 0.0) -> None:
        entry = ((-task.priority, rank, task.turn, task.sequence), task)
        self._entries[task] = entry
        bucket = self._buckets.get(task.row)
        if bucket is None:
            self._buckets[task.row] = [entry]
        else:
            heappush(bucket, entry)
        if self._orders is not None and task.row in self._orders:
            self._orders[task.row].add(task, task.sequence, task.submitted.deadline)
        self.touched = True

    def remove(self, task: TaskRecord) -> None:
        del self._entries[task]
        self._stale[task.row] += 1
        if self._orders is not None and task.row in self._orders:
            self._orders[task.row].remove(task, task.submitted.deadline)
        self._settle(task.row)
        self.touched = True

    def pop(self) -> TaskRecord:
        """Take the first task out of a queue that is not empty. O(rows)."""
        row = self._first().row
        task = heappop(self._buckets[row])[1]  # the top of a bucket was not removed
        del self._entries[task]
        if self._orders is not None and row in self._orders:
            self._orders[row].remove(task, task.submitted.deadline)
        self._settle(row)
        self.touched = True
        return task

    def head(self) -> TaskRecord | None:
        """Look at the first task. O(rows)."""
        return self._first() if self._buckets else None

    def ahead_of(self, task: TaskRecord) -> Iterator[TaskRecord]:
        """Look at the tasks before one in the queue, in no order. O(n), for users.

        What happens to the queue meanwhile is not looked at.
        """
        own = self._entries[task][0]
        entries = list(self._entries.values())
        return (other for key, other in entries if key < own)

    def key_of(self, task: TaskRecord) -> Key:
        """Tell where in the order a waiting task stands."""
        return self._entries[task][0]

    def rows(self) -> Iterable[Row]:
        """Rows with at least one waiting task."""
        return self._buckets.keys()

    def head_of(self, row: Row) -> TaskRecord:
        """Look at the first task of a row in `rows()`."""
        return self._buckets[row][0][1]

    def deadlines_of(self, row: Row) -> DeadlineOrder[TaskRecord]:
        """Look at the tasks of a row in `rows()` by deadline; kept up from then on."""
        if self._orders is None:
            self._orders = {}
        order = self._orders.get(row)
        if order is None:
            order = self._orders[row] = DeadlineOrder()
            waiting = [entry[1] for entry in self._buckets[row] if self._stays(entry)]
            for task in sorted(waiting, key=attrgetter("sequence")):
                order.add(task, task.sequence, task.submitted.deadline)
        return order

    def count_of(self, row: Row) -> int:
        """Bound the number of waiting tasks of a row from above (lazy deletion)."""
        return len(self._buckets.get(row, ()))

    def heads(self, skip: int = 0) -> Iterator[TaskRecord]:
        """Look at the first task of each row, leaving out the first `skip` tasks of all."""
        if skip <= 0:
            return iter([bucket[0][1] for bucket in self._buckets.values()])
        return iter(list(self._heads_after(skip)))

    def first(self, count: int) -> list[TaskRecord]:
        """Look at the first `count` tasks. O(rows + count log rows)."""
        if count == 1 and self._buckets:
            return [self._first()]
        return self._walk(list(self._buckets.values()), count)

    def _first(self) -> TaskRecord:
        if len(self._buckets) == 1:
            for bucket in self._buckets.values():
                return bucket[0][1]
        tops: map[Entry] = map(_top, self._buckets.values())
        return min(tops)[1]

    def _heads_after(self, skip: int) -> Iterator[TaskRecord]:
        left_out = set(self.first(skip))
        for bucket in self._buckets.values():
            if bucket[0][1] not in left_out:
                yield bucket[0][1]
                continue
            for task in self._walk([bucket], skip + 1):
                if task not in left_out:
                    yield task
                    break

    def _walk(self, heaps: list[list[Entry]], count: int) -> list[TaskRecord]:
        """Walk heaps in order, from their tops, without taking them apart."""
        found: list[TaskRecord] = []
        # The number tells apart entries of two stays of one task, which may be equal.
        frontier = [(heap[0], number, heap, 0) for number, heap in enumerate(heaps)]
        heapify(frontier)
        number = len(heaps)
        while frontier and len(found) < count:
            entry, _, heap, index = heappop(frontier)
            if self._stays(entry):
                found.append(entry[1])
            for child in range(2 * index + 1, min(2 * index + 3, len(heap))):
                number += 1
                heappush(frontier, (heap[child], number, heap, child))
        return found

    def _stays(self, entry: Entry) -> bool:
        """Whether an entry of a bucket was not removed."""
        return self._entries.get(entry[1]) is entry

    def _settle(self, row: Row) -> None:
        """Drop removed tasks from the top of a bucket; the bucket when it is empty."""
        bucket = self._buckets[row]
        while bucket and self._entries.get(bucket[0][1]) is not bucket[0]:
            heappop(bucket)
            self._stale[row] -= 1
        if not bucket:
            del self._buckets[row]
            del self._stale[row]
            if self._orders is not None:
                self._orders.pop(row, None)
        elif row in self._stale:
            share = _SHARES[len(self._stale) % len(_SHARES)]
            if self._stale[row] > len(bucket) // share + _SLACK:
                self._compact(row)

    def _compact(self, row: Row) -> None:
        """Make a bucket anew without the removed tasks."""
        stays = self._entries.get
        bucket = self._buckets[row]
        bucket[:] = [entry for entry in bucket if stays(entry[1]) is entry]
        heapify(bucket)
        del self._stale[row]
