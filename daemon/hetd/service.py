"""What users ask: submit, list, cancel, move, watch; one method a request.

Every answer that depends on a change is sent after its commit. A refused request
changes nothing and gets one line that says why.
"""

from __future__ import annotations

import difflib
import math
import os
from collections import OrderedDict
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import msgspec

from hetd.core import events as e
from hetd.core.events import TaskId
from hetd.estimates.point import Figures, refuse_nonsense
from hetd.estimates.table import application
from hetd.planning.explain import explain
from hetd.policies import POLICIES, describe_policy, make_policy, parameters_of
from libtask import messages as m
from libtask.errors import HetError, InputError, NotAllowedError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetd.core.tasks import TaskRecord
    from hetd.journal import Entry
    from hetd.node import Node
    from hetd.planning.explain import Prospect
    from hetd.store import Store
    from hetd.transport.router import Peer

KEYS = 100_000
"""Idempotency keys kept in memory; older ones are read from the store."""


class Service:
    """Answers users' requests.

    Args:
        stop: called when a user who may asks the daemon to stop.

    """

    def __init__(self, node: Node, store: Store, stop: Callable[[], None]) -> None:
        self._node = node
        self._store = store
        self._stop = stop
        self._keys: OrderedDict[tuple[int, str], list[int]] = OrderedDict()
        self._handlers: dict[type, Callable[[Peer, Any], m.Message]] = {
            m.Submit: self._submit,
            m.ListTasks: self._list,
            m.Explain: self._explain,
            m.Control: self._control,
            m.Migrate: self._migrate,
            m.Devices: self._devices,
            m.Policies: self._policies,
            m.Learn: self._learn,
            m.Models: self._models,
            m.Forget: self._forget,
            m.Occupy: self._occupy,
            m.Stop: self._on_stop,
        }

    def answer(self, peer: Peer, request: m.Request) -> m.Message:
        """Do what is asked; return the reply, or the error in its place."""
        try:
            return self._handlers[type(request)](peer, request)
        except HetError as error:
            return m.Error(request.request, error.code, str(error))

    # ------------------------------------------------------------ submission

    def _submit(self, peer: Peer, request: m.Submit) -> m.Message:
        launcher = self._node.pool.has_launcher(peer.uid)
        known = self._known(peer.uid, request.key)
        if known is not None:
            return m.Submitted(request.request, known, launcher)
        if request.worker:
            self._demand_free(peer, request)
        first = self._node.journal.next_id()
        specs = [
            self._checked(peer, spec, first, position)
            for position, spec in enumerate(request.tasks)
        ]
        entries = [self._admit(peer, spec, request.worker) for spec in specs]
        self._node.submit(entries)
        ids = [entry.id for entry in entries]
        self._remember(peer.uid, request.key, ids)
        return m.Submitted(request.request, ids, launcher)

    def _demand_free(self, peer: Peer, request: m.Submit) -> None:
        """Refuse a program's submit that it cannot run by itself."""
        if not self._node.pool.free(peer.uid, request.worker):
            raise InputError(f"worker {request.worker!r} is not here or has a task")
        if len(request.tasks) != 1:
            raise InputError(
                f"a worker of its own runs 1 task, not {len(request.tasks)}"
            )

    def _admit(self, peer: Peer, spec: m.TaskSpec, worker: str) -> Entry:
        entry = self._node.journal.admit(
            spec, peer.uid, self._node.clock.wall(), peer.route
        )
        if worker:
            self._node.pool.reserve(peer.uid, worker, entry.id)
        return entry

    def _checked(
        self, peer: Peer, spec: m.TaskSpec, first: int, position: int
    ) -> m.TaskSpec:
        """Refuse a task that can never run; resolve what it comes after."""
        if spec.deadline_s is not None and not 0 < spec.deadline_s < math.inf:
            raise InputError(
                f"deadline: expected seconds above 0, got {spec.deadline_s:g}"
            )
        for name in spec.resources:
            self._resource(name)
        if not any(_can_run(spec, device) for device in self._node.devices.values()):
            offered = ", ".join(
                f"{name} ({device.spec.kind})"
                for name, device in self._node.devices.items()
            )
            allowed = f" on {', '.join(spec.resources)}" if spec.resources else ""
            raise InputError(
                f"{spec.app} cannot run{allowed}: it has implementations for "
                f"{', '.join(spec.kinds) or 'nothing'}; this node has {offered}"
            )
        if not spec.after:
            return spec
        if -min(spec.after) > position:
            raise InputError(
                f"after: {min(spec.after)} is before the first task of the submit"
            )
        after = [task if task > 0 else first + position + task for task in spec.after]
        unfinished = [t for t in after if self._to_wait_for(peer, t, first, position)]
        return msgspec.structs.replace(spec, after=unfinished)

    def _to_wait_for(self, peer: Peer, task: int, first: int, position: int) -> bool:
        if first <= task < first + position:
            return True
        entry = self._own(peer, task)
        if entry.state in m.ENDED - {"completed"}:
            raise InputError(
                f"task {task}, which it comes after, ended as {entry.state}"
            )
        return entry.state != "completed"

    def _known(self, uid: int, key: str) -> list[int] | None:
        if not key:
            return None
        found = self._keys.get((uid, key))
        if found is None:
            stored = self._store.key(uid, key)
            found = list(range(stored[0], stored[0] + stored[1])) if stored else None
        return found

    def _remember(self, uid: int, key: str, ids: list[int]) -> None:
        if not key or not ids:
            return
        self._keys[uid, key] = ids
        self._node.journal.batch.keys.append((uid, key, ids[0], len(ids)))
        while len(self._keys) > KEYS:
            self._keys.popitem(last=False)

    # ------------------------------------------------------------ tasks

    def _list(self, peer: Peer, request: m.ListTasks) -> m.Message:
        if request.limit < 1:
            raise InputError(f"limit: expected at least 1, got {request.limit}")
        if request.ids is not None:
            found = [self._own(peer, task) for task in request.ids]
        else:
            found = []
            journal = self._node.journal
            for entry in journal.newest_first(request.before, request.limit):
                if self._may_see(peer, entry, mine=request.mine):
                    found.append(entry)
                if len(found) >= request.limit:
                    break
        infos = [entry.info(detail=request.detail) for entry in found]
        if request.detail:
            infos = self._with_expectations(found, infos)
        return m.TaskList(request.request, infos, len(self._node.journal.live))

    def _explain(self, peer: Peer, request: m.Explain) -> m.Message:
        entry = self._own(peer, request.id)
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
            found.why,
            self._policy_name(),
            found.rule,
            system.objective,
            record.resource,
            [self._prospect(record, each) for each in found.prospects],
        )

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

    def _policy_name(self) -> str:
        kind = type(self._node.scheduler.policy)
        return next(name for name, known in POLICIES.items() if known is kind)

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

    def _control(self, peer: Peer, request: m.Control) -> m.Message:
        for task in request.ids:
            self._own(peer, task)
        live = [task for task in request.ids if task in self._node.journal.live]
        events: dict[str, Callable[[TaskId], e.Event]] = {
            "cancel": e.TaskCancelled,
            "hold": e.TaskHeld,
            "release": e.TaskReleased,
        }
        for task in live:
            # cancelling one may have ended another that came after it
            if task in self._node.journal.live:
                self._node.happen(events[request.verb](TaskId(task)))
        return m.Done(request.request, live)

    def _migrate(self, peer: Peer, request: m.Migrate) -> m.Message:
        entry = self._own(peer, request.id)
        device = self._resource(request.resource)
        if request.id not in self._node.journal.live:
            raise InputError(f"task {request.id} is {entry.state}; it cannot be moved")
        if device.spec.kind not in entry.spec.kinds:
            raise InputError(
                f"task {request.id} cannot run on {request.resource}: {entry.spec.app} "
                f"has implementations for {', '.join(entry.spec.kinds)}"
            )
        self._node.happen(e.TaskMoved(TaskId(request.id), request.resource))
        return m.Done(request.request, [request.id])

    def _own(self, peer: Peer, task: int) -> Entry:
        entry = self._node.journal.find(task)
        if entry is None:
            raise NotFoundError(f"no task {task}")
        if not self._may_see(peer, entry):
            raise NotAllowedError(f"task {task} is another user's")
        return entry

    def _may_see(self, peer: Peer, entry: Entry, *, mine: bool = False) -> bool:
        return entry.owner == peer.uid or (not mine and _may_rule(peer))

    # ------------------------------------------------------------ the node

    def _devices(self, peer: Peer, request: m.Devices) -> m.Message:
        return m.DeviceList(
            request.request, [self._device_info(name) for name in self._node.devices]
        )

    def _device_info(self, name: str) -> m.DeviceInfo:
        state = self._node.scheduler.system.states[name]
        condition = "lost" if not state.up else "draining" if state.draining else "up"
        return msgspec.structs.replace(
            self._node.metering.describe(
                self._node.devices[name], self._node.clock.now()
            ),
            state=condition,
            running=list(state.running),
            queued=len(state.queue),
        )

    def _occupy(self, peer: Peer, request: m.Occupy) -> m.Message:
        self._demand_rule(peer)
        self._resource(request.resource)
        change = e.ResourceDrained if request.drain else e.ResourceReturned
        self._node.happen(change(request.resource))
        return m.Done(request.request)

    def _policies(self, peer: Peer, request: m.Policies) -> m.Message:
        if request.set is not None:
            self._demand_rule(peer)
            policy = make_policy(request.set, request.parameters)
            self._node.happen(e.PolicyChanged(policy))
        policy = self._node.scheduler.policy
        name = self._policy_name()
        available = {n: describe_policy(kind) for n, kind in POLICIES.items()}
        return m.PolicyInfo(request.request, name, parameters_of(policy), available)

    def _learn(self, peer: Peer, request: m.Learn) -> m.Message:
        self._demand_rule(peer)
        for sample in request.samples:
            self._resource(sample.resource)
        learnt = [Figures(*msgspec.structs.astuple(each)) for each in request.samples]
        for known in learnt:
            refuse_nonsense(known)
        for known in learnt:
            self._node.journal.batch.keep(self._node.estimates.enter(known))
        return m.Done(request.request)

    def _models(self, peer: Peer, request: m.Models) -> m.Message:
        samples = [
            m.Sample(*astuple(known)) for known in self._node.estimates.figures()
        ]
        return m.ModelList(request.request, samples)

    def _forget(self, peer: Peer, request: m.Forget) -> m.Message:
        self._demand_rule(peer)
        names, resources = set(request.names), set(request.resources)

        def chosen(known: Figures) -> bool:
            named = {known.type, application(known.type)} & names
            return bool(named or not names) and (
                not resources or known.resource in resources
            )

        gone = self._node.estimates.forget(chosen)
        for known in gone:
            self._node.journal.batch.forget(known)
        samples = [m.Sample(*astuple(known)) for known in gone]
        return m.ModelList(request.request, samples)

    def _on_stop(self, peer: Peer, request: m.Stop) -> m.Message:
        self._demand_rule(peer)
        self._stop()
        return m.Done(request.request)

    def _resource(self, name: str) -> m.DeviceInfo:
        device = self._node.devices.get(name)
        if device is None:
            near = difflib.get_close_matches(name, self._node.devices, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            offered = ", ".join(self._node.devices)
            raise NotFoundError(f"no resource {name!r}; there are: {offered}{hint}")
        return device

    def _demand_rule(self, peer: Peer) -> None:
        if not _may_rule(peer):
            raise NotAllowedError("only root and the daemon's own user may do that")


def _may_rule(peer: Peer) -> bool:
    return peer.uid in (0, os.getuid())


def _can_run(spec: m.TaskSpec, device: m.DeviceInfo) -> bool:
    allowed = not spec.resources or device.spec.name in spec.resources
    return allowed and device.spec.kind in spec.kinds
