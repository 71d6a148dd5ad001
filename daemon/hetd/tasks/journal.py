"""The journal: pages of all tasks, stored on disk and published to subscribers.

The scheduler knows states and places; the journal knows specifications, times, segments and
results. The loop and the service call it.
"""

from __future__ import annotations

import heapq
import logging
from bisect import bisect_right
from collections import Counter, OrderedDict
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from hetd.store import Batch
from hetd.tasks.equal_specs import EqualSpecs
from hetd.tasks.inputs import InputResults
from hetd.tasks.page import (
    MOST_ORDERS,
    MOST_SEGMENTS,
    WHOLE_SEGMENTS,
    TaskPage,
    encode,
    ended_at,
    merged,
    recover,
    shortened,
)
from hetd.tasks.usage import StorageUsage
from hetsched.actions import Record
from hetsched.estimates.point import owner_of
from hetsched.ids import TaskId
from hetsched.tasks import State
from libtask.messages import ENDED, Segment, TaskChanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from hetd.store import Removed, Store
    from hetsched.estimates.table import EstimateTable
    from libtask.messages import Order, TaskSpec, TaskState

log = logging.getLogger("hetd")

Key = TypeVar("Key")

QUIET = frozenset({"submitted", "ordered"})
"""Changes of which only the state and the place are kept: nothing begins or ends by them."""
EPOCHS = 1 << 32
"""Epochs that one run of the daemon can give out; the next run's are all larger."""
COUNTED = 20_000
"""Rows of an index that one step counts: about 1 ms."""
RECENT = 10_000
"""Ended tasks kept in memory; older ones are read from the store."""
RECENT_BYTES = 64 << 20
"""Bytes of their pages at most: results may be large."""

TOLD: dict[State, TaskState] = {state: state.value for state in State}
"""States as messages give them; `value` of an enum takes two calls."""
UNSUCCESSFUL = ENDED - {State.COMPLETED}
BYTES_PER_BYTE, BYTES_PER_TASK = 4, 8192
"""Memory of a page for each byte that it has when encoded; and of the records, queues
and tables that go with a live task. Rather too much than too little."""


class PageSizes:
    """Sizes of encoded pages, and their sum, bytes."""

    def __init__(self) -> None:
        self.total = 0
        self._sizes: dict[int, int] = {}

    def put(self, task: int, size: int) -> int:
        """Set the size of a page; return the one before."""
        before = self._sizes.get(task, 0)
        self.total += size - before
        self._sizes[task] = size
        return before

    def of(self, task: int) -> int:
        return self._sizes.get(task, 0)

    def drop(self, task: int) -> int:
        """Forget a page; return its size."""
        before = self._sizes.pop(task, 0)
        self.total -= before
        return before


class StateCounts(Counter[State]):
    """State -> tasks in it; of the states in which tasks end: since the start."""

    def __init__(self) -> None:
        super().__init__()
        self._of: dict[int, State] = {}

    def put(self, task: int, state: State) -> None:
        """Count a task in a state, and not any more in the one before."""
        before = self._of.get(task)
        if before is state:
            return
        if before is not None:
            self[before] -= 1
        if state not in ENDED:
            self._of[task] = state
        elif before is not None:
            del self._of[task]
        self[state] += 1


class TaskGroups(dict[Key, dict[int, "TaskPage"]]):
    """Tasks by what they have in common; groups without tasks are left out."""

    def join(self, key: Key, page: TaskPage) -> None:
        self.setdefault(key, {})[page.id] = page

    def leave(self, key: Key, page: TaskPage) -> None:
        tasks = self[key]
        del tasks[page.id]
        if not tasks:
            del self[key]


