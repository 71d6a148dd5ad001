"""What users submit: checked, and given an id."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from hetd.service.resources import resource_named
from libtask import messages as m
from libtask.errors import InputError, NotAllowedError
from libtask.faultpoints import reach

if TYPE_CHECKING:
    from hetd.entry import Entry
    from hetd.node import Node
    from hetd.service.permissions import Permissions
    from hetd.transport.router import Peer


LATEST = 1e10
"""Seconds to the latest deadline that can be told in nanoseconds: three centuries."""


class SubmissionDesk:
    """Takes in new tasks, all of a request or none."""

    def __init__(self, node: Node, rights: Permissions) -> None:
        self._node = node
        self._rights = rights

    def submit(self, peer: Peer, request: m.Submit) -> m.Message:
        launcher = self._node.pool.has_launcher(peer.uid)
        if request.worker:
            self._demand_free(peer, request)
        self._demand_room(peer, len(request.tasks))
        first = self._node.journal.next_id()
        specs = [
            self._checked(peer, spec, first, position)
            for position, spec in enumerate(request.tasks)
        ]
        reach("submit.checked")
        entries = [self._admit(peer, spec, request.worker) for spec in specs]
        reach("submit.admitted")
        self._node.submit(entries)
        reach("submit.placed")
        ids = [entry.id for entry in entries]
        return m.Submitted(request.request, ids, launcher)

    def _demand_free(self, peer: Peer, request: m.Submit) -> None:
        """Refuse a program's submit that it cannot run by itself."""
        if not self._node.pool.free(peer.uid, request.worker):
            raise InputError(f"worker {request.worker!r} is not here or has a task")
        if len(request.tasks) != 1:
            raise InputError(
                f"a worker of its own runs 1 task, not {len(request.tasks)}"
            )

    def _demand_room(self, peer: Peer, count: int) -> None:
        """Refuse what exceeds the limit of tasks that a user may have."""
        limit = self._node.unended.of(peer.uid)
        has = len(self._node.journal.live_of.get(peer.uid, ()))
        if limit is not None and has + count > limit:
            raise NotAllowedError(
                f"you may have {limit} unended tasks and have {has}: no room for "
                f"{count} more; wait until some end, or ask for a higher limit"
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
        refuse_deadline(spec.deadline_s)
        if not 0 <= spec.work < math.inf:
            raise InputError(f"work: expected a finite amount, got {spec.work:g}")
        for name in spec.resources:
            resource_named(self._node, name)
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
        entry = self._rights.own(peer, task)
        if entry.state in m.ENDED - {"completed"}:
            raise InputError(
                f"task {task}, which it comes after, ended as {entry.state}"
            )
        return entry.state != "completed"


def _can_run(spec: m.TaskSpec, device: m.DeviceInfo) -> bool:
    allowed = not spec.resources or device.spec.name in spec.resources
    return allowed and device.spec.kind in spec.kinds


def refuse_deadline(seconds: float | None) -> None:
    """Refuse a deadline that cannot be told by the clock.

    Raises:
        InputError: says what is expected.

    """
    if seconds is None or 0 < seconds < LATEST:
        return
    limit = "" if seconds <= 0 else f", below {LATEST:g}"
    raise InputError(f"deadline: expected seconds above 0{limit}, got {seconds:g}")
