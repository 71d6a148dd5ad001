"""The journal: what users may know of each task, kept on disk and told to watchers.

The scheduler knows states and places; the journal knows specifications, times,
segments and results. Called by the loop and the service.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from hetd.entry import Entry, decode, encode, ended_at
from hetd.store import Batch
from libtask.messages import ENDED, Segment, TaskChanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hetd.core.actions import Record
    from hetd.store import Store
    from libtask.messages import TaskSpec

RECENT = 10_000
"""Ended tasks kept in memory; older ones are read from the store."""
RECENT_BYTES = 64 << 20
"""Bytes of their pages at most: results may be large."""

BYTES_PER_BYTE, BYTES_PER_TASK = 4, 8192
"""Memory of a page for each byte that it has when encoded; and of the records, queues
and tables that go with a live task. Rather too much than too little."""


class Sizes:
    """Sizes of pages, and their sum."""

    def __init__(self) -> None:
        self.total = 0
        self._sizes: dict[int, int] = {}

    def put(self, task: int, size: int) -> None:
        self.total += size - self._sizes.get(task, 0)
        self._sizes[task] = size

    def drop(self, task: int) -> None:
        self.total -= self._sizes.pop(task, 0)


class Journal:
    """All tasks, as users know them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.live: dict[int, Entry] = {}
        self.live_of: dict[int, dict[int, Entry]] = {}
        """uid -> those of `live` that are that user's."""
        self.counts: Counter[str] = Counter()
        """State -> tasks in it; of the states in which tasks end: since the start."""
        self.migrations = 0
        """Of all tasks, since the start."""
        self._recent: OrderedDict[int, Entry] = OrderedDict()
        self._next = store.last_id() + 1
        self.batch = Batch()
        self._unsaved: dict[int, Entry] = {}
        self._refused: set[int] = set()
        self._live_bytes, self._ended_bytes = Sizes(), Sizes()
        self.changes: list[tuple[Entry, TaskChanged]] = []
        """What the watchers have not been told yet."""

    # ------------------------------------------------------------ finding

    def find(self, task: int) -> Entry | None:
        entry = self.live.get(task) or self._recent.get(task)
        if entry is None and 0 < task < self._next:
            entry = self._on_disk(task)
        return entry

    def certain(self, entries: list[Entry]) -> list[Entry]:
        """Return pages as they may be told; while the disk is full, as they are on it."""
        stuck = self._store.stuck
        doubtful = set(self._refused)
        if stuck is not None:
            doubtful |= self._unsaved.keys() | {row[0] for row in stuck.tasks}
        pages = (self._on_disk(e.id) if e.id in doubtful else e for e in entries)
        return [page for page in pages if page]

    def _on_disk(self, task: int) -> Entry | None:
        stored = self._store.task(task)
        return decode(stored) if stored is not None else None

    def newest_first(
        self, before: int | None, page: int, owner: int | None = None
    ) -> Iterator[Entry]:
        """Iterate over all tasks with smaller ids than `before`.

        Args:
            page: how many to read from the store at once.
            owner: whose; None: everybody's.

        """
        top = self._next if before is None else min(before, self._next)
        page = min(page, self._next)
        while entries := self._page(top, page, owner):
            yield from entries
            top = entries[-1].id

    def _page(self, top: int, limit: int, owner: int | None) -> list[Entry]:
        """Find the newest tasks with ids below `top`."""
        # live tasks stand in the order of their ids
        unended = self.live if owner is None else self.live_of.get(owner, {})
        live = islice((task for task in reversed(unended) if task < top), limit)
        recent = (
            task
            for task, entry in self._recent.items()
            if task < top and owner in (None, entry.owner)
        )
        stored = dict(self._store.ended(top, limit, owner))
        newest = heapq.nlargest(limit, {*live, *recent, *stored})
        return [
            self.live.get(task) or self._recent.get(task) or decode(stored[task])
            for task in newest
        ]

    def restore(self) -> list[Entry]:
        """Read the tasks that had not ended when the daemon stopped."""
        entries = [decode(stored) for stored in self._store.unended()]
        for entry in entries:
            entry.submitter = b""  # that connection is no more
            self.live[entry.id] = entry
            self.live_of.setdefault(entry.owner, {})[entry.id] = entry
        self.counts.update(entry.state for entry in entries)
        return entries

    def pages(self, entries: Iterable[Entry]) -> dict[int, bytes]:
        """Return pages as they would be written now."""
        return {entry.id: encode(entry) for entry in entries}

    def drop_unchanged(self, before: dict[int, bytes]) -> None:
        """Leave out what has not changed from being written; nobody watches yet."""
        for task, page in before.items():
            entry = self._unsaved.get(task)
            if entry is not None and encode(entry) == page:
                del self._unsaved[task]
            self._live_bytes.put(task, len(page))
        self.changes.clear()

    def settings(self) -> dict[tuple[str, str], bytes]:
        """Read what operators had set when the daemon stopped."""
        return self._store.settings()

    # ------------------------------------------------------------ writing

    def admit(self, spec: TaskSpec, owner: int, now: float, submitter: bytes) -> Entry:
        """Open a page for a new task."""
        entry = Entry(self._next, owner, spec, now, submitter=submitter)
        self._next += 1
        self.live[entry.id] = entry
        self.live_of.setdefault(owner, {})[entry.id] = entry
        self.counts[entry.state] += 1
        self.save(entry)
        return entry

    def next_id(self) -> int:
        return self._next

    def save(self, entry: Entry) -> None:
        """Write the page with the next commit."""
        if entry.id not in self._refused:
            self._unsaved[entry.id] = entry

    def record(self, record: Record, now: float, rule: str = "") -> None:
        """Take in a change of state; `rule`: the one that put it where it runs now."""
        entry = self.live[record.task]
        self.counts[entry.state] -= 1
        entry.state = record.state.value
        self.counts[entry.state] += 1
        entry.resource = record.resource
        entry.reason = record.reason or entry.reason
        if record.event in ("dispatched", "found"):
            self._start_segment(entry, record.resource or "", now, rule)
        elif entry.state in ENDED:
            self._end(entry, now)
        elif record.event == "retried":
            entry.fall_back()
        self.save(entry)
        self.tell(entry, record.event, now)

    def tell(self, entry: Entry, event: str, now: float) -> None:
        """Note a change for the watchers."""
        if entry.id in self._refused:
            return
        changed = TaskChanged(
            id=entry.id,
            state=entry.state,
            at=now,
            resource=entry.resource,
            progress=entry.progress,
            reason=entry.reason,
            result=entry.result,
            what=event,
            type=entry.spec.type,
        )
        self.changes.append((entry, changed))

    def forget(self, tasks: set[int]) -> None:
        """Leave nothing of tasks that were never written, but of those that still run."""
        self._refused |= tasks  # what still runs of them is neither written nor told of
        for task in tasks:
            self._unsaved.pop(task, None)
            self._recent.pop(task, None)
            self._ended_bytes.drop(task)
        self.changes[:] = [each for each in self.changes if each[0].id not in tasks]

    def note(self, at: float, what: str, resource: str | None, text: str) -> None:
        """Keep what happened to the node as a whole."""
        self.batch.notes.append((at, what, resource, text))

    def close_segment(self, entry: Entry, now: float, **known: Any) -> None:
        """End the open segment with what the worker reported of it."""
        if entry.segments and entry.segments[-1].finish is None:
            last = entry.segments[-1]
            entry.segments[-1] = msgspec.structs.replace(last, finish=now, **known)

    def open_segment(self, entry: Entry, **known: Any) -> None:
        """Complete the open segment with what the worker reports on the way."""
        if entry.segments and entry.segments[-1].finish is None:
            entry.segments[-1] = msgspec.structs.replace(entry.segments[-1], **known)

    def forget_oldest(self) -> None:
        """Keep the memory bounded; called once a turn, after the commit is under way."""
        while len(self._recent) > RECENT or self._ended_bytes.total > RECENT_BYTES:
            task, _ = self._recent.popitem(last=False)
            self._ended_bytes.drop(task)

    def bytes(self) -> int:
        """Estimate the memory that the pages take; any thread may ask."""
        pages = self._live_bytes.total + self._ended_bytes.total
        return BYTES_PER_BYTE * pages + BYTES_PER_TASK * len(self.live)

    @property
    def dirty(self) -> bool:
        """Whether there is anything to write or to tell."""
        return bool(self._unsaved or self.changes or self.batch)

    def take_batch(self) -> Batch:
        """Hand over what is to be written, and what to tell when it is durable.

        However often a task changed in a turn, its page is written once.
        """
        batch, self.batch = self.batch, Batch()
        for entry in self._unsaved.values():
            page, ended = encode(entry), ended_at(entry)
            batch.tasks.append((entry.id, ended, page, entry.owner))
            if ended:
                self._live_bytes.drop(entry.id)
            (self._ended_bytes if ended else self._live_bytes).put(entry.id, len(page))
        self._unsaved.clear()
        return batch

    def _start_segment(
        self, entry: Entry, resource: str, now: float, rule: str
    ) -> None:
        if entry.started is None:
            entry.started = now
        if entry.segments and entry.segments[-1].resource != resource:
            entry.migrations += 1
            self.migrations += 1
        self.close_segment(entry, now)
        entry.segments = [*entry.segments, Segment(resource, now, rule=rule)]

    def _end(self, entry: Entry, now: float) -> None:
        entry.finished = now
        entry.holder = None  # nobody asks any more; pages are kept for long
        entry.at_risk = 0.0
        self.close_segment(entry, now)
        del self.live[entry.id]
        del self.live_of[entry.owner][entry.id]
        self._recent[entry.id] = entry