class Journal:
    """All tasks, as users know them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.live: dict[int, TaskPage] = {}
        self.live_of: dict[int, dict[int, TaskPage]] = {}
        """uid -> those of `live` that are that user's."""
        self.attachments: Counter[tuple[int, str]] = Counter()
        """(uid, name of an attachment) -> how many of `live` need it."""
        self.inputs = InputResults()
        """Results that those of `live` take."""
        self.leased, self.called = TaskGroups[tuple[int, str]](), TaskGroups[int]()
        """Those of `live` by (uid, lease), and by the task with whose run they end."""
        self.counts, self.migrations = StateCounts(), 0
        """Migrations of all tasks, since the start."""
        self._recent: OrderedDict[int, TaskPage] = OrderedDict()
        self._next, self.batch = store.last_id() + 1, Batch()
        self._unsaved: dict[int, TaskPage] = {}
        self._refused: set[int] = set()
        self._going: set[int] = set()
        """Tasks that are removed with the next commit, or the one under way."""
        self._begun: set[int] = set()
        """Tasks whose segment was opened before the scheduler recorded their start."""
        self._live_bytes, self._ended_bytes = PageSizes(), PageSizes()
        self.usage = StorageUsage(store.usage())
        self.measurers = store.measurers()
        """Task type -> users whose tasks of it were measured: they see the measurements."""
        self.bytes_read = 0
        """Bytes of pages read from disk since the start: the cost of a step."""
        self.changes: list[tuple[TaskPage, TaskChanged]] = []
        """Changes that are not published yet."""
        self.watched = True
        """Whether there are subscriptions; otherwise only ends are published, to submitters."""

    @property
    def first_epoch(self) -> int:
        """Return a number larger than every epoch of earlier runs of the daemon."""
        return self._store.incarnation * EPOCHS

    # ------------------------------------------------------------ finding

    def find(self, task: int) -> TaskPage | None:
        if task in self._going:
            return None
        page = self.live.get(task) or self._recent.get(task)
        if page is None and 0 < task < self._next:
            page = self._on_disk(task)
        return page

    def doubtful(self) -> AbstractSet[int]:
        """Return the tasks whose pages may not be told as they are: the disk is full."""
        stuck = self._store.stuck
        if stuck is None:
            return self._refused
        return self._refused | self._unsaved.keys() | {row[0] for row in stuck.tasks}

    def certain(self, page: TaskPage, doubtful: AbstractSet[int]) -> TaskPage | None:
        """Return a page as it may be told: as it is on disk, where it is doubtful."""
        return self._on_disk(page.id) if page.id in doubtful else page

    def owner_of(self, task: int) -> int | None:
        """Tell whose a task is, without reading its page; None: there is no such task."""
        if task in self._going:
            return None
        page = self.live.get(task) or self._recent.get(task)
        if page is not None:
            return page.owner
        return self._store.owner(task) if 0 < task < self._next else None

    def page_bytes(self, task: int) -> int:
        """Return the size of a task's page when it was last written."""
        if task in self.live:
            return self._live_bytes.of(task)
        return self._store.page_bytes(task)

    def _on_disk(self, task: int) -> TaskPage | None:
        stored = self._store.task(task)
        return self._decoded(stored) if stored is not None else None

    def _decoded(self, encoded: bytes) -> TaskPage:
        self.bytes_read += len(encoded)
        return recover(encoded)  # one invalid field must not end every listing

    def newest(
        self,
        before: int | None,
        most: int,
        owner: int | None = None,
        *,
        marked: bool = False,
        unfinished: bool = True,
    ) -> Iterator[TaskPage]:
        """Iterate over the newest tasks with smaller ids than `before`.

        Each is read when it is asked for, as pages may be large.

        Args:
            before: None: from the newest on.
            most: how many at most.
            owner: whose; None: everybody's.
            marked: of the stored tasks, only the marked ones (`Batch.marked`).
            unfinished: whether unfinished tasks are among them.

        """
        top = self._next if before is None else min(before, self._next)
        # live tasks stand in the order of their ids
        live_ones = self.live if owner is None else self.live_of.get(owner, {})
        waiting = reversed(live_ones) if unfinished else iter(())
        live = islice((task for task in waiting if task < top), most)
        recent = (
            task
            for task, page in self._recent.items()
            if task < top and owner in (None, page.owner) and task not in self._going
        )
        known = sorted({*live, *heapq.nlargest(most, recent)}, reverse=True)
        # else the store would look through all unfinished tasks for an ended one
        after = known[most - 1] if len(known) >= most else 0
        ended = self._store.ended(top, most, owner, after=after, marked=marked)
        with closing(ended) as stored:
            yield from islice(self._merged(known, stored), most)

    def _merged(
        self, known: list[int], stored: Iterator[tuple[int, bytes]]
    ) -> Iterator[TaskPage]:
        """Merge tasks in memory and on disk, newest first; what is in both comes once."""
        waiting = iter(known)
        task = next(waiting, 0)
        for number, encoded in stored:
            while task > number:
                page = self._in_memory(task)
                if page is not None:
                    yield page
                task = next(waiting, 0)
            if task == number:
                task = next(waiting, 0)
            found = self.live.get(number) or self._recent.get(number)
            if number not in self._going:
                yield found or self._decoded(encoded)
        while task:
            page = self._in_memory(task)
            if page is not None:
                yield page
            task = next(waiting, 0)

    def _in_memory(self, task: int) -> TaskPage | None:
        found = self.live.get(task) or self._recent.get(task)
        return None if task in self._going else found

    def ended_since(self, at: float, most: int) -> list[int] | None:
        """List the tasks that ended at a time or later; None if there are more than `most`.

        Args:
            at: seconds since the epoch.
            most: how many at most.

        """
        stored = self._store.ended_since(int(at), most + 1)
        if len(stored) > most:
            return None
        recent = [
            task for task, page in self._recent.items() if (page.finished or at) >= at
        ]
        return sorted({*stored, *recent}, reverse=True)

    def newest_of(
        self, before: int | None, most: int, owner: int | None, ended: Sequence[int]
    ) -> list[int]:
        """List the newest of the unfinished tasks and of some ended ones.

        Args:
            before: with smaller ids than this; None: from the newest on.
            most: how many at most.
            owner: owner of the unfinished tasks; None: any.
            ended: the ended tasks, newest first.

        """
        top = self._next if before is None else before
        unended = self.live if owner is None else self.live_of.get(owner, {})
        live = islice((task for task in reversed(unended) if task < top), most)
        first = bisect_right(ended, -top, key=lambda task: -task)
        return sorted({*live, *ended[first : first + most]}, reverse=True)[:most]

    def count_ended(
        self, owner: int, before: int | None, since: int = 0
    ) -> Iterator[int]:
        """Count a user's ended tasks as of the last commit, in steps.

        Args:
            owner: whose.
            before: only smaller ids than this; None: all.
            since: only tasks that ended at this time or later, seconds since the epoch.

        """
        after, top = 0, self._next if before is None else before
        while True:
            count, after = self._store.count_ended(owner, after, top, since, COUNTED)
            if not after:
                return
            yield count

    def restore(self, now: float) -> list[TaskPage]:
        """Read the tasks that had not ended when the daemon stopped.

        A task of which a stored field is invalid ends as failed.

        Args:
            now: seconds since the epoch.

        """
        pages = []
        equal = EqualSpecs()
        for encoded in self._store.unfinished():
            page = recover(encoded)
            page.spec = equal.shared(page.spec)
            self._live_bytes.put(page.id, len(encoded))
            self.usage.unfinished[page.owner] += len(encoded)
            if page.state.ended:
                self._fail_unreadable(page, now)
                continue
            pages.append(page)
            page.submitter = b""  # that connection was closed
            self.live[page.id] = page
            self.counts.put(page.id, page.shown_state)
            self.live_of.setdefault(page.owner, {})[page.id] = page
            self._join_groups(page)
            if names := page.spec.attachments:
                self.attachments.update((page.owner, name) for name in names)
            if page.spec.inputs:
                self.inputs.need(page.spec)
        self._restore_inputs()
        return pages

    def _fail_unreadable(self, page: TaskPage, now: float) -> None:
        """Store the end of a task of which a stored field is invalid."""
        log.error("task %d has failed: %s", page.id, page.reason)
        page.finished = now
        self._recent[page.id] = page
        self.counts.put(page.id, page.state)
        self.save(page)

    def _restore_inputs(self) -> None:
        """Read the results of tasks that completed before the daemon stopped."""
        for task in self.inputs.missing():
            page = None if task in self.live else self.find(task)
            if page is not None and page.state == "completed":
                self.inputs.complete(page)

    def encoded_pages(self, pages: Iterable[TaskPage]) -> dict[int, bytes]:
        """Return pages as they would be written now."""
        return {page.id: encode(page) for page in pages}

    def drop_unchanged(self, before: dict[int, bytes]) -> None:
        """Leave out what has not changed from being written; nobody watches yet."""
        for task, encoded in before.items():
            page = self._unsaved.get(task)
            if page is not None and encode(page) == encoded:
                del self._unsaved[task]
        self.changes.clear()

    def settings(self) -> dict[tuple[str, str], bytes]:
        """Read what operators had set, and the cost profiles, when the daemon stopped."""
        return self._store.settings()

    def circuits(self) -> dict[tuple[int, str, str], bytes]:
        """Read which applications were to avoid which resources."""
        return self._store.circuits()

    # ------------------------------------------------------------ writing

    def admit(
        self,
        spec: TaskSpec,
        owner: int,
        now: float,
        submitter: bytes,
        submission: int = 0,
    ) -> TaskPage:
        """Open a page for a new task."""
        task = self._next
        page = TaskPage(
            task, owner, spec, now, submitter=submitter, submission=submission
        )
        self._next += 1
        self.live[task] = page
        self.live_of.setdefault(owner, {})[task] = page
        if spec.lease_s or spec.caller is not None:
            self._join_groups(page)
        for name in spec.attachments:
            self.attachments[owner, name] += 1
        if spec.inputs:
            self.inputs.need(spec)
        self.counts.put(task, page.runtime.state)
        self._unsaved[task] = page
        return page

    def next_id(self) -> int:
        return self._next

    def may_change(self, task: int) -> bool:
        """Whether a task has not ended, perhaps because it is not submitted yet."""
        return task in self.live or task >= self._next

    def _join_groups(self, page: TaskPage) -> None:
        if page.spec.lease_s:
            self.leased.join((page.owner, page.spec.lease), page)
        if page.spec.caller is not None:
            self.called.join(page.spec.caller.task, page)

    def leave_lease(self, page: TaskPage) -> None:
        """Take an unfinished task out of its lease, if it has one."""
        if page.spec.lease_s:
            self.leased.leave((page.owner, page.spec.lease), page)
            page.spec = msgspec.structs.replace(page.spec, lease="", lease_s=0.0)
            self.save(page)

    def record_order(self, page: TaskPage, order: Order) -> None:
        """Record and publish a user's command for a task."""
        page.orders = (*page.orders, order)[-MOST_ORDERS:]
        self.save(page)
        self.publish(page, order.what, order.at, order)

    def remove(self, task: int) -> None:
        """Remove an ended task with the next commit; it is not found from now on."""
        self._going.add(task)
        self.batch.removed.append(task)

    def save(self, page: TaskPage) -> None:
        """Write the page with the next commit."""
        if page.id not in self._refused:
            self._unsaved[page.id] = page

    def record(self, record: Record, now: float, rule: str = "") -> None:
        """Take in a change of state; `rule`: the one that put it where it runs now."""
        page = self.live[record.task]
        self.counts.put(page.id, _shown(record))
        if record.reason:
            page.reason = record.reason
        if page.id not in self._refused:
            self._unsaved[page.id] = page
        if record.event not in QUIET:
            self._change_history(page, record, max(now, _latest(page)), rule)
        if self.watched or (page.submitter and record.state in ENDED):
            self._publish(page, record, max(now, _latest(page)))

    def _change_history(
        self, page: TaskPage, record: Record, now: float, rule: str
    ) -> None:
        """Begin a segment, end the task, or take it back to its snapshot."""
        if record.event in ("dispatched", "found"):
            if page.id in self._begun:
                self._begun.remove(page.id)
            else:
                self._start_segment(page, record.resource or "", now, rule)
        elif record.state in ENDED:
            self._end(page, now)
        elif record.event == "retried":
            _explain_loss(page, record.reason or "")
            page.fall_back()

    def publish(
        self, page: TaskPage, event: str, now: float, order: Order | None = None
    ) -> None:
        """Note what happened to a task, or an order, for the watchers."""
        if self.watched:
            record = Record(TaskId(page.id), page.shown_state, event, page.resource)
            self._publish(page, record, now, order)

    def _publish(
        self, page: TaskPage, record: Record, now: float, order: Order | None = None
    ) -> None:
        """Note a change for those who hear of it.

        State and resource are those of the record: the task may have changed again since,
        unless it has ended.
        """
        if page.id in self._refused:
            return
        failed = record.state is State.FAILED
        changed = TaskChanged(
            id=page.id,
            state=TOLD[_shown(record)],
            at=now,
            resource=page.resource if record.state in ENDED else record.resource,
            progress=page.progress,
            reason=page.reason if order is None else order.text or None,
            result=page.result,
            what=record.event,
            type=page.spec.type,
            last_output=page.last_output if failed else None,
            trace=page.trace if failed else "",
            by="" if order is None else f"uid:{order.by}",
            name=page.spec.name,
        )
        self.changes.append((page, changed))

    def forget(self, tasks: set[int]) -> None:
        """Leave nothing of tasks that were never written, but of those that still run."""
        self._refused |= tasks  # what still runs of them is neither written nor told of
        for task in tasks:
            self._unsaved.pop(task, None)
            page = self._recent.pop(task, None) or self.live.get(task)
            if page is not None:
                self._count(page, 0)
        self.changes[:] = [each for each in self.changes if each[0].id not in tasks]

    def record_note(
        self, at: float, what: str, resource: str | None, text: str
    ) -> None:
        """Keep what happened to the node as a whole."""
        self.batch.notes.append((at, what, resource, text))

    def measured(self, task_type: str, owner: int) -> None:
        """Take note whose task of a type was measured, unless its name tells."""
        if owner_of(task_type) is not None:
            return
        owners = self.measurers.setdefault(task_type, set())
        if owner not in owners:
            owners.add(owner)
            self.batch.measurers.add((task_type, owner))

    def forget_samples(self, estimates: EstimateTable) -> None:
        """Remove execution times that the estimates have dropped from the store."""
        for key in estimates.dropped():
            self.batch.forget(key)
            if not estimates.has_type(key[0]):
                self.measurers.pop(key[0], None)

    def close_segment(self, page: TaskPage, now: float, **known: Any) -> None:
        """End the open segment with what the worker reported of it."""
        if page.segments and page.segments[-1].finish is None:
            last = page.segments[-1]
            finish = max(now, last.start)
            if known.get("computed") is not None:
                known["computed"] = min(max(known["computed"], last.start), finish)
            last = msgspec.structs.replace(last, finish=finish, **known)
            self._complete_last(page, last)

    def begin_segment(self, page: TaskPage, now: float, rule: str) -> None:
        """Open the segment of a task that started behind others and has ended by now."""
        # it has ended: `page.resource` is that of its segments
        resource = page.runtime.resource or ""
        self._start_segment(page, resource, max(now, _latest(page)), rule)
        self._begun.add(page.id)

    def end_by_error(self, page: TaskPage, reason: str | None, now: float) -> None:
        """End the open segment of a task that failed, or lost its worker.

        To be called before `record`, and before the energy of the segment is charged.
        """
        self.close_segment(page, now, error=reason or "it failed")

    def open_segment(self, page: TaskPage, **known: Any) -> None:
        """Complete the open segment with what the worker reports on the way."""
        if page.segments and page.segments[-1].finish is None:
            last = page.segments[-1]
            if known.get("computing") is not None:
                known["computing"] = max(known["computing"], last.start)
            self._complete_last(page, msgspec.structs.replace(last, **known))

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
        """Hand over the pages to write, and the messages to publish when they are durable.

        A task that changed several times in a turn is written once.
        """
        batch, self.batch = self.batch, Batch()
        for task, page in self._unsaved.items():
            encoded = encode(page)
            batch.tasks.append((task, ended_at(page), encoded, page.owner))
            if page.spec.name or page.spec.job or page.runtime.state in UNSUCCESSFUL:
                batch.marked.add(task)
            batch.grown[task] = self._count(page, len(encoded))
        self._unsaved.clear()
        return batch

    def drop_tasks(self) -> None:
        """Leave out what tasks and requests have changed since the last commit."""
        kept = self.batch
        self.batch = Batch(settings=kept.settings, notes=kept.notes)
        self._unsaved.clear()

    def _count(self, page: TaskPage, size: int) -> int:
        """Record the new size of a page; return its growth in bytes."""
        task, owner, usage = page.id, page.owner, self.usage
        if page.runtime.state not in ENDED:
            grown = size - self._live_bytes.put(task, size)
            usage.unfinished[owner] += grown
        else:
            unfinished = self._live_bytes.drop(task)
            usage.unfinished[owner] -= unfinished
            before = self._ended_bytes.put(task, size)
            if not size:
                self._ended_bytes.drop(task)
            grown = size - unfinished - before
        usage.pages[owner] += grown
        return grown

    def apply_removals(self, removed: Removed) -> None:
        """Forget what the store has removed of the past."""
        self.usage.subtract(removed)
        self._going.difference_update(removed.ids)
        for task in removed.ids:
            if self._recent.pop(task, None) is not None:
                self._ended_bytes.drop(task)

    def _start_segment(
        self, page: TaskPage, resource: str, now: float, rule: str
    ) -> None:
        if page.started is None:
            page.started = now
        if page.segments:
            self.close_segment(page, now)
        before = page.segments
        if len(before) >= WHOLE_SEGMENTS:
            place = len(before) - WHOLE_SEGMENTS
            older = shortened(before[place])
            before = (*before[:place], older, *before[place + 1 :])
        if len(before) >= MOST_SEGMENTS:
            before = (merged(*before[:2]), *before[2:])
        page.segments = (*before, Segment(resource, now, rule=rule))

    def _complete_last(self, page: TaskPage, known: Segment) -> None:
        """Complete the last segment; count the migration that it is, once that is known."""
        others = len(page.segments) > 1
        if others and known.proven and not page.segments[-1].proven:
            earlier = (each for each in reversed(page.segments[:-1]) if each.proven)
            before = next(earlier, known)
            if before.resource != known.resource:
                page.migrations += 1
                self.migrations += 1
        page.replace_last(known)

    def _end(self, page: TaskPage, now: float) -> None:
        page.finished = now
        page.holder = None  # nobody asks any more; pages are kept for long
        page.runtime = page.runtime.durable()  # without the scheduler's live record
        page.at_risk = 0.0
        self.close_segment(page, now)
        task, owner, spec = page.id, page.owner, page.spec
        del self.live[task]
        del self.live_of[owner][task]
        if spec.lease_s:
            self.leased.leave((owner, spec.lease), page)
        if spec.caller is not None:
            self.called.leave(spec.caller.task, page)
        for name in spec.attachments:
            self.attachments[owner, name] -= 1
            if not self.attachments[owner, name]:
                del self.attachments[owner, name]
        if spec.inputs:
            self.inputs.release(spec)
        if page.runtime.state is not State.COMPLETED:
            page.result = None  # that of a task which was cancelled in its last strip
        else:
            page.reason = None  # why it was run again, perhaps: that is over
            if task in self.inputs.needed:
                self.inputs.complete(page)
        self._recent[task] = page


def _explain_loss(page: TaskPage, reason: str) -> None:
    """Store in its last segment why a task runs again: this outlives a good end."""
    if page.segments and not page.segments[-1].stop_rule:
        last = msgspec.structs.replace(page.segments[-1], stop_rule=reason)
        page.replace_last(last)


def _latest(page: TaskPage) -> float:
    """Return the latest time in a page: later changes get at least this time.

    The time of day may be put back while a task waits or runs.
    """
    last = page.segments[-1] if page.segments else None
    if last is None:
        return page.submitted
    return last.start if last.finish is None else last.finish


def _shown(record: Record) -> State:
    """Return the state of a record for users, as `TaskPage.shown_state`."""
    return State.QUEUED if record.event == "ordered" else record.state
