"""What users ask of tasks that are there: list, explain, cancel, hold, move."""

from __future__ import annotations

import signal
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from hetd.core import events as e
from hetd.core.events import TaskId
from hetd.core.tasks import State
from hetd.planning.explain import RESOURCE_LOST, explain
from hetd.service.pages import Page
from hetd.service.resources import policy_name, resource_named
from hetd.service.slices import LOOKS, Reading, slices, slices_of_pages
from hetd.service.submission import refuse_deadline, refuse_priority
from libtask import messages as m
from libtask.errors import InputError
from libtask.faultpoints import reach

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from hetd.core.tasks import Row, TaskRecord
    from hetd.entry import Entry
    from hetd.node import Node
    from hetd.planning.explain import Prospect
    from hetd.service.permissions import Permissions
    from hetd.service.slices import Work
    from hetd.transport.router import Peer

COUNTED = 10_000
"""Waiting tasks that one step of an explanation counts: some 2 ms."""

Expected = dict[Any, dict[str, tuple[float, float]]]
"""What tasks are expected to take; asked once for tasks that are alike."""


class TaskDesk:
    """Answers what users ask of their tasks."""

    def __init__(self, node: Node, rights: Permissions) -> None:
        self._node = node
        self._rights = rights

    # ------------------------------------------------------------ list

    def list_tasks(self, peer: Peer, request: m.ListTasks) -> Work:
        if not 0 < request.limit <= m.MOST_IDS:
            text = f"limit: expected 1 to {m.MOST_IDS}, got {request.limit}"
            raise InputError(text)
        journal = self._node.journal
        page: Page[m.TaskInfo] = Page(request.limit)
        expected: Expected = {}
        following: int | None = None
        doubtful = journal.doubtful()
        for entry in self._candidates(peer, request):
            if entry is None:
                yield
                doubtful = journal.doubtful()
                continue
            told = journal.certain(entry, doubtful)
            if told is None:
                continue
            info = self._described(told, expected, detail=request.detail)
            if not page.take(info):
                following = page.parts[-1].id
                break
        return m.TaskList(request.request, page.parts, len(journal.live), following)

    def _candidates(self, peer: Peer, request: m.ListTasks) -> Iterator[Entry | None]:
        """Find the tasks to list, newest first; None: others may be served now."""
        if request.ids is None:
            owner = self._rights.whose(peer, mine=request.mine)
            yield from self._newest(request.before, owner)
            return
        before = request.before
        ids = {task for task in request.ids if before is None or task < before}
        reading = Reading(self._node.journal)
        for task in sorted(ids, reverse=True):
            yield self._rights.own(peer, task)
            if reading.is_enough():
                yield None

    def _newest(self, before: int | None, owner: int | None) -> Iterator[Entry | None]:
        reading = Reading(self._node.journal)
        there_is_more = True
        while there_is_more:
            there_is_more = False
            for entry in self._node.journal.newest(before, LOOKS, owner):
                before = entry.id
                yield entry
                there_is_more = reading.is_enough()
                if there_is_more:  # what is read from the store must not stay open
                    break
            if there_is_more:
                yield None

    def _described(
        self, entry: Entry, expected: Expected, *, detail: bool
    ) -> m.TaskInfo:
        """Describe a task; in full, with what it is expected to take."""
        info = entry.info(detail=detail)
        if not detail:
            return info
        spec = entry.spec
        alike = (spec.type, spec.app, spec.work, *spec.kinds, *spec.resources)
        if alike not in expected:
            expected[alike] = self._node.expected(spec)
        known = expected[alike]
        return msgspec.structs.replace(
            info,
            expected={name: seconds for name, (seconds, _) in known.items()},
            spread={name: spread for name, (_, spread) in known.items()},
        )

    # ------------------------------------------------------------ explain

    def explain(self, peer: Peer, request: m.Explain) -> Work:
        entry = self._rights.own(peer, request.id)
        before = yield from self._count_before(TaskId(entry.id))
        system = self._node.scheduler.system
        record = system.tasks.get(TaskId(entry.id))
        if record is None:
            passive = "been " if entry.state in ("cancelled", "dropped") else ""
            because = f": {entry.reason}" if entry.reason else ""
            why = f"has {passive}{entry.state}{because}"
            return m.Explained(
                request.request, entry.id, entry.state, why, resource=entry.resource
            )
        found = explain(system, record, before)
        return m.Explained(
            request.request,
            entry.id,
            entry.state,
            found.why + self._lack_of_worker(record),
            policy_name(self._node),
            found.rule,
            system.objective,
            record.resource,
            [self._prospect(record, each) for each in found.prospects],
        )

    def _count_before(self, task: TaskId) -> Generator[None, None, Counter[Row]]:
        """Count the tasks that wait before one in its queue, by row."""
        found: Counter[Row] = Counter()
        system = self._node.scheduler.system
        record = system.tasks.get(task)
        if record is None or record.resource is None or not record.state.placeable:
            return found
        queue = system.queue(record.resource)
        for some in slices(queue.ahead_of(record), COUNTED):
            if found:
                yield
            found.update(other.row for other in some)
        return found

    def _lack_of_worker(self, record: TaskRecord) -> str:
        """Say that a task lacks but a worker, and why that may take long."""
        pool, system = self._node.pool, self._node.scheduler.system
        owner = record.submitted.owner
        kept_out = owner in system.unattended and record in system.outside.get(
            owner, ()
        )
        runs = record.state is State.RUNNING and pool.worker_of(record.id) is None
        if not (kept_out or runs):
            return ""
        crew, waits = pool.crew(owner), ", and waits for a worker"
        if crew.launcher is None:
            return f"{waits}: its owner's launcher is not there; a submit starts it"
        if crew.hung:
            pid = crew.hung_launcher
            return f"{waits}: its owner's launcher, process {pid}, hangs; a submit replaces it"
        return waits

    def _prospect(self, record: TaskRecord, each: Prospect) -> m.Prospect:
        resource = self._node.scheduler.system.resources[each.resource]
        possible = not each.note
        return m.Prospect(
            each.resource,
            each.affinity,
            each.remaining if possible else None,
            each.spread if possible else None,
            each.ahead,
            each.wait if possible else None,
            each.moving,
            each.finish if possible else None,
            self._node.estimates.confidence(record.row, resource) if possible else None,
            self._note(each),
        )

    def _note(self, each: Prospect) -> str:
        """Say why a task cannot run there; of a lost resource also why it is lost."""
        reason = self._node.discipline.health.reason(each.resource)
        lost = each.note == RESOURCE_LOST and reason
        return f"{each.note}: {reason}" if lost else each.note

    # ------------------------------------------------------------ change

    def control(self, peer: Peer, request: m.Control) -> Work:
        _refuse_odd(request)
        ids = yield from self._own_ids(peer, request.ids)
        live = [task for task in ids if task in self._node.journal.live]
        for number, some in enumerate(slices_of_pages(self._node.journal, live)):
            if number:
                yield
            reach("control.before")
            self._control(request, some)
            reach("control.done")
        return m.Done(request.request, live)

    def _control(self, request: m.Control, tasks: Sequence[int]) -> None:
        # those before them may have been cancelled meanwhile, and they with them
        live = [TaskId(task) for task in tasks if task in self._node.journal.live]
        if request.verb == "snapshot":
            for task in live:
                self._node.orders.want_snapshot(task)
            return
        if request.verb == "signal":
            for task in live:
                self._node.orders.pass_signal(task, request.signal)
            return
        event: Callable[[TaskId], e.Event] = _EVENTS[request.verb]
        if request.requeue:
            event = partial(e.TaskHeld, requeue=True)
        self._node.happen(*map(event, live))
        for task in live:
            self._node.keep(task)

    def amend(self, peer: Peer, request: m.Amend) -> Work:
        refuse_deadline(request.deadline_s)
        if request.priority is not None:
            self._demand_priority(peer, request.priority)
        ids = yield from self._own_ids(peer, request.ids)
        live = [task for task in ids if task in self._node.journal.live]
        for number, some in enumerate(slices_of_pages(self._node.journal, live)):
            if number:
                yield
            self._amend(some, request)
        return m.Done(request.request, live)

    def _amend(self, tasks: Sequence[int], request: m.Amend) -> None:
        live = self._node.journal.live
        entries = [live[task] for task in tasks if task in live]
        for entry in entries:
            entry.spec = self._amended(entry, request)
        self._node.amend_all(entries)

    def _amended(self, entry: Entry, request: m.Amend) -> m.TaskSpec:
        """Return the description of a task as its user wants it from now on."""
        wanted: dict[str, Any] = {}
        if request.priority is not None:
            wanted["priority"] = request.priority
        if request.no_deadline:
            wanted["deadline_s"] = None
        elif request.deadline_s is not None:
            passed = self._node.clock.wall() - entry.submitted
            wanted["deadline_s"] = passed + request.deadline_s
        return msgspec.structs.replace(entry.spec, **wanted)

    def _own_ids(
        self, peer: Peer, ids: Sequence[int]
    ) -> Generator[None, None, list[int]]:
        """Return the tasks that a request names, each once; refuse those of others."""
        once = list(dict.fromkeys(ids))
        for number, some in enumerate(slices(once, LOOKS)):
            if number:
                yield
            for task in some:
                self._rights.demand_own(peer, task)
        return once

    def _demand_priority(self, peer: Peer, priority: int) -> None:
        if not self._rights.may_rule(peer.uid):
            refuse_priority(priority, self._node.limits.priority.of(peer.uid))

    def migrate(self, peer: Peer, request: m.Migrate) -> m.Message:
        entry = self._rights.own(peer, request.id)
        device = resource_named(self._node, request.resource)
        if request.id not in self._node.journal.live:
            raise InputError(f"task {request.id} is {entry.state}; it cannot be moved")
        if device.spec.kind not in entry.spec.kinds:
            raise InputError(
                f"task {request.id} cannot run on {request.resource}: {entry.spec.app} "
                f"has implementations for {', '.join(entry.spec.kinds)}"
            )
        _demand_movable(entry)
        reach("migrate.before")
        self._node.happen(e.TaskMoved(TaskId(request.id), request.resource))
        self._node.keep(TaskId(request.id))
        reach("migrate.done")
        return m.Done(request.request, [request.id])


def _demand_movable(entry: Entry) -> None:
    """Refuse to move what runs and cannot save its state."""
    if entry.state == "running" and not entry.spec.preemptible:
        raise InputError(
            f"task {entry.id} runs on {entry.resource} and cannot save its state: `hetctl "
            "hold --requeue` stops it, and it begins anew where you move and release it"
        )


def _refuse_odd(request: m.Control) -> None:
    """Refuse what a verb does not go with."""
    if request.requeue and request.verb != "hold":
        raise InputError(f"requeue: goes with hold, not with {request.verb}")
    if (request.verb == "signal") != (request.signal > 0):
        raise InputError(f"signal: {request.signal} does not go with {request.verb}")
    if request.signal in (signal.SIGSTOP, signal.SIGCONT):
        raise InputError("signal: hold and release stop a command and let it go on")


_EVENTS: dict[str, Callable[[TaskId], e.Event]] = {
    "cancel": e.TaskCancelled,
    "hold": e.TaskHeld,
    "release": e.TaskReleased,
}
