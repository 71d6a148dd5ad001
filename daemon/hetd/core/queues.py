"""Run queues: the ordered waiting tasks of one resource, bucketed by row.

Tasks of one row are alike to a policy, so it only ever looks at the first of each:
a look costs O(rows) however many tasks wait. Buckets are heaps; a removed task stays
in its heap until it comes to the top (lazy deletion).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hetd.core.tasks import Row, TaskRecord

Key: TypeAlias = tuple[int, float, int]
"""(-priority, rank, order of arrival): the smallest goes first."""


class RunQueue:
    """The waiting tasks of one resource, in order of priority, rank and arrival."""

    def __init__(self) -> None:
        self._keys: dict[TaskRecord, Key] = {}
        self._buckets: dict[Row, list[tuple[Key, TaskRecord]]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, task: TaskRecord) -> bool:
        return task in self._keys

    def __iter__(self) -> Iterator[TaskRecord]:
        """Iterate in order; O(n log n), for checks and listings only."""
        return iter(sorted(self._keys, key=self._keys.__getitem__))

    def push(self, task: TaskRecord, rank: float = 0.0) -> None:
        key = (-task.priority, rank, task.sequence)
        self._keys[task] = key
        heapq.heappush(self._buckets.setdefault(task.row, []), (key, task))

    def remove(self, task: TaskRecord) -> None:
        del self._keys[task]
        self._settle(task.row)

    def pop(self) -> TaskRecord | None:
        """Take the first task out."""
        task = self.head()
        if task is not None:
            self.remove(task)
        return task

    def head(self) -> TaskRecord | None:
        """Look at the first task. O(rows)."""
        if not self._buckets:
            return None
        return min(bucket[0] for bucket in self._buckets.values())[1]

    def rows(self) -> Iterable[Row]:
        """Rows with at least one waiting task."""
        return self._buckets.keys()

    def head_of(self, row: Row) -> TaskRecord:
        """Look at the first task of a row in `rows()`."""
        return self._buckets[row][0][1]

    def count_of(self, row: Row) -> int:
        """Bound the number of waiting tasks of a row from above (lazy deletion)."""
        return len(self._buckets.get(row, ()))

    def heads(self, skip: int = 0) -> Iterator[TaskRecord]:
        """Look at the first task of each row, leaving out the first `skip` tasks of all."""
        left_out = self.first(skip) if skip > 0 else []
        for bucket in self._buckets.values():
            for task in self._first_of(bucket, skip + 1):
                if task not in left_out:
                    yield task
                    break

    def first(self, count: int) -> list[TaskRecord]:
        """Look at the first `count` tasks. O(rows + count log count)."""
        found: list[TaskRecord] = []
        for bucket in self._buckets.values():
            found.extend(self._first_of(bucket, count))
        return sorted(found, key=self._keys.__getitem__)[:count]

    def _first_of(
        self, bucket: list[tuple[Key, TaskRecord]], count: int
    ) -> list[TaskRecord]:
        """Walk a heap in order, from its top, without taking it apart."""
        if count == 1:
            return [bucket[0][1]]
        found: list[TaskRecord] = []
        frontier = [(bucket[0], 0)]
        while frontier and len(found) < count:
            (key, task), index = heapq.heappop(frontier)
            if self._keys.get(task) == key and task not in found:
                found.append(task)
            for child in (2 * index + 1, 2 * index + 2):
                if child < len(bucket):
                    heapq.heappush(frontier, (bucket[child], child))
        return found

    def _settle(self, row: Row) -> None:
        """Drop removed tasks from the top of a bucket, and the bucket when empty."""
        bucket = self._buckets[row]
        while bucket and self._keys.get(bucket[0][1]) != bucket[0][0]:
            heapq.heappop(bucket)
        if not bucket:
            del self._buckets[row]
