"""What users ask of tasks that are there: list, explain, cancel, hold, move."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from hetd.core import events as e
from hetd.core.events import TaskId
from hetd.core.tasks import State
from hetd.planning.explain import explain
from hetd.service.resources import policy_name, resource_named
from hetd.service.submission import refuse_deadline
from libtask import messages as m
from libtask.errors import InputError
from libtask.faultpoints import reach

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetd.core.tasks import TaskRecord
    from hetd.entry import Entry
    from hetd.node import Node
    from hetd.planning.explain import Prospect
    from hetd.service.permissions import Permissions
    from hetd.transport.router import Peer


class TaskDesk:
    """Answers what users ask of their tasks."""

    def __init__(self, node: Node, rights: Permissions) -> None:
        self._node = node
        self._rights = rights

    def list_tasks(self, peer: Peer, request: m.ListTasks) -> m.Message:
        if request.limit < 1:
            raise InputError(f"limit: expected at least 1, got {request.limit}")
        if request.ids is not None:
            found = [self._rights.own(peer, task) for task in request.ids]
        else:
            owner, limit = self._rights.whose(peer, mine=request.mine), request.limit
            newest = self._node.journal.newest_first(request.before, limit, owner)
            found = list(islice(newest, limit))
        found = self._node.journal.certain(found)
        infos = [entry.info(detail=request.detail) for entry in found]
        if request.detail:
            infos = self._with_expectations(found, infos)
        return m.TaskList(request.request, infos, len(self._node.journal.live))

    def explain(self, peer: Peer, request: m.Explain) -> m.Message:
        entry = self._rights.own(peer, request.id)
        system = self._node.scheduler.system
        record = system.tasks.get(TaskId(entry.id))
        if record is None:
            passive = "been " if entry.state in ("cancelled", "dropped") else ""
            because = f": {entry.reason}" if entry.reason else ""
            why = f"has {passive}{entry.state}{because}"
            return m.Explained(
                request.request, entry.id, entry.state, why, resource=entry.resource
            )
        found = explain(system, record)
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
            each.note,
        )

    def _with_expectations(
        self, found: list[Entry], infos: list[m.TaskInfo]
    ) -> list[m.TaskInfo]:
        """Add what the tasks are expected to take; asked once for tasks that are alike."""
        known: dict[Any, dict[str, float]] = {}
        full = []
        for entry, info in zip(found, infos, strict=True):
            spec = entry.spec
            alike = (spec.type, spec.app, spec.work, *spec.kinds, *spec.resources)
            if alike not in known:
                known[alike] = self._node.expected(spec)
            full.append(msgspec.structs.replace(info, expected=known[alike]))
        return full

    def control(self, peer: Peer, request: m.Control) -> m.Message:
        for task in request.ids:
            self._rights.own(peer, task)
        live = [task for task in request.ids if task in self._node.journal.live]
        events: dict[str, Callable[[TaskId], e.Event]] = {
            "cancel": e.TaskCancelled,
            "hold": e.TaskHeld,
            "release": e.TaskReleased,
        }
        for task in live:
            # cancelling one may have ended another that came after it
            if task in self._node.journal.live:
                reach("control.before")
                if request.verb == "snapshot":
                    self._node.orders.want_snapshot(TaskId(task))
                else:
                    self._node.happen(events[request.verb](TaskId(task)))
                    self._node.keep(TaskId(task))
                reach("control.done")
        return m.Done(request.request, live)

    def amend(self, peer: Peer, request: m.Amend) -> m.Message:
        refuse_deadline(request.deadline_s)
        entries = [self._rights.own(peer, task) for task in request.ids]
        live = [entry for entry in entries if entry.id in self._node.journal.live]
        for entry in live:
            entry.spec = self._amended(entry, request)
            self._node.amend(entry)
        return m.Done(request.request, [entry.id for entry in live])

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
        reach("migrate.before")
        self._node.happen(e.TaskMoved(TaskId(request.id), request.resource))
        self._node.keep(TaskId(request.id))
        reach("migrate.done")
        return m.Done(request.request, [request.id])
